"""Parts and members of chat messages that we do not know, and calls in other forms, in a request that is refused for
nothing else.

A part of another kind, and a further member of a message, a part or a call, at any depth, is kept beside its message,
for lists of the conversation, and named as ignored. A call of a custom tool becomes a call of a function with the text
as its only argument, in which form every model knows it. So does a call in the form from before there were tools
(`function_call`, and its result with the role `function`); such a call has no id, and gets one that is the same
whenever it is sent again.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import DAMAGE
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Opaques
from holdfast.wire.body_parser import BodyDecoder, decoded, plain_names
from holdfast.wire.openai.chat.messages import ChatMessage
from holdfast.wire.openai.kept_members import KeptPart, opaque_members, untold_members

_KNOWN = frozenset({"text", "refusal", "image_url", "input_audio", "file"})
"""The types of the parts that we know."""
_FORM = "chat"


class KnownRequest(NamedTuple):
    """A request in the terms that we know, and its messages as they came, but for the oldest form of calls."""

    body: bytes
    sent: list[dict[str, Raw]]


class _Part(Struct, frozen=True):
    type: str


class _Custom(Struct, frozen=True):
    name: str
    input: str


class _CustomCall(Struct, frozen=True, tag="custom"):
    id: str
    custom: _Custom


class _OldCall(Struct, frozen=True):
    """A call in the form from before there were tools."""

    name: str
    arguments: str = ""


class _Named(Struct, frozen=True):
    """A result, as far as it says which function it is of."""

    name: str


_members_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])
_list_decoder: BodyDecoder[list[Raw]] = BodyDecoder(list[Raw])
_messages_decoder: BodyDecoder[list[dict[str, Raw]]] = BodyDecoder(list[dict[str, Raw]])
_part_decoder: BodyDecoder[_Part] = BodyDecoder(_Part)
_call_decoder: BodyDecoder[_CustomCall] = BodyDecoder(_CustomCall)
_named_decoder: BodyDecoder[_Named] = BodyDecoder(_Named)


def known_request(body: bytes) -> KnownRequest | None:
    """The request without the parts that we do not know; None if it is malformed."""
    try:
        members = decoded(_members_decoder, body)
        sent = _with_tool_calls(_messages_decoder.decode(members["messages"]))
        members["messages"] = Raw(msgspec.json.encode([_known_message(each) for each in sent]))
    except (*DAMAGE, KeyError):
        return None
    return KnownRequest(body=msgspec.json.encode(members), sent=sent)


def _known_message(sent: dict[str, Raw]) -> dict[str, Raw]:
    known = dict(sent)
    if parts := _listed(sent, "content"):
        known["content"] = _encoded([each for each in parts if _is_known(each)])
    if b'"custom"' in bytes(sent.get("tool_calls", Raw(b""))):
        known["tool_calls"] = _encoded(
            [_function_call(each) for each in _listed(sent, "tool_calls")]
        )
    return known


def _with_tool_calls(messages: list[dict[str, Raw]]) -> list[dict[str, Raw]]:
    """The messages, with calls and results in the oldest form as those of tools."""
    made = Counter[str]()
    waiting: dict[str, str] = {}
    """The ids of calls without a result, by the names of their functions."""
    found: list[dict[str, Raw]] = []
    for each in messages:
        if b"{" in bytes(each.get("function_call", b"")):
            old = msgspec.json.decode(each["function_call"], type=_OldCall)
            made[digest := sha256(f"{old.name} {old.arguments}".encode()).hexdigest()[:16]] += 1
            waiting[old.name] = call_id = f"function_{digest}_{made[digest]}"
            call = {"id": call_id, "type": "function", "function": old}
            each = {k: v for k, v in each.items() if k != "function_call"}
            each["tool_calls"] = _encoded([call])
        elif bytes(each.get("role", b"")) == b'"function"':
            name = _named_decoder.decode(msgspec.json.encode(each)).name
            each = {k: v for k, v in each.items() if k != "name"}
            each |= {"role": _encoded("tool"), "tool_call_id": _encoded(waiting.pop(name, name))}
        found.append(each)
    return found


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _listed(message: dict[str, Raw], name: str) -> list[Raw]:
    raw = message.get(name, Raw(b"null"))
    return _list_decoder.decode(raw) if bytes(raw).lstrip().startswith(b"[") else []


def _is_known(part: Raw) -> bool:
    return _part_decoder.decode(part).type in _KNOWN


def _function_call(raw: Raw) -> object:
    try:
        call = _call_decoder.decode(raw)
    except msgspec.ValidationError:
        return raw
    arguments = msgspec.json.encode({"input": call.custom.input}).decode()
    function = {"name": call.custom.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


# ── what is kept ─────────────────────────────────────────────────────────────────────────────


def with_kept(
    where: str, message: Incoming, known: ChatMessage, sent: dict[str, Raw], ignored: list[str]
) -> Incoming:
    """The message with what its client sent besides. The names of that are added to `ignored`. Raises Refused if it is
    too large to be kept."""
    members = untold_members(sent, known)
    if known.name and message.role != "user":  # no other item has a name
        members["name"] = sent["name"]
    ignored += plain_names(where, members)
    parts = _kept_parts(where, known, sent, ignored)
    calls = [
        msgspec.structs.replace(
            call, extras=_kept_call(f"{where}.tool_calls[{m}]", given, raw, ignored)
        )
        for m, (call, given, raw) in enumerate(
            zip(message.calls, known.tool_calls or (), _listed(sent, "tool_calls"), strict=True)
        )
    ]
    extras = opaque_members(members, parts, form=_FORM, where=where)
    return msgspec.structs.replace(message, extras=extras, calls=tuple(calls))


def _kept_parts(
    where: str, known: ChatMessage, sent: dict[str, Raw], ignored: list[str]
) -> list[KeptPart]:
    given = iter(known.content) if isinstance(known.content, list) else iter(())
    kept: list[KeptPart] = []
    for m, raw in enumerate(_listed(sent, "content")):
        place = f"{where}.content[{m}]"
        if _is_known(raw):
            kept.append(KeptPart(members=untold_members(raw, next(given)), whole=False))
            ignored += plain_names(place, kept[-1].members)
        else:
            kept.append(KeptPart(members=_members_decoder.decode(raw), whole=True))
            ignored.append(place)
    return kept


def _kept_call(where: str, known: Struct, raw: Raw, ignored: list[str]) -> Opaques:
    members = untold_members(raw, known)
    ignored += plain_names(
        where, {name: each for name, each in members.items() if name != "custom"}
    )
    return opaque_members(members, form=_FORM, where=where)
