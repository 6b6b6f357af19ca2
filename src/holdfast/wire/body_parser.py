"""Decodes and checks request bodies; an error names the parameter at fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, inspect

from holdfast import limits
from holdfast.core.codec import DAMAGE, Value
from holdfast.core.turns.events import (
    FORCED_TOOL_CHOICE,
    GivenParameter,
    Parameters,
    ToolDefinition,
)
from holdfast.wire.problems import Refused, bad_request

NULL = Raw(b"null")
"""The value of an absent field of any type."""

T = TypeVar("T")


class TurnBody(Value):
    """What every parsed body that asks for a turn has, on each API."""

    model: str
    instructions: tuple[str, ...]
    parameters: Parameters
    client_tools: tuple[ToolDefinition, ...]
    stream: bool
    given: tuple[GivenParameter, ...] = ()
    left_alone: tuple[str, ...] = ()
    """The parts of the request for other servers: fields that only they know, tools of types that only they run."""


class BodyDecoder(Generic[T]):
    """Reads JSON of one type. Made once per type, at import; msgspec learns the type at the first body."""

    def __init__(self, kind: object) -> None:
        self.type = kind

    def decode(self, body: bytes | str | Raw) -> T:
        """Decode, or raise msgspec.DecodeError."""
        decode: Callable[[bytes | str | Raw], T] | None = self.__dict__.get("decode")
        if decode is None:
            # From now on `decode` is msgspec's own function: reading a chunk of a stream costs no call of ours.
            decode = msgspec.json.Decoder(self.type).decode
            self.__dict__["decode"] = decode
        return decode(body)


SPARE_CALLS = 150
"""Parts of a body are decoded again, where more calls are under way. Python counts calls and nested JSON together: what
is decoded with so many calls to spare can be decoded there, too."""

_FLAT = 500
"""JSON with fewer lists and objects can be decoded anywhere."""


def decoded(decoder: BodyDecoder[T], body: bytes) -> T:
    """The value of a body whose parts can be decoded anywhere. Raises msgspec.DecodeError and RecursionError."""
    is_flat = body.count(b"[") + body.count(b"{") < _FLAT
    return decoder.decode(body) if is_flat else _decoded_within(decoder, body, SPARE_CALLS)


def _decoded_within(decoder: BodyDecoder[T], body: bytes, calls: int) -> T:
    return _decoded_within(decoder, body, calls - 1) if calls else decoder.decode(body)


def read_body(decoder: BodyDecoder[T], body: bytes) -> T:
    """Decode a body. Raises Refused, with the parameter at fault."""
    try:
        if not body.isascii():
            body.decode()  # msgspec does not check the text of `Raw` parts
        return decoded(decoder, body)
    except msgspec.ValidationError as error:
        raise _invalid(error, decoder.type) from error
    except DAMAGE as error:
        raise bad_request("invalid_json", f"the body is not valid JSON: {error}") from error


IGNORED_MAX = 16
"""Unknown fields that are named in an answer: it names them in a header."""

PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""A name that may appear in a header."""


def plain_names(where: str, members: Iterable[str]) -> list[str]:
    """These members of a part, as an answer names them; without those that a header cannot hold."""
    return [f"{where}.{name}" for name in members if PLAIN.fullmatch(name)]


_fields_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])
_NO_WISH = frozenset({b"null", b"false", b"[]", b"{}", b'""'})


def unknown_fields(body: bytes, known: Container[str]) -> tuple[str, ...]:
    """The fields of a valid body that none of our code knows, if they ask for something."""
    found = [
        name
        for name, value in _fields_decoder.decode(body).items()
        if name not in known and bytes(value) not in _NO_WISH and PLAIN.fullmatch(name)
    ]
    return tuple(found[:IGNORED_MAX])


def _invalid(error: msgspec.ValidationError, kind: object) -> Refused:
    """A missing, unknown or wrongly typed field, as the error that clients expect."""
    message, _, whole = str(error).partition(" - at `$")
    whole = whole.rstrip("`").lstrip(".")
    place = whole.split("[...]")[0]
    named = re.search(r"(missing required|unknown) field `([^`]+)`", message)
    if named:
        name = f"{place}.{named[2]}" if place else named[2]
        if named[1] == "unknown":
            return unknown_parameter(name, _fields_at(kind, whole))
        return missing_parameter(name)
    where = f"{place}: " if place else ""
    values = _values_at(kind, whole) if message.startswith("Invalid enum value") else ()
    hint = f"; it is one of {', '.join(values)}" if values else ""
    return bad_request("invalid_type", f"{where}{message}{hint}", param=place or None)


