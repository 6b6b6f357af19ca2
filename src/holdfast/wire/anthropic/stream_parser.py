"""Parses the stream of Anthropic's Messages: events in, deltas out.

The stop reason makes an answer whole; `message_stop` only follows it.

Blocks are numbered over the whole answer, and their numbers are the indices of our deltas, so that thoughts,
text and calls stay in the order in which they have to go back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.codec import DAMAGE
from holdfast.core.turns.deltas import (
    Delta,
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Finish, Usage
from holdfast.wire.anthropic.thoughts import ThoughtOrigin, kept_thought
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.stream_parser import GarbledStream, StreamFailure, StreamParser

FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # the model would continue if asked again, so the answer is not whole
    "refusal": "content_filter",
}
"""An unknown stop reason is newer than this code and counts as `stop`."""

# ── the stream's events ──────────────────────────────────────────────────────────────────────


class TokensDetails(Struct, frozen=True):
    thinking_tokens: int | None = None


class AnthropicUsage(Struct, frozen=True):
    """Cumulative. `input_tokens` excludes tokens read from or written to the cache."""

    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: TokensDetails | None = None


class AnthropicBlock(Struct, frozen=True):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class StopDetails(Struct, frozen=True):
    explanation: str | None = None


class AnthropicDelta(Struct, frozen=True):
    """The change of a block, or of the whole message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class AnthropicAnswer(Struct, frozen=True):
    content: list[AnthropicBlock] | None = None
    usage: AnthropicUsage | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class AnthropicEvent(Struct, frozen=True):
    type: str = ""
    index: int = 0
    delta: AnthropicDelta | None = None
    content_block: AnthropicBlock | None = None
    message: AnthropicAnswer | None = None
    usage: AnthropicUsage | None = None
    error: Any = None


_event_decoder: BodyDecoder[AnthropicEvent] = BodyDecoder(AnthropicEvent)
_answer_decoder: BodyDecoder[AnthropicAnswer] = BodyDecoder(AnthropicAnswer)

# ── the parser ───────────────────────────────────────────────────────────────────────────────


class _OpenBlock:
    """A block that has begun, with what its end needs."""

    __slots__ = ("arguments", "block", "signature")

    def __init__(self, block: AnthropicBlock) -> None:
        self.block = block
        self.signature = block.signature or ""
        self.arguments = False


