"""Parts of chat messages that we do not know, and calls of custom tools, in a request that is refused for nothing else.

A part of another kind is kept beside its message, for lists of the conversation, and named as ignored. A call of a
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
    is_known = [_part_decoder.decode(each).type in _KNOWN for each in parts]
    if all(is_known):
        return
    known = [each for each, is_ours in zip(parts, is_known, strict=True) if is_ours]
    message["content"] = Raw(msgspec.json.encode(known))
    kept = [
        KeptPart(members={} if is_ours else _members_decoder.decode(each), whole=not is_ours)
        for each, is_ours in zip(parts, is_known, strict=True)
    ]
    found.extras[n] = opaque_members(parts=kept, where=f"messages[{n}]")
    found.ignored.extend(
        f"messages[{n}].content[{m}]" for m, is_ours in enumerate(is_known) if not is_ours
    )


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