def unknown_parameter(name: str, known: Sequence[str]) -> Refused:
    there = f"; there are: {', '.join(known)}" if known else ""
    return bad_request(
        "unknown_parameter",
        f"there is no parameter {name[:100]!r}{there}",
        param=name[:100],
    )


def missing_parameter(name: str) -> Refused:
    return bad_request(
        "missing_required_parameter", f"the parameter {name!r} is missing", param=name
    )


def unsupported(name: str, message: str) -> Refused:
    return bad_request("unsupported_parameter", message, param=name)


def demand_between(name: str, value: float | None, low: float, high: float) -> None:
    """Raises Refused if the number is given and outside its bounds."""
    if value is not None and not low <= value <= high:
        raise bad_request(
            "invalid_value", f"{name} must be between {low:g} and {high:g}", param=name
        )


def demand_least(name: str, value: int | None, least: int) -> None:
    """Raises Refused if the number is given and too small."""
    if value is not None and value < least:
        raise bad_request("invalid_value", f"{name} must be at least {least}", param=name)


def demand_few(name: str, count: int, most: int = limits.request_items_max) -> None:
    """Raises Refused if a list has more members than one request may have."""
    if count > most:
        message = f"{name} is too long: it has {count} members in all, and {most} at most are read of a request"
        raise bad_request("array_above_max_length", message, param=name)


LARGE_BYTES = 128 * 1024
"""Only JSON of this size can exceed the number of messages or parts: each has at least 16 bytes."""


class CountedMessage(Struct, frozen=True):
    """A message or an item, decoded only to count its parts: a quarter of the work of a full decoding."""

    content: str | list[Raw] | UnsetType | None = UNSET
    output: str | list[Raw] | UnsetType | None = UNSET
    tool_calls: list[Raw] | None = None

    @property
    def parts(self) -> int:
        lists = self.content, self.output, self.tool_calls
        return sum(len(each) for each in lists if isinstance(each, list))


_counting_decoder: BodyDecoder[CountedMessage] = BodyDecoder(CountedMessage)


def parts_in(raw: Raw) -> int:
    """The number of parts and calls in a message or an item; 0 for another shape, which its parser refuses."""
    try:
        return _counting_decoder.decode(raw).parts
    except msgspec.DecodeError:
        return 0


class ManyMessages(Struct, frozen=True):
    """A body, decoded only to count its messages and parts."""

    messages: list[Raw] = []


_messages_decoder: BodyDecoder[ManyMessages] = BodyDecoder(ManyMessages)


def demand_few_messages(body: bytes) -> None:
    """Raises Refused if a body has more messages, or parts in all of them, than one request may have."""
    if len(body) > LARGE_BYTES:
        said = read_body(_messages_decoder, body).messages
        demand_few("messages", len(said))
        demand_few("messages", sum(map(parts_in, said)), limits.request_parts_max)


def as_json(value: object) -> str | None:
    """A field as JSON, or None if it is absent or null."""
    if value is None or value is NULL:
        return None
    said = bytes(value).strip() if isinstance(value, Raw) else msgspec.json.encode(value)
    return None if said == b"null" else said.decode()


