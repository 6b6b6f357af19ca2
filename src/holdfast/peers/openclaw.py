"""openclaw's sessions: a transcript (`SESSION.jsonl`), or `sessions.json` with all keys and the transcripts beside it.

A transcript is a tree: each entry names its parent, and the last entry is where the conversation stands. The model is
sent the path from the root to there: after a compaction the summary first, then the entries from `firstKeptEntryId` on;
after a reset, or a compaction that has no summary, those entries alone.
Answers that failed or were aborted are not sent. Entries of other branches are told and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.core.items import Part, Text
from holdfast.core.turns.events import Usage
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignError,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    Seen,
    image_of,
)
from holdfast.peers.foreign_lines import lines_of
from holdfast.peers.foreign_tables import NotTheirs, when_ms
from holdfast.wire.body_parser import BodyDecoder

PEER = "openclaw"


class _Cost(msgspec.Struct):
    total: float = 0


class _Usage(msgspec.Struct, rename="camel"):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: _Cost = msgspec.field(default_factory=_Cost)


class _Piece(msgspec.Struct, rename="camel"):
    """A part of a message: the fields that are imported."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    data: str = ""
    mime_type: str = ""
    id: str = ""
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct, rename="camel"):
    role: str = ""
    content: str | list[_Piece] = ""
    timestamp: float = 0
    provider: str = ""
    model: str = ""
    usage: _Usage = msgspec.field(default_factory=_Usage)
    stop_reason: str = ""
    error_message: str = ""
    tool_call_id: str = ""
    is_error: bool = False
    command: str = ""
    output: str = ""
    exclude_from_context: bool = False
    display: bool = True
    summary: str = ""


class _Node(msgspec.Struct, rename="camel"):
    """A line of a transcript: the fields of all types of lines that are imported."""

    type: str = ""
    id: str = ""
    parent_id: str | None = None
    timestamp: str = ""
    version: int = 1
    message: _Message | None = None
    summary: str = ""
    first_kept_entry_id: str = ""
    first_kept_entry_index: int | None = None
    content: str | list[_Piece] = ""
    display: bool = True
    name: str = ""
    custom_type: str = ""
    label: str | None = None


class _Listed(msgspec.Struct, rename="camel"):
    """A session of `sessions.json`."""

    session_id: str = ""
    session_file: str = ""
    label: str = ""
    display_name: str = ""


_node: BodyDecoder[_Node] = BodyDecoder(_Node)
_index: BodyDecoder[dict[str, _Listed]] = BodyDecoder(dict[str, _Listed])

_SETTINGS = frozenset({"model_change", "thinking_level_change", "session"})
"""Lines without content: each answer names its model."""


def read(path: Path) -> Iterator[ForeignConversation]:
    """The session of a transcript, or all sessions that `sessions.json` lists, under their keys."""
    if path.suffix != ".json":
        yield _transcript(path, named="", title="")
        return
    try:
        index = _index.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise NotTheirs(f"{path} cannot be read as openclaw's sessions.json: {error}") from error
    for key, listed in sorted(index.items()):
        # The file's own directory only: a path in it may be one of another machine.
        name = Path(listed.session_file).name or f"{listed.session_id}.jsonl"
        beside = path.parent / name
        if not beside.is_file():
            told = f"its transcript {name} is not there"
            yield ForeignConversation(id=key, entries=(), left_out=(told,))
            continue
        yield _transcript(beside, named=key, title=listed.label or listed.display_name)


def _transcript(path: Path, *, named: str, title: str) -> ForeignConversation:
    nodes: list[_Node] = []
    left_out: list[str] = []
    for line in lines_of(path, PEER):
        try:
            nodes.append(_node.decode(line))
        except msgspec.DecodeError:
            left_out.append("a line that cannot be read")
    head = nodes[0] if nodes else _Node()
    if head.type != "session":
        raise NotTheirs(f"{path} is no transcript of {PEER}: its first line is no session")
    way = _way(nodes[1:])
    if others := len(nodes) - 1 - len(way):
        left_out.append(f"{others} entries of other branches")
    names = [each.name for each in way if each.type == "session_info" and each.name]
    return ForeignConversation(
        id=named or head.id or path.stem,
        entries=tuple(_entries(nodes, way, left_out)),
        title=names[-1] if names else title,
        created_ms=when_ms(head.timestamp),
        left_out=tuple(left_out),
    )


def _way(nodes: Sequence[_Node]) -> list[_Node]:
    """The entries from the root to the last one. Entries of the first version have no ids, and follow each other."""
    if not nodes or not all(each.id for each in nodes):
        return list(nodes)
    by_id = {each.id: each for each in nodes}
    way: list[_Node] = []
    seen: set[str] = set()
    node: _Node | None = nodes[-1]
    while node is not None and node.id not in seen:
        seen.add(node.id)
        way.append(node)
        node = by_id.get(node.parent_id or "")
    return way[::-1]


