"""The events of a turn as a client sees them, parsed from the bytes of a stream.

1. `AnswerFinished` is the last event of a turn that has an answer, and only of such a turn. It is committed then.
2. An answer that fails raises ServerRefused with the server's message; one that merely stops raises `StreamCut`. So
   code cannot take a stream that ends early for success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.core.codec import Value
from holdfast.core.turns.journal import Record
from holdfast.errors import ServerRefused
from holdfast.ids import TurnId
from holdfast.wire.api import objects as api
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.headers import (
    CONVERSATION_BASE,
    CONVERSATION_CREATED,
    RETRY_AFTER_MS,
    SESSION_ID,
    SHOULD_RETRY,
    TURN_ID,
    AnswerOptions,
)
from holdfast.wire.openai.chat.answer import ChatStream
from holdfast.wire.problems import ErrorAnswer, ErrorBody
from holdfast.wire.sse import SseParser
from holdfast.wire.turn_answers import AnswerHead

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""The size of one event of a stream. A tool's arguments come in one event."""


class Event(Value, omit_defaults=False, tag_field="event"):
    """Something that happened in a turn. As JSON its name is in the field `event`."""


class AnswerBegan(Event, tag="began"):
    """The server has begun to answer. `base` is the session's version before this turn."""

    turn_id: str
    session_id: str | None = None
    base: int | None = None
    created: bool = False
    """This turn begins its conversation."""


class AnswerText(Event, tag="said"):
    """More of the answer's text. It is a preview until `AnswerFinished`."""

    text: str


class AnswerRefusal(Event, tag="declined"):
    """More of the text with which a model refuses to answer."""

    text: str


class ToolUse(Value):
    """A tool call, with its arguments as JSON."""

    id: str
    name: str
    arguments: str
    agent: str = ""


class ToolUseStarted(Event, tag="tool_started"):
    call: ToolUse


class ToolUseFinished(Event, tag="tool_finished"):
    call: ToolUse
    outcome: str


class TokenUsage(Value, omit_defaults=False):
    """The tokens that an answer took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


class AnswerFinished(Event, tag="finished"):
    """The turn is committed. `reason` says whether the answer is complete."""

    reason: Finish
    turn_id: str
    version: int | None = None
    approvals: tuple[ToolUse, ...] = ()
    """Calls that wait for a person."""
    usage: TokenUsage = TokenUsage()
    estimated_tokens: int = 0
    """How many tokens of `usage` are an estimate, because a provider has reported none."""


AnswerEvent: TypeAlias = (
    AnswerBegan | AnswerText | AnswerRefusal | ToolUseStarted | ToolUseFinished | AnswerFinished
)


class StreamCut(Exception):
    """A stream ended before its turn."""


T = TypeVar("T")


class EventReader(Generic[T]):
    """Parses a stream from pieces of any size.

    Raises ServerRefused for an error in it, and msgspec.DecodeError if it is not a Holdfast stream.
    """

    def begin(self, headers: Mapping[str, str]) -> Iterator[T]:
        """The events in the head of an answer. `headers` are by lower-case name."""
        return iter(())

    def feed(self, piece: bytes) -> Iterator[T]:
        raise NotImplementedError

    def end(self) -> object:
        """The stream has ended. Raises StreamCut if its turn has not."""


class PieceReader(EventReader[bytes]):
    """Yields the bytes as they come."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        yield piece


# ── the stream of a chat completion ──────────────────────────────────────────────────────────


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: Finish | None = None


class _Tool(ToolUse):
    outcome: str = ""

    @property
    def call(self) -> ToolUse:
        return ToolUse(id=self.id, name=self.name, arguments=self.arguments, agent=self.agent)


class _About(msgspec.Struct, frozen=True):
    turn_id: str = ""
    version: int | None = None
    approvals: tuple[ToolUse, ...] = ()
    estimated_tokens: int = 0
    tool_started: _Tool | None = None
    tool_finished: _Tool | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    usage: TokenUsage | None = None
    holdfast: _About = _About()
    error: ErrorBody | None = None


_chunks: BodyDecoder[_Chunk] = BodyDecoder(_Chunk)


