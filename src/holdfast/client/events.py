"""A turn as whoever asked for it sees it: from the bytes of a stream to values.

1. A turn that came to an answer ends with `AnswerFinished`, and nothing else does. It is committed then.
2. An answer that fails raises ServerRefused, in the server's words; one that merely stops raises `StreamCut`. So a
   stream that ends early cannot be taken for success.
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
from holdfast.wire.headers import (
    CONVERSATION_BASE,
    CONVERSATION_CREATED,
    RETRY_AFTER_MS,
    SESSION_ID,
    SHOULD_RETRY,
    TURN_ID,
)
from holdfast.wire.openai.chat.answer import AnswerHead, ChatStream
from holdfast.wire.problems import ErrorAnswer, ErrorBody
from holdfast.wire.sse import SseParser

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""Of one event of a stream. A tool's arguments are in one piece."""


class Event(Value, omit_defaults=False, tag_field="event"):
    """Something that happened in a turn. As JSON its name is in the field `event`."""


class AnswerBegan(Event, tag="began"):
    """The server has begun to answer. `base` is the version that the turn stands on."""

    turn_id: str
    session_id: str | None = None
    base: int | None = None
    created: bool = False
    """This turn begins its conversation."""


class AnswerText(Event, tag="said"):
    """More of the answer. A preview, until `AnswerFinished`."""

    text: str


class AnswerRefusal(Event, tag="declined"):
    """More of the words with which a model refuses to answer."""

    text: str


class ToolUse(Value):
    """What a tool was called with."""

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
    """The turn is committed. `reason` says whether the answer is whole."""

    reason: Finish
    turn_id: str
    version: int | None = None
    approvals: tuple[ToolUse, ...] = ()
    """Calls that wait for a person."""
    usage: TokenUsage = TokenUsage()


AnswerEvent: TypeAlias = (
    AnswerBegan | AnswerText | AnswerRefusal | ToolUseStarted | ToolUseFinished | AnswerFinished
)


class StreamCut(Exception):
    """A stream ended, and its turn had not."""


T = TypeVar("T")


class EventReader(Generic[T]):
    """Bytes in, values out, whatever the cuts. Raises ServerRefused, and msgspec.DecodeError for what is none of ours."""

    def begin(self, headers: Mapping[str, str]) -> Iterator[T]:
        """What the head of an answer says. `headers` are by lower-case name."""
        return iter(())

    def feed(self, piece: bytes) -> Iterator[T]:
        raise NotImplementedError

    def end(self) -> object:
        """The stream has ended. Raises CutOff if what it tells of has not."""


class PieceReader(EventReader[bytes]):
    """The bytes themselves."""

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
    tool_started: _Tool | None = None
    tool_finished: _Tool | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    usage: TokenUsage | None = None
    holdfast: _About = _About()
    error: ErrorBody | None = None


_chunks = msgspec.json.Decoder(_Chunk)


class ChatReader(EventReader[AnswerEvent]):
    """A turn, from the stream of a chat completion."""

    def __init__(self, turn_id: str | None = None) -> None:
        self._sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        self._finished: AnswerFinished | None = None
        self._done = False
        self.turn_id = turn_id
        """Known as soon as the server has begun to answer."""
        self.base: int | None = None
        """The version that the turn stands on; known as soon, if it is in a session."""

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
        for event in self._sse.feed(piece):
            if event.data == b"[DONE]":
                self._done = True
                if self._finished is not None:
                    yield self._finished
            else:
                yield from self._chunk(_chunks.decode(event.data))

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
                )
        if chunk.usage is not None and self._finished is not None:
            # The last thing that is said before the end.
            self._finished = msgspec.structs.replace(self._finished, usage=chunk.usage)


def refusal(
    error: ErrorBody,
    *,
    status: int,
    turn_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ServerRefused:
    """What to raise for an answer that says no. `headers` are by lower-case name."""
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


# ── the events of a turn that somebody else began ────────────────────────────────────────────


class RecordReader(EventReader[Record]):
    """The events of `/api/turns/{id}/events`, as the turn's journal has them."""

    def __init__(self) -> None:
        self._sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        self._turn: api.TurnObject | None = None

    def feed(self, piece: bytes) -> Iterator[Record]:
        for event in self._sse.feed(piece):
            match api.read_event(event.data):
                case api.TurnEnded(turn=turn):
                    self._turn = turn
                case ErrorAnswer(error=error):
                    raise refusal(error, status=200)
                case record:
                    yield record

    def end(self) -> api.TurnObject:
        """What the turn became."""
        if self._turn is None:
            raise StreamCut
        return self._turn


class TurnEventReader(EventReader[AnswerEvent]):
    """The events of `/api/turns/{id}/events`, told as if one had asked for the turn oneself.

    It tells by the server's own rules (`ChatStream`), so text is the same whichever way it is watched.
    """

    def __init__(self, turn_id: str) -> None:
        head = AnswerHead(turn_id=TurnId(turn_id), created_s=0, model="", show_tools=True)
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
        """What the turn became; only after its events."""
        return self._records.end()
