"""The OpenAI Agents SDK's `SQLiteSession`: a table of sessions, and one of items in the form of the Responses API.

The SDK writes items one by one as a run goes on, so a run that failed leaves a question without an answer, or a call
without its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.core.items import Part, Refusal, Text, plain_text
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    image_from,
)
from holdfast.peers.foreign_tables import Tables, tables_of, text, when_ms

PEER = "openai-agents"


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""
    image_url: str = ""


class _Item(msgspec.Struct):
    """An item: the fields that are imported."""

    type: str = "message"
    role: str = ""
    content: str | list[_Piece] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[_Piece] | msgspec.Raw = ""
    summary: list[_Piece] = []


def read(path: Path) -> Iterator[ForeignConversation]:
    """The sessions of a file."""
    with tables_of(path, PEER) as tables:
        tables.demand("agent_sessions", "agent_messages")
        query = "select session_id, created_at from agent_sessions order by created_at, session_id"
        for session_id, created in list(tables.rows(query)):
            yield _session(tables, text(session_id), when_ms(created))


def _session(tables: Tables, session_id: str, created_ms: int) -> ForeignConversation:
    query = "select cast(message_data as blob), created_at from agent_messages where session_id = ? order by id"
    reader = _Reader()
    for data, at in tables.rows(query, session_id):
        reader.take(text(data), when_ms(at))
    return ForeignConversation(
        id=session_id,
        entries=tuple(reader.entries()),
        created_ms=created_ms,
        left_out=tuple(reader.left_out),
    )


class _Reader:
    """Joins the items of one model step, which the file has one by one, into one answer."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._step: ForeignAnswer | None = None
        self.left_out: list[str] = []

    def entries(self) -> list[Entry]:
        self._close()
        return self._entries

    def take(self, data: str, at_ms: int) -> None:
        try:
            item = msgspec.json.decode(data, type=_Item)
        except (msgspec.DecodeError, UnicodeEncodeError):
            self.left_out.append("an item that cannot be read")
            return
        match item.type, item.role:
            case "message", "user":
                self._add(ForeignMessage(content=_parts(item.content), at_ms=at_ms))
            case "message", "system" | "developer":
                self._add(ForeignInstruction(content=_parts(item.content)))
            case "message", "assistant":
                self._say(ForeignAnswer(content=_parts(item.content), at_ms=at_ms))
            case "reasoning", _:
                thought = "\n".join(each.text for each in item.summary)
                self._say(ForeignAnswer(thought=thought, at_ms=at_ms))
            case "function_call", _:
                call = ForeignCall(id=item.call_id, name=item.name, arguments=item.arguments)
                self._say(ForeignAnswer(calls=(call,), at_ms=at_ms))
            case "function_call_output", _:
                self._add(ForeignResult(call=item.call_id, content=_output(item), at_ms=at_ms))
            case kind, _:
                self.left_out.append(f"an item of type {kind!r}")

    def _add(self, entry: Entry) -> None:
        self._close()
        self._entries.append(entry)

    def _say(self, more: ForeignAnswer) -> None:
        step = self._step or ForeignAnswer()
        self._step = ForeignAnswer(
            content=(*step.content, *more.content),
            thought="\n".join(filter(None, (step.thought, more.thought))),
            calls=(*step.calls, *more.calls),
            at_ms=more.at_ms,
        )

    def _close(self) -> None:
        if self._step is not None:
            self._entries.append(self._step)
            self._step = None


def _parts(content: str | Sequence[_Piece] | None) -> tuple[Part, ...]:
    if content is None or isinstance(content, str):
        return plain_text(content or "")
    return tuple(part for each in content if (part := _part(each)) is not None)


def _part(piece: _Piece) -> Part | None:
    if piece.image_url:
        return image_from(piece.image_url)
    if piece.refusal:
        return Refusal(text=piece.refusal)
    return Text(text=piece.text) if piece.text else None


def _output(item: _Item) -> tuple[Part, ...]:
    if isinstance(item.output, msgspec.Raw):  # some tool's own JSON
        return plain_text(bytes(item.output).decode(errors="replace"))
    return _parts(item.output)
