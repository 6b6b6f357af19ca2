"""Parses the stream of a Responses server: events in, deltas out.

The last event says how the answer ended: `response.completed`, `response.incomplete` or `response.failed`; `error` is
a failure too.

Items are numbered over the whole answer, and their numbers are the indices of our deltas.
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
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.openai.responses.dialect import kept_reasoning
from holdfast.wire.stream_parser import GarbledStream, StreamFailure, StreamParser

# ── the stream's events ──────────────────────────────────────────────────────────────────────


class InputDetails(Struct, frozen=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(Struct, frozen=True):
    reasoning_tokens: int | None = None


class UpstreamUsage(Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None

    def usage(self) -> Usage:
        inputs = self.input_tokens_details or InputDetails()
        outputs = self.output_tokens_details or OutputDetails()
        return Usage(
            input_tokens=self.input_tokens or 0,
            cached_tokens=inputs.cached_tokens or 0,
            cache_write_tokens=inputs.cache_write_tokens or 0,
            output_tokens=self.output_tokens or 0,
            reasoning_tokens=outputs.reasoning_tokens or 0,
        )


class UpstreamPart(Struct, frozen=True):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class UpstreamItem(Struct, frozen=True):
    type: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[UpstreamPart] | None = None
    summary: list[UpstreamPart] | None = None


class Incomplete(Struct, frozen=True):
    reason: str | None = None


class UpstreamResponse(Struct, frozen=True):
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: UpstreamUsage | None = None
    error: ErrorObject | None = None
    incomplete_details: Incomplete | None = None


class UpstreamEvent(Struct, frozen=True):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: Any = None
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: UpstreamResponse | None = None
    error: ErrorObject | None = None
    code: str | int | None = None
    message: str | None = None


_event_decoder: BodyDecoder[UpstreamEvent] = BodyDecoder(UpstreamEvent)
_item_decoder: BodyDecoder[UpstreamItem] = BodyDecoder(UpstreamItem)
_answer_decoder: BodyDecoder[UpstreamResponse] = BodyDecoder(UpstreamResponse)

_THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})

# ── the parser ───────────────────────────────────────────────────────────────────────────────


class ResponsesStreamParser(StreamParser):
    """Parses one stream. See `models.model.AnswerParser`."""

    def __init__(self, *, event_bytes_max: int) -> None:
        super().__init__(event_bytes_max=event_bytes_max)
        self._spoken: set[int] = set()
        """The items that have sent deltas: their content is not taken again when they are done."""
        self._called: set[int] = set()
        self._thinks_by: dict[int, str] = {}

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        event = _event_decoder.decode(data)
        kind, index = event.type, event.output_index
        if isinstance(event.delta, str):  # nearly always, and this runs for every token
            if event.delta:
                self._grow(kind, index, event.delta, deltas)
        elif kind == "response.output_item.added":
            self._begin(index, _item_decoder.decode(event.item), deltas)
        elif kind == "response.output_item.done":
            self.end(index, bytes(event.item), deltas)
        elif kind == "response.reasoning_summary_part.added":
            if event.summary_index and index in self._spoken:
                deltas.append(ReasoningDelta(text="\n\n", index=index))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            if event.response is not None:
                self.finish(event.response, kind.removeprefix("response."), deltas)
        elif kind == "error":
            flat = ErrorObject(message=event.message, code=event.code)
            raise StreamFailure(event.error or flat)
        # Other events repeat the content, or are about tools that run at the provider.

    def _grow(self, kind: str, index: int, text: str, deltas: list[Delta]) -> None:
        if kind == "response.output_text.delta":
            deltas.append(TextDelta(text=text, index=index))
        elif kind == "response.function_call_arguments.delta":
            deltas.append(ToolCallDelta(index=index, arguments=text))
        elif kind == "response.refusal.delta":
            deltas.append(TextDelta(text=text, index=index, refusal=True))
        elif kind in _THOUGHTS and self._thinks_by.setdefault(index, kind) == kind:
            # Some servers send both the reasoning and a summary of it; one of the two is enough.
            deltas.append(ReasoningDelta(text=text, index=index))
        else:
            return
        self._spoken.add(index)

    def _begin(self, index: int, item: UpstreamItem, deltas: list[Delta]) -> None:
        if item.type == "function_call":
            self._called.add(index)
            call = ToolCallDelta(index=index, call_id=item.call_id or "", name=item.name or "")
            deltas.append(call)

    def end(self, index: int, raw: bytes, deltas: list[Delta]) -> None:
        """An item is done. Content that was not streamed is added now."""
        item = _item_decoder.decode(raw)
        streamed = index in self._spoken
        if item.type == "function_call":
            if index not in self._called:
                self._begin(index, item, deltas)
            if not streamed and item.arguments:
                deltas.append(ToolCallDelta(index=index, arguments=item.arguments))
        elif item.type == "message" and not streamed:
            for part in item.content or ():
                text = part.text or part.refusal
                if text:
                    refusal = part.type == "refusal"
                    deltas.append(TextDelta(text=text, index=index, refusal=refusal))
        elif item.type == "reasoning":
            words = "\n\n".join(part.text or "" for part in item.summary or ())
            if words and not streamed:
                deltas.append(ReasoningDelta(text=words, index=index))
            extra = kept_reasoning(raw)
            if extra is not None:
                deltas.append(ExtraDelta(kind="reasoning", index=index, extra=extra))

    def finish(self, response: UpstreamResponse, how: str, deltas: list[Delta]) -> None:
        """The end of the answer. Raises StreamFailure if the answer failed."""
        if response.usage is not None:
            deltas.append(UsageDelta(usage=response.usage.usage()))
        if how == "completed":
            finish: Finish = "tool_calls" if self._called else "stop"
        elif how == "incomplete":
            why = response.incomplete_details or Incomplete()
            finish = "content_filter" if why.reason == "content_filter" else "length"
        else:
            raise StreamFailure(response.error or ErrorObject(message=f"the response is {how}"))
        self._finished = self._ended = True
        deltas.append(FinishDelta(finish=finish))


def parse_whole(body: bytes) -> Sequence[Delta]:
    """An answer that was not streamed, as the deltas it could have been. Raises StreamFailure."""
    parser = ResponsesStreamParser(event_bytes_max=0)
    deltas: list[Delta] = []
    try:
        response = _answer_decoder.decode(body)
        for index, item in enumerate(response.output or ()):
            parser.end(index, bytes(item), deltas)
    except DAMAGE as error:
        raise GarbledStream(f"the answer cannot be read: {error}") from error
    if response.status is None:
        raise GarbledStream("the answer has no status")
    parser.finish(response, response.status, deltas)
    return deltas
