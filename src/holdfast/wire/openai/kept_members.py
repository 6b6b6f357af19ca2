"""Members of messages, calls and results that we do not use: kept beside the item, and listed with it again.

Most items have none. An item that has some gets an `Opaque` of the owner `client`, with its members and its parts as
far as the item itself does not tell them, at any depth. So an item is listed with every member that its client gave,
but for the id, which is ours, and text content, which is listed as a part.

1. An item of Responses is compared with the object that lists it: `kept_members`.
2. Messages of other APIs are compared with the types that decoded them: a member without a field is kept
   (`untold_members`), and a `strict_type` finds out whether there is one. A type that gains a field needs no change here.
3. Lists have the form of Responses. A member of another API whose name means something else there is listed with the
   name of that API in front: `chat.image_url`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct

from holdfast import limits
from holdfast.core.items import Opaque, Opaques
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.problems import bad_request

CLIENT = "client"
"""The owner of an `Opaque` that holds what a client sent."""

# ── items without such members ───────────────────────────────────────────────────────────────

Nothing: TypeAlias = Annotated[list[Raw], Meta(max_length=0)] | None


class _PlainText(Struct, frozen=True, tag="input_text", forbid_unknown_fields=True):
    text: str


class _PlainAnswer(Struct, frozen=True, tag="output_text", forbid_unknown_fields=True):
    text: str
    annotations: Nothing = None
    logprobs: Nothing = None


class _PlainRefusal(Struct, frozen=True, tag="refusal", forbid_unknown_fields=True):
    refusal: str


class _PlainImage(Struct, frozen=True, tag="input_image", forbid_unknown_fields=True):
    image_url: str
    detail: Literal["auto", "low", "high", "original"] | None = None
    file_id: None = None


class _PlainItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str | None = None
    status: Literal["completed"] | None = None


_Given: TypeAlias = str | list[_PlainText | _PlainImage]


class _PlainInput(_PlainItem, frozen=True):
    role: Literal["user", "system"]
    content: _Given
    type: Literal["message"] | None = None


class _PlainMessage(_PlainItem, frozen=True):
    role: Literal["assistant"]
    content: str | list[_PlainAnswer | _PlainRefusal]
    type: Literal["message"] | None = None


class _PlainCall(_PlainItem, frozen=True):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class _PlainResult(_PlainItem, frozen=True):
    type: Literal["function_call_output"]
    call_id: str
    output: str


_plain: dict[str, BodyDecoder[Any]] = {
    "user": BodyDecoder(_PlainInput),
    "system": BodyDecoder(_PlainInput),
    "assistant": BodyDecoder(_PlainMessage),
    "call": BodyDecoder(_PlainCall),
    "tool": BodyDecoder(_PlainResult),
}


def is_plain(kind: str, raw: Raw) -> bool:
    """Whether an item of this role, or a `call`, has no member that we do not use."""
    try:
        _plain[kind].decode(raw)
    except msgspec.ValidationError:
        return False
    return True


# ── members that a type has no field for ─────────────────────────────────────────────────────


def strict_type(kind: Any) -> Any:
    """A type of the same values that refuses members which it has no field for, at any depth."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _strict_struct(kind)
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return reduce(or_, map(strict_type, given))
    return list[strict_type(given[0])] if origin is list else kind  # type: ignore[misc]


def _strict_struct(kind: type[Struct]) -> type[Struct]:
    tag = kind.__struct_config__.tag
    fields: list[Any] = [
        (each.name, strict_type(each.type))
        if each.required
        else (each.name, strict_type(each.type), each.default)
        for each in msgspec.structs.fields(kind)
    ]
    name = f"Strict{kind.__name__}"
    return msgspec.defstruct(
        name, fields, bases=(kind,), tag=tag, frozen=True, kw_only=True, forbid_unknown_fields=True
    )


def with_messages(request: type[Struct], message: Any) -> Any:
    """The type of a request, with messages of another type."""
    fields: list[Any] = [("messages", list[message])]
    return msgspec.defstruct(f"Whole{request.__name__}", fields, bases=(request,), kw_only=True)


def untold_members(sent: Raw | Mapping[str, Raw], known: Struct) -> dict[str, Raw]:
    """The members of an object that the value decoded from it has no field for, at any depth but in lists."""
    members = sent if isinstance(sent, Mapping) else _members_decoder.decode(sent)
    tag = known.__struct_config__.tag_field
    found: dict[str, Raw] = {}
    for name, raw in members.items():
        if name not in known.__struct_encode_fields__:
            if name != tag:
                found[name] = raw
        elif not isinstance(value := getattr(known, name), Struct):
            continue
        elif not _is_object(raw):
            found[name] = raw  # the value was made of another member
        elif inside := untold_members(raw, value):
            found[name] = Raw(msgspec.json.encode(inside))
    return found


# ── items with such members ──────────────────────────────────────────────────────────────────


