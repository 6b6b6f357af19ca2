"""goose's `sessions.db`: sessions and messages; a message's content is a list of parts.

Tool results are in messages of the user. After a compaction older messages are hidden from the model, and a summary
that only the model sees takes their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.core.items import Part, Text, plain_text
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    image_of,
)
from holdfast.peers.foreign_tables import Tables, tables_of, text, when_ms

PEER = "goose"


class _Request(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Wanted(msgspec.Struct):
    """`value` is the model's tool call; it is missing if there was an error."""

    status: str = ""
    value: _Request | None = None


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Output(msgspec.Struct):
    content: list[_Content] = []
    is_error: bool | None = msgspec.field(name="isError", default=None)


class _Came(msgspec.Struct):
    status: str = ""
    value: _Output | list[_Content] | None = None
    """Older files have the bare list of parts."""
    error: str = ""


class _Piece(msgspec.Struct, rename="camel"):
    """A part of a message: the fields that are imported."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    data: msgspec.Raw = msgspec.Raw(b'""')
    mime_type: str = ""
    id: str = ""
    tool_call: _Wanted | None = None
    tool_result: _Came | None = None


class _Visible(msgspec.Struct, rename="camel"):
    user_visible: bool = True
    agent_visible: bool = True


_pieces = msgspec.json.Decoder(list[_Piece])
_visible = msgspec.json.Decoder(_Visible)

_ASIDE = frozenset({"systemNotification", "actionRequired", "toolConfirmationRequest"})
"""Messages of the program to its user, which are not part of the conversation."""


def read(path: Path) -> Iterator[ForeignConversation]:
    """The sessions of a file."""
    with tables_of(path, PEER) as tables:
        tables.demand("sessions", "messages")
        columns = tables.columns("sessions")
        titles = [f"cast({each} as blob)" for each in ("name", "description") if each in columns]
        query = f"select id, created_at, {', '.join(titles)} from sessions order by created_at, id"
        for session_id, created, *named in list(tables.rows(query)):
            entries, left_out = _entries(tables, text(session_id))
            yield ForeignConversation(
                id=text(session_id),
                entries=tuple(entries),
                title=next(filter(None, map(text, named)), ""),
                created_ms=when_ms(created),
                left_out=tuple(left_out),
            )


def _entries(tables: Tables, session_id: str) -> tuple[list[Entry], list[str]]:
    entries: list[Entry] = []
    left_out: list[str] = []
    hidden = "metadata_json" if "metadata_json" in tables.columns("messages") else "null"
    query = (
        f"select role, cast(content_json as blob), created_timestamp, {hidden} from messages "
        "where session_id = ? order by created_timestamp, id"
    )
    for role, content, at, metadata in tables.rows(query, session_id):
        try:
            pieces = _pieces.decode(text(content))
            seen = _visible.decode(text(metadata) or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError):
            left_out.append("a message that cannot be read")
            continue
        if seen.user_visible:
            entries.extend(_said(text(role), pieces, when_ms(at), left_out))
        elif seen.agent_visible and (summary := _words(pieces)):
            entries.append(ForeignSummary(text=summary))
    return entries, left_out


def _said(role: str, pieces: Iterable[_Piece], at_ms: int, left_out: list[str]) -> Iterator[Entry]:
    content: list[Part] = []
    thoughts: list[str] = []
    calls: list[ForeignCall] = []
    for piece in pieces:
        match piece.type:
            case "text":
                content.append(Text(text=piece.text))
            case "image":
                data = msgspec.json.decode(piece.data)
                image = image_of(piece.mime_type, data if isinstance(data, str) else "")
                content.extend(() if image is None else (image,))
            case "thinking" | "reasoning":
                thoughts.append(piece.thinking or piece.text)
            case "toolRequest" | "frontendToolRequest":
                calls += _wanted(piece, left_out)
            case "toolResponse":
                yield _came(piece, at_ms)
            case kind if kind not in _ASIDE:
                left_out.append(f"a part of type {kind!r}")
    if role == "user":
        yield ForeignMessage(content=tuple(content), at_ms=at_ms)
    else:
        thought = "\n".join(thoughts)
        yield ForeignAnswer(
            content=tuple(content), thought=thought, calls=tuple(calls), at_ms=at_ms
        )


def _wanted(piece: _Piece, left_out: list[str]) -> Iterator[ForeignCall]:
    request = piece.tool_call.value if piece.tool_call else None
    if request is None:
        left_out.append("a tool call that was none")
    else:
        arguments = bytes(request.arguments).decode(errors="replace")
        yield ForeignCall(id=piece.id, name=request.name, arguments=arguments)


def _came(piece: _Piece, at_ms: int) -> ForeignResult:
    result = piece.tool_result or _Came()
    if result.value is None:
        return ForeignResult(
            call=piece.id, content=plain_text(result.error), failed=True, at_ms=at_ms
        )
    output = result.value if isinstance(result.value, _Output) else _Output(content=result.value)
    content = tuple(Text(text=each.text) for each in output.content if each.text)
    return ForeignResult(call=piece.id, content=content, failed=bool(output.is_error), at_ms=at_ms)


def _words(pieces: Iterable[_Piece]) -> str:
    return "\n".join(piece.text for piece in pieces if piece.type == "text").strip()