class ChatReader(EventReader[AnswerEvent]):
    """A turn, from the stream of a chat completion."""

    def __init__(self, turn_id: str | None = None) -> None:
        self._sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        self._finished: AnswerFinished | None = None
        self._done = False
        self.turn_id = turn_id
        """Known as soon as the server has begun to answer."""
        self.base: int | None = None
        """The session's version before this turn, known as early; None without a session."""

    def begin(self, headers: Mapping[str, str]) -> Iterator[AnswerEvent]:
        base = headers.get(CONVERSATION_BASE.name)
        began = AnswerBegan(
            turn_id=headers.get(TURN_ID.name, ""),
            session_id=headers.get(SESSION_ID.name),
            base=None if base is None else int(base),
            created=headers.get(CONVERSATION_CREATED.name) == "true",
        )
        self.turn_id, self.base = began.turn_id, began.base
        yield began

    def feed(self, piece: bytes) -> Iterator[AnswerEvent]:
        for data, _ in self._sse.feed(piece):
            if data == b"[DONE]":
                self._done = True
                if self._finished is not None:
                    yield self._finished
            else:
                yield from self._chunk(_chunks.decode(data))

    def end(self) -> None:
        if not self._done or self._finished is None:
            raise StreamCut

    def _chunk(self, chunk: _Chunk) -> Iterator[AnswerEvent]:
        if chunk.error is not None:
            raise refusal(chunk.error, status=200, turn_id=self.turn_id or None)
        about = chunk.holdfast
        if about.tool_started is not None:
            yield ToolUseStarted(call=about.tool_started.call)
        if about.tool_finished is not None:
            tool = about.tool_finished
            yield ToolUseFinished(call=tool.call, outcome=tool.outcome)
        for choice in chunk.choices:
            if choice.delta.content:
                yield AnswerText(text=choice.delta.content)
            if choice.delta.refusal:
                yield AnswerRefusal(text=choice.delta.refusal)
            if choice.finish_reason is not None:
                self._finished = AnswerFinished(
                    reason=choice.finish_reason,
                    turn_id=about.turn_id,
                    version=about.version,
                    approvals=about.approvals,
                    estimated_tokens=about.estimated_tokens,
                )
        if chunk.usage is not None and self._finished is not None:
            # The last chunk before the end.
            self._finished = msgspec.structs.replace(self._finished, usage=chunk.usage)


def refusal(
    error: ErrorBody,
    *,
    status: int,
    turn_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ServerRefused:
    """The error to raise for an error answer. `headers` are by lower-case name."""
    said = headers or {}
    wait_ms, should = said.get(RETRY_AFTER_MS.name), said.get(SHOULD_RETRY.name)
    return ServerRefused(
        error.message,
        status=status,
        reason=error.code or "",
        param=error.param,
        turn_id=turn_id or said.get(TURN_ID.name),
        retry_after_s=int(wait_ms) / 1000 if wait_ms and wait_ms.isdigit() else None,
        should_retry=None if should is None else should == "true",
    )


# ── the events of a turn that any client began ───────────────────────────────────────────────


class RecordReader(EventReader[Record]):
    """The events of `/api/turns/{id}/events`, as the turn's journal has them."""

    def __init__(self) -> None:
        self._sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        self._turn: api.TurnObject | None = None

    def feed(self, piece: bytes) -> Iterator[Record]:
        for data, _ in self._sse.feed(piece):
            match api.read_event(data):
                case api.TurnEnded(turn=turn):
                    self._turn = turn
                case ErrorAnswer(error=error):
                    raise refusal(error, status=200)
                case record:
                    yield record

    def end(self) -> api.TurnObject:
        """The outcome of the turn. Raises StreamCut if the stream ended before it."""
        if self._turn is None:
            raise StreamCut
        return self._turn


class TurnEventReader(EventReader[AnswerEvent]):
    """The events of `/api/turns/{id}/events`, as the client that requested the turn gets them.

    It uses the server's own rules (`ChatStream`), so the text is the same for a watcher and for the requesting client.
    """

    def __init__(self, turn_id: str) -> None:
        shown = AnswerOptions(show_tools=True)
        head = AnswerHead(turn_id=TurnId(turn_id), created_s=0, model="", options=shown)
        self._stream = ChatStream(head)
        self._reader = ChatReader(turn_id)
        self._records = RecordReader()

    def feed(self, piece: bytes) -> Iterator[AnswerEvent]:
        for record in self._records.feed(piece):
            yield from self._reader.feed(self._stream.frames(record))

    def end(self) -> api.TurnObject:
        return self._records.end()

    @property
    def turn(self) -> api.TurnObject:
        """The outcome of the turn; only after its events."""
        return self._records.end()