class AnthropicStreamParser(StreamParser):
    """Parses one stream. See `models.model.AnswerParser`."""

    def __init__(self, *, event_bytes_max: int, origin: ThoughtOrigin | None = None) -> None:
        """`origin`: where the thoughts of this answer come from."""
        super().__init__(event_bytes_max=event_bytes_max)
        self._origin = origin
        self._open: dict[int, _OpenBlock] = {}
        self._usage = AnthropicUsage()
        self._words_at = 0
        """The index of the last text; the explanation of a refusal goes with it."""
        self._called = False

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        event = _event_decoder.decode(data)
        kind = event.type
        if kind == "content_block_delta":  # nearly always, and this runs for every token
            if event.delta is not None:
                self._grow(event.index, event.delta, deltas)
        elif kind == "content_block_start":
            if event.content_block is not None:
                self.begin(event.index, event.content_block, deltas)
        elif kind == "content_block_stop":
            self.end(event.index, deltas)
        elif kind == "message_delta":
            self._use(event.usage, deltas)
            if event.delta is not None:
                self.finish(event.delta.stop_reason, event.delta.stop_details, deltas)
        elif kind == "message_start":
            self._use(event.message.usage if event.message else None, deltas)
        elif kind == "message_stop":
            self._ended = True
        elif kind == "error":
            raise StreamFailure(_error(event.error))
        # Left: `ping`, and events that are newer than this code.

    def _grow(self, index: int, delta: AnthropicDelta, deltas: list[Delta]) -> None:
        if delta.text:
            deltas.append(TextDelta(text=delta.text, index=index))
            self._words_at = index
        elif delta.partial_json:
            deltas.append(ToolCallDelta(index=index, arguments=delta.partial_json))
            if index in self._open:
                self._open[index].arguments = True
        elif delta.thinking:
            deltas.append(ReasoningDelta(text=delta.thinking, index=index))
        elif delta.signature and index in self._open:
            self._open[index].signature = delta.signature

    def begin(self, index: int, block: AnthropicBlock, deltas: list[Delta]) -> None:
        """A block begins. Most begin empty, but some servers put content here, too."""
        self._open[index] = _OpenBlock(block)
        if block.type == "tool_use":
            self._called = True
            call = ToolCallDelta(index=index, call_id=block.id or "", name=block.name or "")
            deltas.append(call)
        elif block.type == "redacted_thinking":
            extra = kept_thought(data=block.data or "", origin=self._origin, place=index)
            deltas.append(ExtraDelta(kind="reasoning", index=index, extra=extra))
        elif block.type == "thinking" and block.thinking:
            deltas.append(ReasoningDelta(text=block.thinking, index=index))
        elif block.type == "text" and block.text:
            deltas.append(TextDelta(text=block.text, index=index))
            self._words_at = index

    def end(self, index: int, deltas: list[Delta]) -> None:
        """A block has ended: a call has all its arguments, a thought its signature."""
        ended = self._open.pop(index, None)
        if ended is None:
            return
        if ended.block.type == "tool_use" and not ended.arguments:
            arguments = bytes(ended.block.input).decode()
            deltas.append(ToolCallDelta(index=index, arguments=arguments))
        elif ended.block.type == "thinking" and ended.signature:
            extra = kept_thought(signature=ended.signature, origin=self._origin, place=index)
            deltas.append(ExtraDelta(kind="reasoning", index=index, extra=extra))

    def finish(self, reason: str | None, details: StopDetails | None, deltas: list[Delta]) -> None:
        if reason is None:
            return
        if details is not None and details.explanation:
            why = TextDelta(text=details.explanation, index=self._words_at, refusal=True)
            deltas.append(why)
        finish = FINISHES.get(reason, "stop")
        if finish == "stop" and self._called:
            finish = "tool_calls"
        self._finished = True
        deltas.append(FinishDelta(finish=finish))

    def _use(self, usage: AnthropicUsage | None, deltas: list[Delta]) -> None:
        if usage is None:
            return
        counts = {
            name: value
            for name, value in msgspec.structs.asdict(usage).items()
            if value is not None
        }
        self._usage = msgspec.structs.replace(self._usage, **counts)
        deltas.append(UsageDelta(usage=usage_of(self._usage)))


def usage_of(usage: AnthropicUsage) -> Usage:
    """Usage as we count it: the input includes cached tokens."""
    details = usage.output_tokens_details or TokensDetails()
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    return Usage(
        input_tokens=(usage.input_tokens or 0) + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=usage.output_tokens or 0,
        reasoning_tokens=details.thinking_tokens or 0,
    )


def parse_whole(body: bytes, origin: ThoughtOrigin | None = None) -> Sequence[Delta]:
    """An answer that was not streamed, as the deltas it could have been. Raises StreamFailure."""
    try:
        message = _answer_decoder.decode(body)
    except DAMAGE as error:
        raise GarbledStream(f"the answer cannot be read: {error}") from error
    parser = AnthropicStreamParser(event_bytes_max=0, origin=origin)
    deltas: list[Delta] = []
    for index, block in enumerate(message.content or ()):
        parser.begin(index, block, deltas)
        parser.end(index, deltas)
    if message.usage is not None:
        deltas.append(UsageDelta(usage=usage_of(message.usage)))
    parser.finish(message.stop_reason, message.stop_details, deltas)
    if not parser.finished:
        raise GarbledStream("the answer has no stop_reason")
    return deltas


def _error(said: Any) -> ErrorObject:
    if isinstance(said, dict):
        words, kind = said.get("message"), said.get("type")
        return ErrorObject(
            message=words if isinstance(words, str) else None,
            type=kind if isinstance(kind, str) else None,
        )
    return ErrorObject(message=said if isinstance(said, str) else None)
