"""Items of the Responses API that only other servers act on: how they are read, shown to models, and listed.

Hosted tools, sandboxes of a client, lists of tools, encrypted summaries, and types that do not exist yet: they are
stored as they came. A model reads the calls of such tools, and what came of them, as marked text; no provider but the
one that made an item would take the item itself. Items of all other types are not shown, and are named in
`X-Ignored-Params`.

So is a call that was cut inside its arguments and has no result: no model reads half a call.

An item is listed with its own members, byte for byte, under its own id; an item without an id gets one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast.core.items import ForeignContent
from holdfast.core.transcript import ends
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.openai.kept_members import harmless

SHOWN_KINDS = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "function_call_output",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "web_search_call",
    }
)
"""The types of items that a model reads as text: calls of tools, and their results."""

_TEXT_CHARS_MAX = 8_000
"""The most characters of an item that a model reads."""
_VALUE_CHARS_MAX = 2_000
"""The most characters of one text in such an item; of a longer one, such as a picture, the two ends are shown."""
_UNREAD = ("type", "id", "fingerprint", "encrypted_content")
"""Members that tell a model nothing."""

_members_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])


def foreign_content(kind: str, given_id: str | None, raw: bytes) -> ForeignContent:
    """An item as it is stored."""
    return ForeignContent(
        kind=kind,
        json=raw.decode(),
        given_id=given_id or "",
        text=_text(kind, raw) if kind in SHOWN_KINDS else "",
    )


def _text(kind: str, raw: bytes) -> str:
    members: dict[str, Any] = msgspec.json.decode(raw)
    shown = {name: _short(value) for name, value in members.items() if name not in _UNREAD}
    text = msgspec.json.encode(shown).decode()
    return f"[{kind}: {ends(text, _TEXT_CHARS_MAX)}]"


def _short(value: Any) -> Any:
    match value:
        case str():
            return ends(value, _VALUE_CHARS_MAX)
        case dict():
            return {name: _short(each) for name, each in value.items()}
        case list():
            return [_short(each) for each in value]
        case _:
            return value


def original_object(json: str, where: str) -> dict[str, Any]:
    """An item as its client sent it, with the id `where` if it has none."""
    members: dict[str, Any] = dict(_members_decoder.decode(harmless(json)))
    given = msgspec.json.decode(members.get("id", Raw(b"null")))
    if isinstance(given, str) and given:
        return {**members, "id": given}
    return {"id": where, **{name: each for name, each in members.items() if name != "id"}}


class _Output(Struct, frozen=True):
    type: Any = None
    call_id: Any = None


_output_decoder: BodyDecoder[_Output] = BodyDecoder(_Output)


def answered_calls(items: Iterable[Raw]) -> frozenset[str]:
    """The ids of the calls that a request has a result for."""
    found: set[str] = set()
    for each in items:
        if b"function_call_output" in bytes(each):
            with suppress(msgspec.ValidationError):  # it is refused in its turn
                output = _output_decoder.decode(each)
                if output.type == "function_call_output" and isinstance(output.call_id, str):
                    found.add(output.call_id)
    return frozenset(found)
