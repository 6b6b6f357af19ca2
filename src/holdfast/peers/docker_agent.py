"""docker-agent's `session.db`: sessions, and their items in a table of their own, or in older files in a column.

docker-agent stores a message when it begins and again when it is complete, so a process that died leaves a partial
last message. A sub-agent's work is a session with a parent, and becomes a branch of the turn that asked for it. Its
prompts begin with the last summary; the items from `first_kept_entry` on follow it in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.core.items import Part, Text, plain_text
from holdfast.core.turns.events import Usage
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignBranch,
    ForeignCall,
    ForeignConversation,
    ForeignError,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    Seen,
    image_from,
    image_of,
)
from holdfast.peers.foreign_tables import Cell, Row, Tables, tables_of, text, when_ms
from holdfast.wire.body_parser import BodyDecoder

PEER = "docker-agent"


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _ImageUrl(msgspec.Struct):
    url: str = ""


class _DocumentSource(msgspec.Struct):
    inline_text: str = ""
    inline_data: str = ""


class _Document(msgspec.Struct):
    name: str = ""
    mime_type: str = ""
    source: _DocumentSource = msgspec.field(default_factory=_DocumentSource)


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    image_url: _ImageUrl | None = None
    document: _Document | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cached_write_tokens: int = 0
    reasoning_tokens: int = 0


class _Message(msgspec.Struct):
    role: str = ""
    content: str = ""
    multi_content: list[_Piece] | None = None
    reasoning_content: str = ""
    tool_calls: list[_Call] | None = None
    tool_call_id: str = ""
    is_error: bool = False
    created_at: str = ""
    usage: _Usage | None = None
    model: str = ""
    cost: float = 0


class _Spoken(msgspec.Struct):
    """The wrapper of a message in older files."""

    agent_name: str = msgspec.field(name="agentName", default="")
    message: _Message = msgspec.field(default_factory=_Message)
    implicit: bool = False


class _SubSession(msgspec.Struct):
    messages: list[_Entry] = []


class _Entry(msgspec.Struct):
    """An item of the column in older files; one of these fields is set."""

    message: _Spoken | None = None
    sub_session: _SubSession | None = None
    summary: str = ""
    first_kept_entry: int = 0


class _Failure(msgspec.Struct):
    """An error, or the end of a run: the fields that say what happened."""

    message: str = ""
    error: str = ""
    reason: str = ""


_message: BodyDecoder[_Message] = BodyDecoder(_Message)
_failure: BodyDecoder[_Failure] = BodyDecoder(_Failure)
_tokens: BodyDecoder[_Usage] = BodyDecoder(_Usage)
_column: BodyDecoder[list[_Entry]] = BodyDecoder(list[_Entry])

_SETTINGS = {
    "tools_approved": "the approval of all tools",
    "permissions": "its permissions",
    "agent_model_overrides": "the models that its agents were switched to",
    "max_iterations": "its limit of iterations",
    "safety_policy": "its safety policy",
}
"""Columns with settings of a session that Holdfast does not take over, and what is told."""


def read(path: Path) -> Iterator[ForeignConversation]:
    """The sessions of a file, with those of sub-agents inside of them."""
    with tables_of(path, PEER) as tables:
        tables.demand("sessions")
        columns = tables.columns("sessions")
        title = "cast(title as blob)" if "title" in columns else "''"
        roots = "where parent_id is null or parent_id = ''" if "parent_id" in columns else ""
        known = [each for each in ("starred", *_SETTINGS) if each in columns]
        listed = ", ".join(("id", "created_at", title, *known))
        query = f"select {listed} from sessions {roots} order by created_at, id"
        for session_id, created, named, *settings in list(tables.rows(query)):
            told = dict(zip(known, settings, strict=True))
            reader = _Reader(tables)
            entries = reader.entries(text(session_id))
            yield ForeignConversation(
                id=text(session_id),
                entries=tuple(entries),
                title=text(named),
                created_ms=when_ms(created),
                left_out=(*reader.left_out, *_left_settings(told)),
                usage=reader.usage,
                attributes=(("starred", "true"),) if told.get("starred") else (),
            )


def _left_settings(told: Mapping[str, Cell]) -> Iterator[str]:
    for column, words in _SETTINGS.items():
        if told.get(column) and text(told[column]) not in ("", "0", "{}", "null"):
            yield words


class _Reader:
    """Reads the items of sessions, those of their sub-agents included."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._columns = tables.columns("session_items")
        self._read: set[str] = set()
        self.left_out: list[str] = []
        self.usage = Usage()
        """What summaries cost: no turn has them."""

    def entries(self, session_id: str) -> list[Entry]:
        self._read.add(session_id)
        made = _Entries(self.left_out)
        if self._columns:
            for row in list(self._rows(session_id)):
                self._take(row, made)
        if not made.entries and "messages" in self._tables.columns("sessions"):
            self._take_column(session_id, made)
        return made.entries

    def _rows(self, session_id: str) -> Iterator[Row]:
        newer = ("first_kept_entry", "cost", "usage_json")
        others = ", ".join(each if each in self._columns else "null" for each in newer)
        query = (
            "select item_type, agent_name, cast(message_json as blob), implicit, subsession_id, "
            f"cast(summary_text as blob), {others} from session_items "
            "where session_id = ? order by position"
        )
        return self._tables.rows(query, session_id)

    def _take(self, row: Row, made: _Entries) -> None:
        kind, agent, message, implicit, sub_session, summary, kept, cost, used = row
        match text(kind):
            case "message":
                try:
                    made.say(_message.decode(text(message)), text(agent), aside=bool(implicit))
                except (msgspec.DecodeError, UnicodeEncodeError):
                    made.leave_out("a message that cannot be read")
            case "summary":
                made.sum_up(text(summary), kept if isinstance(kept, int) else 0)
                self.usage += self._summary_usage(text(used), cost)
            case "subsession" if text(sub_session) and text(sub_session) not in self._read:
                made.branch(self.entries(text(sub_session)))
            case "error" | "termination":
                made.fail(text(kind), text(message))
            case other:
                made.leave_out(f"an item of type {other!r}")

    def _summary_usage(self, used: str, cost: Cell) -> Usage:
        try:
            tokens = _tokens.decode(used) if used else None
        except (msgspec.DecodeError, UnicodeEncodeError):
            self.left_out.append("the tokens of a summary")
            tokens = None
        return _used(tokens, cost if isinstance(cost, float | int) else 0)

    def _take_column(self, session_id: str, made: _Entries) -> None:
        query = "select cast(messages as blob) from sessions where id = ?"
        for (column,) in self._tables.rows(query, session_id):
            try:
                items = _column.decode(text(column) or "[]")
            except (msgspec.DecodeError, UnicodeEncodeError):
                made.leave_out("messages that cannot be read")
                continue
            _take_old(items, made)


