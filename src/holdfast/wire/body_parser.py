"""Decodes and checks request bodies; an error names the parameter at fault."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.events import GivenParameter, Parameters, ToolDefinition
from holdfast.wire.accepted_values import fields_at, values_at
from holdfast.wire.problems import Refused, bad_request

NULL = Raw(b"null")
"""The value of an absent field of any type."""

T_co = TypeVar("T_co", covariant=True)


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


class BodyDecoder(Protocol[T_co]):
    """A decoder of msgspec."""

    @property
    def type(self) -> object: ...

    def decode(self, body: bytes, /) -> T_co: ...


def read_body(decoder: BodyDecoder[T_co], body: bytes) -> T_co:
    """Decode a body. Raises Refused, with the parameter at fault."""
    try:
        if not body.isascii():
            body.decode()  # msgspec does not check the text of `Raw` parts
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error, decoder.type) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request("invalid_json", f"the body is not valid JSON: {error}") from error


IGNORED_MAX = 16
"""Unknown fields that are named in an answer: it names them in a header."""

PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""A name that may appear in a header."""

_fields_decoder = msgspec.json.Decoder(dict[str, Raw])
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
            return unknown_parameter(name, fields_at(kind, whole))
        return missing_parameter(name)
    where = f"{place}: " if place else ""
    values = values_at(kind, whole) if message.startswith("Invalid enum value") else ()
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


_counting_decoder = msgspec.json.Decoder(CountedMessage)


def parts_in(raw: Raw) -> int:
    """The number of parts and calls in a message or an item; 0 for another shape, which its parser refuses."""
    try:
        return _counting_decoder.decode(raw).parts
    except msgspec.DecodeError:
        return 0


class ManyMessages(Struct, frozen=True):
    """A body, decoded only to count its messages and parts."""

    messages: list[Raw] = []


_messages_decoder = msgspec.json.Decoder(ManyMessages)


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


# ── tools ────────────────────────────────────────────────────────────────────────────────────

_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{limits.tool_name_chars_max}}}")


def tool_definition(
    where: str, *, name: str, description: str | None, parameters: Raw, strict: bool | None
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