class KeptPart(Struct, frozen=True, array_like=True):
    """What the item does not tell of a part: some members, or all of a part that only other servers know."""

    members: dict[str, Raw]
    whole: bool


class KeptMembers(Struct, frozen=True, omit_defaults=True):
    members: dict[str, Raw] = {}
    parts: list[KeptPart] = []
    is_list: bool = False
    """Of an output that is all text: whether it came in parts. Text content is always listed as a part."""
    form: str = ""
    """The API whose form the members have, if it is not Responses."""


_members_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])
_parts_decoder: BodyDecoder[list[dict[str, Raw]]] = BodyDecoder(list[dict[str, Raw]])
_kept_decoder: BodyDecoder[KeptMembers] = BodyDecoder(KeptMembers)


def kept_members(
    raw: Raw, shown: Mapping[str, Any], content: str, known: Sequence[bool], *, where: str
) -> Opaques:
    """What the item `shown` does not tell of the item that a client sent. `content` is the name of the member with its
    parts, `known` says which of them we know. Raises Refused if that is too large to be kept."""
    sent = _members_decoder.decode(raw)
    parts = sent.pop(content, Raw(b"null"))
    members = _untold(sent, shown, but=("id", "type"))
    kept: list[KeptPart] = []
    if bytes(parts).lstrip().startswith(b"["):
        listed = iter(shown[content])
        for part, is_known in zip(_parts_decoder.decode(parts), known, strict=True):
            told = _untold(part, next(listed)) if is_known else part
            kept.append(KeptPart(members=told, whole=not is_known))
    is_list = content == "output" and bool(kept)
    return opaque_members(members, kept, is_list=is_list, where=where)


def opaque_members(
    members: Mapping[str, Raw] | None = None,
    parts: Sequence[KeptPart] = (),
    *,
    is_list: bool = False,
    form: str = "",
    where: str,
) -> Opaques:
    """These members and parts as an extra of an item; none if there are none. Raises Refused if they are too large."""
    if not any(each.members for each in parts):
        parts = ()
    if not (members or parts or is_list):
        return ()
    found = KeptMembers(members=dict(members or {}), parts=[*parts], is_list=is_list, form=form)
    json = msgspec.json.encode(found).decode()
    if len(json) > limits.opaque_bytes_max:
        raise bad_request(
            "invalid_value",
            f"{where} has members that this server only keeps, and they are larger than "
            f"{limits.opaque_bytes_max} bytes",
            param=where,
        )
    return (Opaque(owner=CLIENT, json=json),)


def _untold(
    sent: Mapping[str, Raw], shown: Mapping[str, Any], but: Sequence[str] = ()
) -> dict[str, Raw]:
    found: dict[str, Raw] = {}
    for name, raw in sent.items():
        if name in but:
            continue
        told = shown.get(name)
        if isinstance(told, dict) and _is_object(raw):
            if inside := _untold(_members_decoder.decode(raw), told):
                found[name] = Raw(msgspec.json.encode(inside))
        elif name not in shown or not _says(told, msgspec.json.decode(raw)):
            found[name] = raw
    return found


def _says(told: Any, sent: Any) -> bool:
    """Whether a listed value tells the value that was sent. Bare base64 is listed as a `data:` URL."""
    if told == sent:
        return True
    is_url = isinstance(told, str) and told.startswith("data:") and isinstance(sent, str)
    return is_url and bool(sent) and told.endswith(f";base64,{sent}")


def _is_object(raw: Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")


def with_members(shown: dict[str, Any], extras: Opaques, content: str = "") -> dict[str, Any]:
    """The item as it is listed, with what its client gave besides."""
    json = next((each.json for each in extras if each.owner == CLIENT), None)
    kept = KeptMembers() if json is None else _kept_decoder.decode(harmless(json))
    shown = _merged(shown, kept.members, kept.form)
    if kept.parts:
        listed = iter(shown[content])
        parts = [
            each.members if each.whole else _merged(next(listed, {}), each.members, kept.form)
            for each in kept.parts
        ]
        shown[content] = [*parts, *listed]
    elif (
        content == "output"
        and not kept.is_list
        and all(each["type"] == "input_text" for each in shown[content])
    ):
        shown[content] = "".join(each["text"] for each in shown[content])
    return shown


def _merged(shown: dict[str, Any], members: Mapping[str, Raw], form: str) -> dict[str, Any]:
    found = dict(shown)
    for name, raw in members.items():
        there = found.get(name)
        if isinstance(there, dict) and _is_object(raw):
            found[name] = _merged(there, _members_decoder.decode(raw), form)
            continue
        while form and name in found:
            name = f"{form}.{name}"
        found[name] = raw
    return found


def harmless(json: str) -> str:
    """The same JSON, in which no text is taken for the name of a blob, which would be replaced by its bytes."""
    return json.replace('"blob:', '"\\u0062lob:')