def passed_on(request: Struct, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The parameters with these names that a request has, as JSON."""
    for name in names:
        value = getattr(request, name)
        if value is not None and (said := as_json(value)) is not None:
            yield name, said


def has_member(raw: Raw | str, name: str) -> bool:
    """Whether a JSON object has a member that is not null. It tells the form of another API from a mistake."""
    return as_json(_fields_decoder.decode(raw).get(name)) is not None


# ── parameters ───────────────────────────────────────────────────────────────────────────────


def given_parameters(
    names: Iterable[tuple[str, str]], parameters: Parameters
) -> tuple[GivenParameter, ...]:
    """The parameters that the client sent; a default value is not counted. `names` are pairs: the client's name of a
    parameter, and ours."""
    defaults = {"parallel_tool_calls": True}
    given = [
        GivenParameter(name=name, ours=ours)
        for name, ours in names
        if (value := getattr(parameters, ours)) not in (None, (), "auto")
        and value is not defaults.get(ours)
    ]
    return (
        *given,
        *_forced_choice(parameters.tool_choice),
        *(GivenParameter(name=name, ours=name) for name, _ in parameters.others),
    )


def _forced_choice(choice: str | None) -> tuple[GivenParameter, ...]:
    """What else a model must know to obey this `tool_choice`; nothing for one that leaves the model free."""
    if choice in (None, "none", "auto"):
        return ()
    if choice != "required":
        asked = msgspec.json.decode(choice, type=_AllowedTools)
        if asked.type == "allowed_tools" and (asked.allowed_tools or asked).mode == "auto":
            return ()
    return (GivenParameter(name="tool_choice", ours=FORCED_TOOL_CHOICE),)


class _Mode(Struct, frozen=True):
    mode: str = "auto"


class _AllowedTools(_Mode, frozen=True):
    """A choice, as far as it says whether a call is demanded: nested in Chat Completions, flat in Responses."""

    type: str = ""
    allowed_tools: _Mode | None = None


# ── tools ────────────────────────────────────────────────────────────────────────────────────

_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{limits.tool_name_chars_max}}}")


def read_tools(
    tools: Sequence[T], definition_of: Callable[[str, T], ToolDefinition | None]
) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """The client's functions, and the places of other tools, which only other servers run: `definition_of` takes a tool
    and its place, and returns None for one of those. Raises Refused."""
    demand_few("tools", len(tools))
    definitions: dict[str, ToolDefinition] = {}
    left_alone: list[str] = []
    for n, tool in enumerate(tools):
        where = f"tools[{n}]"
        try:
            definition = definition_of(where, tool)
        except msgspec.ValidationError as error:
            raise bad_tool(where, str(error)) from error
        if definition is None:
            left_alone.append(where)
        elif definition.name in definitions:
            raise bad_tool(where, f"there is another function {definition.name!r}")
        else:
            definitions[definition.name] = definition
    return tuple(definitions.values()), tuple(left_alone)


def tool_definition(
    where: str, name: str, description: str | None, parameters: Raw, strict: bool | None
) -> ToolDefinition:
    """The definition of a client's function tool. Raises Refused."""
    if not _TOOL_NAME.fullmatch(name):
        raise bad_tool(
            where,
            f"a function's name is 1 to {limits.tool_name_chars_max} of a–z, A–Z, 0–9, '_' and '-'",
        )
    schema = as_json(parameters) or "{}"
    if not schema.startswith("{"):
        raise bad_tool(where, "a function's parameters are a JSON Schema object")
    return ToolDefinition(
        name=name, description=description or "", parameters=schema, strict=strict
    )


def bad_tool(where: str, why: str) -> Refused:
    return bad_request("invalid_tool", f"{where} does not fit: {why}", param=where)


def demand_known(name: str | None, tools: Iterable[ToolDefinition]) -> None:
    """Raises Refused if a `tool_choice` names a tool that is not among those of its request."""
    if name not in {each.name for each in tools}:
        raise bad_request(
            "invalid_value",
            f"tool_choice names {name!r}, which is not among the tools of this request",
            param="tool_choice",
        )


# ── what a place accepts, for error messages that list it ──────────────────────────────────────


def _values_at(kind: object, place: str) -> list[str]:
    """The values that a field such as `messages[0].role` may have; empty if any value of its type will do."""
    return [
        str(value)
        for each in _kinds_at(kind, place)
        if isinstance(each, inspect.LiteralType)
        for value in each.values
    ]


def _fields_at(kind: object, place: str) -> list[str]:
    """The fields that the object at a place may have; the empty place is the body itself."""
    return [
        field.encode_name
        for each in _kinds_at(kind, place)
        if isinstance(each, inspect.StructType)
        for field in each.fields
    ]


def _kinds_at(kind: object, place: str) -> list[inspect.Type]:
    kinds = list(_flat([inspect.type_info(kind)]))
    for step in re.findall(r"\[[^]]*]|[^.\[\]]+", place):
        kinds = list(_flat(inner for each in kinds for inner in _inside(each, step)))
    return kinds


def _flat(kinds: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for each in kinds:
        if isinstance(each, inspect.UnionType):
            yield from _flat(each.types)
        elif isinstance(each, inspect.Metadata):
            yield from _flat([each.type])
        else:
            yield each


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type