def _take_old(items: list[_Entry], made: _Entries) -> None:
    for item in items:
        if item.message is not None:
            spoken = item.message
            made.say(spoken.message, spoken.agent_name, aside=spoken.implicit)
        elif item.sub_session is not None:
            inner = _Entries(made.left_out)
            _take_old(item.sub_session.messages, inner)
            made.branch(inner.entries)
        elif item.summary:
            made.sum_up(item.summary, item.first_kept_entry)


class _Entries:
    """The entries of one session, and where each of its items begins among them."""

    def __init__(self, left_out: list[str]) -> None:
        self.entries: list[Entry] = []
        self.left_out = left_out
        self._starts: list[int] = []

    def say(self, message: _Message, agent: str, *, aside: bool) -> None:
        self._starts.append(len(self.entries))
        self.entries.extend(_said(message, agent, "model" if aside else "both", self.left_out))

    def sum_up(self, summary: str, kept: int) -> None:
        """`kept` is the number of the first item that follows the summary in full; 0 if none does."""
        is_kept = 0 < kept < len(self._starts)
        self._starts.append(len(self.entries))
        since = self._starts[kept] if is_kept else None
        self.entries.append(ForeignSummary(text=summary, kept_from=since))

    def branch(self, entries: list[Entry]) -> None:
        self._starts.append(len(self.entries))
        agent = next((each.agent for each in entries if isinstance(each, ForeignAnswer)), "")
        self.entries.append(ForeignBranch(agent=agent, entries=tuple(entries)))

    def fail(self, kind: str, data: str) -> None:
        self._starts.append(len(self.entries))
        try:
            told = _failure.decode(data or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError):
            told = _Failure()
        words = told.message or told.error or told.reason or kind
        by: Literal["model_error", "limit"] = "model_error" if kind == "error" else "limit"
        self.entries.append(ForeignError(text=words, by=by))

    def leave_out(self, what: str) -> None:
        self._starts.append(len(self.entries))
        self.left_out.append(what)


def _said(message: _Message, agent: str, seen: Seen, left_out: list[str]) -> Iterator[Entry]:
    at_ms = when_ms(message.created_at)
    content = tuple(_parts(message, left_out))
    match message.role:
        case "user":
            yield ForeignMessage(content=content, at_ms=at_ms, seen_by=seen)
        case "system":
            yield ForeignInstruction(content=content)
        case "assistant":
            calls = tuple(
                ForeignCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in message.tool_calls or ()
            )
            yield ForeignAnswer(
                content=content,
                thought=message.reasoning_content,
                calls=calls,
                agent=agent,
                at_ms=at_ms,
                usage=_used(message.usage, message.cost),
                model=message.model,
            )
        case "tool":
            call, failed = message.tool_call_id, message.is_error
            yield ForeignResult(call=call, content=content, failed=failed, at_ms=at_ms)
        case other:
            left_out.append(f"a message of the role {other!r}")


def _used(used: _Usage | None, cost: float) -> Usage:
    used = used or _Usage()
    return Usage(
        input_tokens=used.input_tokens + used.cached_input_tokens + used.cached_write_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_input_tokens,
        cache_write_tokens=used.cached_write_tokens,
        reasoning_tokens=used.reasoning_tokens,
        cost_micros=round(cost * 1_000_000),
    )


def _parts(message: _Message, left_out: list[str]) -> Iterator[Part]:
    if not message.multi_content:
        yield from plain_text(message.content)
        return
    for piece in message.multi_content:
        found: Part | None = None
        if piece.text:
            found = Text(text=piece.text)
        elif piece.image_url:
            found = image_from(piece.image_url.url)
        elif piece.document:
            found = _attached(piece.document)
        elif piece.type == "text":
            continue
        if found is None:
            named = piece.document.name if piece.document else piece.type
            left_out.append(f"an attachment that is not in the file: {named}")
        else:
            yield found


def _attached(document: _Document) -> Part | None:
    """An attachment; None if its bytes are elsewhere, or are neither a text nor a picture."""
    if document.source.inline_text:
        return Text(text=document.source.inline_text)
    if document.mime_type.startswith("image/") and document.source.inline_data:
        return image_of(document.mime_type, document.source.inline_data)
    return None
