"""Conversations as resources: their addresses, how they are listed, and their text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast import limits
from holdfast.core.items import Item
from holdfast.core.transcript import transcript
from holdfast.errors import InvalidValue
from holdfast.ids import SessionId

SCHEME: Final = "holdfast://conversations/"
TEMPLATE: Final = {
    "uriTemplate": SCHEME + "{id}",
    "name": "conversation",
    "title": "A conversation",
    "description": "A conversation with an agent, by its id.",
    "mimeType": "text/plain",
}


def address_of(session_id: SessionId) -> str:
    return f"{SCHEME}{session_id}"


def session_in(address: str) -> SessionId | None:
    """The conversation that an address names; None if the address is none of ours."""
    try:
        return SessionId(address.removeprefix(SCHEME)) if address.startswith(SCHEME) else None
    except InvalidValue:
        return None


def resource_shown(session_id: SessionId, title: str, agent: str) -> dict[str, object]:
    """A conversation in `resources/list`."""
    return {
        "uri": address_of(session_id),
        "name": str(session_id),
        "title": title or str(session_id),
        "description": f"A conversation with {agent}." if agent else "A conversation.",
        "mimeType": "text/plain",
    }


def resource_text(items: Iterable[Item]) -> str:
    """The text of a conversation. Of a long one the beginning is left out."""
    entries = list(transcript(items))
    room, first = limits.mcp_resource_chars_max, len(entries)
    while first and room >= len(entries[first - 1]):
        first -= 1
        room -= len(entries[first]) + 2
    left_out = [f"[… {first} entries left out …]"] if first else []
    return "\n\n".join((*left_out, *entries[first:]))
