"""goose's sessions: `sessions.db`, or the `.jsonl` files of earlier versions. A message's content is a list of parts.

Tool results are in messages of the user. Each message says whether the user and the model see it: after a compaction
older messages are hidden from the model, and a summary that only the model sees is one more message; the same holds for
pairs of calls and results that were summed up, and for commands that were expanded. goose leaves calls without a result
out of its prompts, and parts that are meant for the user alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.core.items import Part, Text, plain_text
from holdfast.core.turns.events import Usage
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignMessage,
    ForeignResult,
    Seen,
    image_of,
)
from holdfast.peers.foreign_lines import lines_of
from holdfast.peers.foreign_tables import Cell, Tables, tables_of, text, when_ms
from holdfast.wire.body_parser import BodyDecoder

PEER = "goose"


class _Request(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Wanted(msgspec.Struct):
    """`value` is the model's tool call; it is missing if there was an error."""

    status: str = ""
    value: _Request | None = None


class _Annotations(msgspec.Struct):
    audience: list[str] | None = None


class _Content(msgspec.Struct, rename="camel"):
    type: str = ""
    text: str = ""
    data: msgspec.Raw = msgspec.Raw(b'""')
    mime_type: str = ""
    annotations: _Annotations | None = None


class _Output(msgspec.Struct):
    content: list[_Content] = []
    is_error: bool | None = msgspec.field(name="isError", default=None)


class _Came(msgspec.Struct):
    status: str = ""
    value: _Output | list[_Content] | None = None
    """Older files have the bare list of parts."""
    error: str = ""


class _Piece(_Content, rename="camel"):
    """A part of a message: the fields that are imported."""

    thinking: str = ""
    id: str = ""
    tool_call: _Wanted | None = None
    tool_result: _Came | None = None


class _Visible(msgspec.Struct, rename="camel"):
    user_visible: bool = True
    agent_visible: bool = True


class _Line(msgspec.Struct):
    """A message of a `.jsonl` file."""

    role: str
    content: list[_Piece]
    created: int = 0
    metadata: _Visible = msgspec.field(default_factory=_Visible)


class _Head(msgspec.Struct, forbid_unknown_fields=False):
    """The first line of a `.jsonl` file. Messages have no description."""

    description: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    accumulated_input_tokens: int | None = None
    accumulated_output_tokens: int | None = None


_pieces: BodyDecoder[list[_Piece]] = BodyDecoder(list[_Piece])
_visible: BodyDecoder[_Visible] = BodyDecoder(_Visible)
_line: BodyDecoder[_Line] = BodyDecoder(_Line)
_head: BodyDecoder[_Head] = BodyDecoder(_Head)

_ASIDE = frozenset(
    {"systemNotification", "actionRequired", "toolConfirmationRequest", "conversationCompacted"}
)
"""Messages of the program to its user, which are not part of the conversation."""

_NO_ROWS = {"sub_agent": "a sub-agent's own session", "hidden": "a hidden session"}
"""Types of sessions that goose lists nowhere."""

_SEEN: dict[tuple[bool, bool], Seen] = {
    (True, True): "both",
    (True, False): "people",
    (False, True): "model",
    (False, False): "none",
}


def read(path: Path) -> Iterator[ForeignConversation]:
    """The sessions of a file."""
    if path.suffix == ".jsonl":
        yield _read_lines(path)
        return
    with tables_of(path, PEER) as tables:
        tables.demand("sessions", "messages")
        columns = tables.columns("sessions")
        titles = [f"cast({each} as blob)" for each in ("name", "description") if each in columns]
        others = [each if each in columns else "null" for each in ("session_type", *_TOKENS)]
        listed = ", ".join(("id", "created_at", *others, *titles))
        for row in list(tables.rows(f"select {listed} from sessions order by created_at, id")):
            session_id, created, kind, *tokens = row[: 3 + len(_TOKENS)]
            if text(kind) in _NO_ROWS:
                yield ForeignConversation(
                    id=text(session_id), entries=(), left_out=(_NO_ROWS[text(kind)],)
                )
                continue
            entries, left_out = _entries(tables, text(session_id))
            yield ForeignConversation(
                id=text(session_id),
                entries=tuple(entries),
                title=next(filter(None, map(text, row[3 + len(_TOKENS) :])), ""),
                created_ms=when_ms(created),
                left_out=tuple(left_out),
                usage=_usage(*tokens),
                drops_open_calls=True,
            )


_TOKENS = (
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "input_tokens",
    "output_tokens",
)