def _entries(nodes: list[_Node], way: list[_Node], left_out: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    starts: dict[int, int] = {}
    for node in way:
        starts[id(node)] = len(entries)
        if node.type == "compaction" and node.summary.strip():
            entries.append(ForeignSummary(text=node.summary, kept_from=_kept(node, nodes, starts)))
        elif node.type in ("reset", "compaction"):
            kept = _kept(node, nodes, starts)
            since = len(entries) if kept is None else kept
            entries[:since] = map(_forgotten, entries[:since])
            entries[since:] = map(_without_summary, entries[since:])
        else:
            entries.extend(_said(node, left_out))
    return entries


def _forgotten(entry: Entry) -> Entry:
    """An entry that the model does not see any more."""
    match entry:
        case ForeignMessage() | ForeignAnswer() | ForeignResult():
            seen: Seen = "people" if entry.seen_by in ("both", "people") else "none"
            return msgspec.structs.replace(entry, seen_by=seen)
        case _:
            return _without_summary(entry)


def _without_summary(entry: Entry) -> Entry:
    """The entry, or nothing in the place of a summary that does not count any more."""
    return ForeignMessage(content=()) if isinstance(entry, ForeignSummary) else entry


def _kept(node: _Node, nodes: list[_Node], starts: dict[int, int]) -> int | None:
    """The entry that the model sees in full after this compaction, by its index; None if there is none."""
    first: _Node | None = None
    if node.first_kept_entry_id:
        first = next((each for each in nodes if each.id == node.first_kept_entry_id), None)
    elif node.first_kept_entry_index is not None and node.first_kept_entry_index < len(nodes):
        first = nodes[node.first_kept_entry_index]
    return starts.get(id(first)) if first is not None else None


def _said(node: _Node, left_out: list[str]) -> Iterator[Entry]:
    at_ms = when_ms(node.timestamp)
    match node.type:
        case "message" if node.message is not None:
            yield from _spoken(node.message, at_ms, left_out)
        case "custom_message":
            parts = tuple(_parts(node.content, left_out))
            seen: Seen = "both" if node.display else "model"
            yield ForeignMessage(content=parts, at_ms=at_ms, seen_by=seen)
        case "branch_summary":
            yield ForeignMessage(content=(Text(text=node.summary),), at_ms=at_ms, seen_by="model")
        case "custom":
            left_out.append(f"the state of the extension {node.custom_type!r}")
        case "label" if node.label:
            left_out.append(f"the label {node.label!r}")
        case kind if kind not in _SETTINGS and kind not in ("session_info", "label"):
            left_out.append(f"an entry of type {kind!r}")


def _spoken(message: _Message, at_ms: int, left_out: list[str]) -> Iterator[Entry]:
    at_ms = int(message.timestamp) or at_ms
    match message.role:
        case "user":
            yield ForeignMessage(content=tuple(_parts(message.content, left_out)), at_ms=at_ms)
        case "assistant":
            yield from _answer(message, at_ms, left_out)
        case "toolResult":
            parts = tuple(_parts(message.content, left_out))
            yield ForeignResult(
                call=message.tool_call_id, content=parts, failed=message.is_error, at_ms=at_ms
            )
        case "bashExecution":
            words = (Text(text=f"$ {message.command}\n{message.output}"),)
            seen: Seen = "people" if message.exclude_from_context else "both"
            yield ForeignMessage(content=words, at_ms=at_ms, seen_by=seen)
        case "custom":
            parts = tuple(_parts(message.content, left_out))
            seen = "both" if message.display else "model"
            yield ForeignMessage(content=parts, at_ms=at_ms, seen_by=seen)
        case "branchSummary":
            words = (Text(text=message.summary),)
            yield ForeignMessage(content=words, at_ms=at_ms, seen_by="model")
        case other:
            left_out.append(f"a message of the role {other!r}")


def _answer(message: _Message, at_ms: int, left_out: list[str]) -> Iterator[Entry]:
    pieces = message.content if isinstance(message.content, list) else []
    spoken = [each for each in pieces if each.type not in ("thinking", "toolCall")]
    content = spoken if pieces else message.content
    calls = tuple(
        ForeignCall(
            id=each.id, name=each.name, arguments=bytes(each.arguments).decode(errors="replace")
        )
        for each in pieces
        if each.type == "toolCall"
    )
    failed = message.stop_reason in ("error", "aborted")
    if failed and calls:
        left_out.append("calls of an answer that failed")
    yield ForeignAnswer(
        content=tuple(_parts(content, left_out)),
        thought="\n".join(each.thinking for each in pieces if each.type == "thinking"),
        calls=() if failed else calls,
        at_ms=at_ms,
        seen_by="people" if failed else "both",
        is_cut=failed,
        usage=_usage(message.usage),
        model="/".join(filter(None, (message.provider, message.model))),
    )
    if failed:
        words = message.error_message or message.stop_reason
        by: Literal["cancelled", "model_error"] = (
            "cancelled" if message.stop_reason == "aborted" else "model_error"
        )
        yield ForeignError(text=words, by=by, at_ms=at_ms)


def _usage(used: _Usage) -> Usage:
    return Usage(
        input_tokens=used.input + used.cache_read + used.cache_write,
        cached_tokens=used.cache_read,
        cache_write_tokens=used.cache_write,
        output_tokens=used.output,
        cost_micros=round(used.cost.total * 1_000_000),
    )


def _parts(content: str | list[_Piece], left_out: list[str]) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(text=content)
        return
    for piece in content:
        image = image_of(piece.mime_type, piece.data) if piece.type == "image" else None
        if piece.type == "text":
            yield Text(text=piece.text)
        elif image is not None:
            yield image
        else:
            left_out.append(f"a part of type {piece.type!r}")
