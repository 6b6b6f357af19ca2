"""docker-agent's `session.db`: sessions, and their items in a table of their own, or in older files in a column.

docker-agent stores a message when it begins and again when it is complete, so a process that died leaves a partial
last message. A sub-agent's work is a session with a parent: its answer is the parent's tool result, and the rest is
not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.core.items import Part, Text, plain_text
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    image_from,
)
from holdfast.peers.foreign_tables import Tables, tables_of, text, when_ms

PEER = "docker-agent"


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _ImageUrl(msgspec.Struct):
    url: str = ""


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    image_url: _ImageUrl | None = None


class _Message(msgspec.Struct):
    role: str = ""
    content: str = ""
    multi_content: list[_Piece] | None = None
    reasoning_content: str = ""
    tool_calls: list[_Call] | None = None
    tool_call_id: str = ""
    is_error: bool = False
    created_at: str = ""


class _Spoken(msgspec.Struct):
    """The wrapper of a message in older files."""

    agent_name: str = msgspec.field(name="agentName", default="")
    message: _Message = msgspec.field(default_factory=_Message)


class _Entry(msgspec.Struct):
    """An item of the column in older files; one of these fields is set."""

    message: _Spoken | None = None
    sub_session: msgspec.Raw | None = None
    summary: str = ""


_message = msgspec.json.Decoder(_Message)
_column = msgspec.json.Decoder(list[_Entry])


def read(path: Path) -> Iterator[ForeignConversation]:
    """The sessions of a file, without those of sub-agents."""
    with tables_of(path, PEER) as tables:
        tables.demand("sessions")
        columns = tables.columns("sessions")
        title = "cast(title as blob)" if "title" in columns else "''"
        roots = "where parent_id is null or parent_id = ''" if "parent_id" in columns else ""
        query = f"select id, created_at, {title} from sessions {roots} order by created_at, id"
        for session_id, created, named in list(tables.rows(query)):
            entries, left_out = _entries(tables, text(session_id))
            yield ForeignConversation(
                id=text(session_id),
                entries=tuple(entries),
                title=text(named),
                created_ms=when_ms(created),
                left_out=tuple(left_out),
            )


def _entries(tables: Tables, session_id: str) -> tuple[list[Entry], list[str]]:
    entries: list[Entry] = []
    left_out: list[str] = []
    if tables.columns("session_items"):
        query = (
            "select item_type, agent_name, cast(message_json as blob), cast(summary_text as blob) "
            "from session_items "
            "where session_id = ? order by position"
        )
        for kind, agent, message, summary in tables.rows(query, session_id):
            if kind == "message":
                _take(text(message), text(agent), entries, left_out)
            elif kind == "summary":
                entries.append(ForeignSummary(text=text(summary)))
            else:
                left_out.append("a sub-agent's own conversation")
    if not entries and "messages" in tables.columns("sessions"):
        _take_column(tables, session_id, entries, left_out)
    return entries, left_out


def _take(data: str, agent: str, entries: list[Entry], left_out: list[str]) -> None:
    try:
        message = _message.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        left_out.append("a message that cannot be read")
    else:
        entries.extend(_said(message, agent))


def _take_column(
    tables: Tables, session_id: str, entries: list[Entry], left_out: list[str]
) -> None:
    for (column,) in tables.rows(
        "select cast(messages as blob) from sessions where id = ?", session_id
    ):
        try:
            items = _column.decode(text(column) or "[]")
        except (msgspec.DecodeError, UnicodeEncodeError):
            left_out.append("messages that cannot be read")
            continue
        for item in items:
            if item.message is not None:
                entries.extend(_said(item.message.message, item.message.agent_name))
            elif item.sub_session is not None:
                left_out.append("a sub-agent's own conversation")
            elif item.summary:
                entries.append(ForeignSummary(text=item.summary))


def _said(message: _Message, agent: str) -> Iterator[Entry]:
    at_ms = when_ms(message.created_at)
    content = _parts(message)
    match message.role:
        case "user":
            yield ForeignMessage(content=content, at_ms=at_ms)
        case "system":
            yield ForeignInstruction(content=content)
        case "assistant":
            calls = tuple(
                ForeignCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in message.tool_calls or ()
            )
            thought = message.reasoning_content
            yield ForeignAnswer(
                content=content, thought=thought, calls=calls, agent=agent, at_ms=at_ms
            )
        case "tool":
            call, failed = message.tool_call_id, message.is_error
            yield ForeignResult(call=call, content=content, failed=failed, at_ms=at_ms)


def _parts(message: _Message) -> tuple[Part, ...]:
    if not message.multi_content:
        return plain_text(message.content)
    parts: list[Part] = []
    for piece in message.multi_content:
        if piece.text:
            parts.append(Text(text=piece.text))
        elif piece.image_url and (image := image_from(piece.image_url.url)) is not None:
            parts.append(image)
    return tuple(parts)