def _usage(*tokens: Cell) -> Usage:
    """The tokens of a session: of all its requests, else of the last one."""
    known = [each if isinstance(each, int) and each > 0 else 0 for each in tokens]
    all_in, all_out, last_in, last_out = known
    return Usage(input_tokens=all_in or last_in, output_tokens=all_out or last_out)


def _read_lines(path: Path) -> ForeignConversation:
    """The session of a `.jsonl` file: a line about it, then a message in each line."""
    lines = lines_of(path, PEER)
    entries: list[Entry] = []
    left_out: list[str] = []
    head = _Head(description="")
    for n, line in enumerate(lines):
        try:
            message = _line.decode(line)
        except msgspec.DecodeError:
            if n == 0:
                head = _head_of(line, left_out)
            else:
                left_out.append("a message that cannot be read")
            continue
        seen = _SEEN[message.metadata.user_visible, message.metadata.agent_visible]
        at_ms = message.created * 1000
        entries.extend(_said(message.role, message.content, at_ms, seen, left_out))
    return ForeignConversation(
        id=path.stem,
        entries=tuple(entries),
        title=head.description,
        created_ms=next((each.at_ms for each in entries if getattr(each, "at_ms", 0)), 0),  # type: ignore[union-attr]
        left_out=tuple(left_out),
        usage=_usage(*(getattr(head, each) for each in _TOKENS)),
        drops_open_calls=True,
    )


def _head_of(line: bytes, left_out: list[str]) -> _Head:
    try:
        return _head.decode(line)
    except msgspec.DecodeError:
        left_out.append("a first line that cannot be read")
        return _Head(description="")


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
            visible = _visible.decode(text(metadata) or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError):
            left_out.append("a message that cannot be read")
            continue
        seen = _SEEN[visible.user_visible, visible.agent_visible]
        entries.extend(_said(text(role), pieces, when_ms(at), seen, left_out))
    return entries, left_out


def _said(
    role: str, pieces: Iterable[_Piece], at_ms: int, seen: Seen, left_out: list[str]
) -> Iterator[Entry]:
    content: list[Part] = []
    thoughts: list[str] = []
    calls: list[ForeignCall] = []
    for piece in pieces:
        match piece.type:
            case "text" | "image":
                content += _shown(piece, left_out)
            case "thinking" | "reasoning":
                thoughts.append(piece.thinking or piece.text)
            case "toolRequest":
                calls += _wanted(piece, left_out)
            case "toolResponse":
                yield _came(piece, at_ms, seen, left_out)
            case kind if kind not in _ASIDE:
                left_out.append(f"a part of type {kind!r}")
    if role == "user":
        yield ForeignMessage(content=tuple(content), at_ms=at_ms, seen_by=seen)
    else:
        yield ForeignAnswer(
            content=tuple(content),
            thought="\n".join(thoughts),
            calls=tuple(calls),
            at_ms=at_ms,
            seen_by=seen,
        )


def _shown(piece: _Content, left_out: list[str]) -> Iterator[Part]:
    """The text or picture of a part, if it is meant for the model, too."""
    audience = piece.annotations.audience if piece.annotations else None
    if audience is not None and "assistant" not in audience:
        left_out.append(f"a part for the user alone: {piece.text[:80] or piece.type!r}")
    elif piece.type == "text":
        yield Text(text=piece.text)
    elif piece.type == "image":
        data = msgspec.json.decode(piece.data)
        image = image_of(piece.mime_type, data if isinstance(data, str) else "")
        if image is None:
            left_out.append("a picture that cannot be read")
        else:
            yield image
    else:
        left_out.append(f"a part of type {piece.type!r}")


def _wanted(piece: _Piece, left_out: list[str]) -> Iterator[ForeignCall]:
    request = piece.tool_call.value if piece.tool_call else None
    if request is None:
        left_out.append("a tool call that was none")
    else:
        arguments = bytes(request.arguments).decode(errors="replace")
        yield ForeignCall(id=piece.id, name=request.name, arguments=arguments)


def _came(piece: _Piece, at_ms: int, seen: Seen, left_out: list[str]) -> ForeignResult:
    result = piece.tool_result or _Came()
    if result.value is None:
        content, failed = plain_text(result.error), True
    else:
        value = result.value
        output = value if isinstance(value, _Output) else _Output(content=value)
        content = tuple(part for each in output.content for part in _shown(each, left_out))
        failed = bool(output.is_error)
    return ForeignResult(call=piece.id, content=content, failed=failed, at_ms=at_ms, seen_by=seen)
