"""Parses the stream of a chat-completions server: chunks in, deltas out.

Only a finish reason makes an answer whole.

Servers take liberties with tool calls: some leave `index` out, some give every call the same index, some repeat
the name with every fragment. Calls are distinguished by index first, and by a new id where the index is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.codec import DAMAGE
from holdfast.core.turns.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Finish
from holdfast.wire.openai.chat.chunks import (
    ChunkCall,
    ChunkDelta,
    ChunkPart,
    ErrorObject,
    read_chunk,
    read_error,
    read_text_chunk,
)
from holdfast.wire.stream_parser import GarbledStream, StreamFailure, StreamParser

FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""An unknown reason counts as `stop`, unless it is one of these:"""

FAILURES = frozenset({"abort", "aborted", "cancelled", "error", "insufficient_system_resource"})
"""Finish reasons that mean a failure."""


class ChatStreamParser(StreamParser):
    """Parses one stream. See `models.model.AnswerParser`."""

    def __init__(self, *, event_bytes_max: int) -> None:
        super().__init__(event_bytes_max=event_bytes_max)
        self._slots: dict[int, int] = {}
        """The server's index of a call → ours, which counts calls in the order of their appearance."""
        self._ids: list[str] = []
        self._says_text = False
        """The event before this one was a piece of text and nothing else, so this one may be, too."""

    def demand_envelope(self, data: bytes) -> None:
        raise StreamFailure(read_error(data))

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        if self._says_text:  # nearly always, and this runs for every token
            try:
                text = read_text_chunk(data).choices[0].delta.content
            except DAMAGE:
                self._says_text = False
            else:
                if text:
                    deltas.append(TextDelta(text=text))
                return
        chunk, before = read_chunk(data), len(deltas)
        failure = chunk.failure()
        if failure is not None:
            raise StreamFailure(failure)
        for choice in chunk.choices or ():
            if choice.index:  # we ask for one choice, and ignore others
                continue
            said = choice.delta or choice.message
            if said is not None:
                self._say(said, deltas)
            if choice.finish_reason:
                deltas.append(self._finish(choice.finish_reason))
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            deltas.append(UsageDelta(usage=usage.usage()))
        self._says_text = len(deltas) == before + 1 and type(deltas[-1]) is TextDelta

    def _say(self, said: ChunkDelta, deltas: list[Delta]) -> None:
        content = said.content
        if isinstance(content, str):
            if content:
                deltas.append(TextDelta(text=content))
        elif content:
            deltas += _parts(content)
        thought = said.reasoning_content or said.reasoning  # some send both, the same
        if thought:
            deltas.append(ReasoningDelta(text=thought))
        if said.refusal:
            deltas.append(TextDelta(text=said.refusal, refusal=True))
        calls = said.tool_calls
        if calls and len(calls) > 1 and all(call.index is None for call in calls):
            calls = [msgspec.structs.replace(call, index=n) for n, call in enumerate(calls)]
        if calls:
            deltas += map(self._call, calls)
        if said.function_call is not None:
            deltas.append(self._call(ChunkCall(index=0, function=said.function_call)))

    def _call(self, call: ChunkCall) -> ToolCallDelta:
        function = call.function
        arguments = function.arguments if function else None
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        return ToolCallDelta(
            index=self._slot(call),
            call_id=call.id or "",
            name=(function.name if function else None) or "",
            arguments=arguments or "",
        )

    def _slot(self, call: ChunkCall) -> int:
        call_id = call.id or ""
        known = self._slots.get(call.index) if call.index is not None else len(self._ids) - 1
        if known is not None and known >= 0:
            other = call_id and self._ids[known] and self._ids[known] != call_id
            if not other or not (call.function and call.function.name):
                self._ids[known] = self._ids[known] or call_id
                return known
            if call_id in self._ids:
                return self._ids.index(call_id)
        self._ids.append(call_id)
        fresh = len(self._ids) - 1
        if call.index is not None:
            self._slots[call.index] = fresh
        return fresh

    def _finish(self, reason: str) -> FinishDelta:
        if reason in FAILURES:
            raise StreamFailure(ErrorObject(message=f"the model stopped: {reason}", code=reason))
        self._finished = True
        finish = FINISHES.get(reason, "stop")
        if finish == "stop" and self._ids:
            finish = "tool_calls"  # some servers send `stop` even with calls
        return FinishDelta(finish=finish)


def parse_whole(body: bytes) -> Sequence[Delta]:
    """An answer that was not streamed, as the deltas it could have been. Raises StreamFailure."""
    parser = ChatStreamParser(event_bytes_max=0)
    deltas: list[Delta] = []
    try:
        parser.parse(body, deltas)
    except DAMAGE as error:
        parser.parse_mended(body, error, deltas)
    if not parser.finished:
        raise GarbledStream("the answer has no finish_reason")
    return deltas


def _parts(content: Sequence[ChunkPart]) -> list[Delta]:
    deltas: list[Delta] = []
    for part in content:
        if part.thinking:
            text = _text(part.thinking)
            deltas += [ReasoningDelta(text=text)] if text else []
        elif part.text:
            deltas.append(TextDelta(text=part.text))
    return deltas


def _text(thinking: str | Sequence[ChunkPart]) -> str:
    if isinstance(thinking, str):
        return thinking
    return "".join(each.text or "" for each in thinking)
