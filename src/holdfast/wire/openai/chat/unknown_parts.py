"""Parts of chat messages that we do not know, or know in part, and calls of custom tools, in a request that is refused
for nothing else.

A part of another kind, and a further member of a part, is kept beside its message, for lists of the conversation, and
named as ignored. A call of a
custom tool becomes a call of a function with the text as its only argument, in which form every model knows it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import DAMAGE
from holdfast.core.items import Opaques
from holdfast.wire.openai.kept_members import KeptPart, opaque_members

_KNOWN = frozenset({"text", "refusal", "image_url", "input_audio", "file"})
"""The types of the parts that we know. Each has one member besides, which has the name of the type."""


class KnownRequest(NamedTuple):
    """A request in the terms that we know."""

    body: bytes
    extras: dict[int, Opaques]
    """The parts that were taken out, by the number of their message."""
    ignored: list[str]
    """Their names."""


class _Part(Struct, frozen=True):
    type: str


class _Custom(Struct, frozen=True):
    name: str
    input: str


class _CustomCall(Struct, frozen=True, tag="custom"):
    id: str
    custom: _Custom


_members_decoder = msgspec.json.Decoder(dict[str, Raw])
_list_decoder = msgspec.json.Decoder(list[Raw])
_messages_decoder = msgspec.json.Decoder(list[dict[str, Raw]])
_part_decoder = msgspec.json.Decoder(_Part)
_call_decoder = msgspec.json.Decoder(_CustomCall)


def known_request(body: bytes) -> KnownRequest | None:
    """The request without the parts that we do not know; None if it has none of them, or is malformed."""
    try:
        members = _members_decoder.decode(body)
        messages = _messages_decoder.decode(members["messages"])
        found = KnownRequest(b"", {}, [])
        for n, message in enumerate(messages):
            _take_parts(n, message, found)
            _translate_calls(message)
    except (*DAMAGE, KeyError):
        return None
    members["messages"] = Raw(msgspec.json.encode(messages))
    return found._replace(body=msgspec.json.encode(members))


def _take_parts(n: int, message: dict[str, Raw], found: KnownRequest) -> None:
    content = message.get("content", Raw(b"null"))
    if not bytes(content).lstrip().startswith(b"["):
        return
    parts = _list_decoder.decode(content)
    known: list[dict[str, Raw]] = []
    kept: list[KeptPart] = []
    for m, part in enumerate(parts):
        kind, members = _part_decoder.decode(part).type, _members_decoder.decode(part)
        where = f"messages[{n}].content[{m}]"
        if kind not in _KNOWN:
            kept.append(KeptPart(members=members, whole=True))
            found.ignored.append(where)
            continue
        more = {name: each for name, each in members.items() if name not in ("type", kind)}
        known.append({name: each for name, each in members.items() if name not in more})
        kept.append(KeptPart(members=more, whole=False))
        found.ignored.extend(f"{where}.{name}" for name in more)
    if any(each.members for each in kept):
        message["content"] = Raw(msgspec.json.encode(known))
        found.extras[n] = opaque_members(parts=kept, where=f"messages[{n}]")


def _translate_calls(message: dict[str, Raw]) -> None:
    calls = message.get("tool_calls", Raw(b"null"))
    if b'"custom"' in bytes(calls):
        translated = [_function_call(each) for each in _list_decoder.decode(calls)]
        message["tool_calls"] = Raw(msgspec.json.encode(translated))


def _function_call(raw: Raw) -> object:
    try:
        call = _call_decoder.decode(raw)
    except msgspec.ValidationError:
        return raw
    arguments = msgspec.json.encode({"input": call.custom.input}).decode()
    function = {"name": call.custom.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
