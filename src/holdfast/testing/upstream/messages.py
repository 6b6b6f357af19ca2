"""Anthropic's Messages API, as a fake upstream writes it.

After the reference pages "Create a Message", "Streaming messages", "Errors" and "Extended thinking" of
platform.claude.com for `anthropic-version: 2023-06-01`. The `anthropic` SDK 2.8, which asks for 2026-10-21, reads
the same events.

A block begins, grows and ends before the next one begins. Signatures and redacted thoughts are
`ExtraDelta`s in a script, made by `wire.anthropic.thoughts.kept_thought`. A refusal's text comes as the explanation of
the stop reason: the API has no other place for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core.turns.deltas import (
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Finish, Usage
from holdfast.models.model import ModelFailed
from holdfast.testing.scripted_model import Gate, Script, Step
from holdfast.testing.upstream.replies import Reply, UpstreamRequest, usage_in
from holdfast.wire.anthropic.thoughts import read_thought
from holdfast.wire.openai.chat.chunks import ErrorObject, encode_json
from holdfast.wire.sse import event_frame

STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

PING = event_frame("ping", b'{"type":"ping"}')


def streamed(reply: Reply, request: UpstreamRequest, number: int) -> Iterator[bytes | Gate]:
    """The body of a streamed answer, event by event, with the gates of its script."""
    writer = _Writer()
    used = (usage_in(reply.script) if reply.usage else None) or Usage()
    if reply.opening:
        started = _message(request, number, used=msgspec.structs.replace(used, output_tokens=1))
        yield _event("message_start", message=started)
        yield PING
    for step in reply.script.steps:
        if isinstance(step, Gate):
            yield step
        elif isinstance(step, ModelFailed):
            error = {"type": step.reason or "api_error", "message": step.detail}
            yield _event("error", error=error)
            return
        elif isinstance(step, FinishDelta):
            yield writer.ended() + _finished(step.finish, writer.explanation, used)
        elif not isinstance(step, UsageDelta):
            yield writer.frames(step)
    if reply.done:
        yield _event("message_stop")


def whole(script: Script, request: UpstreamRequest, number: int) -> bytes:
    """The same answer as one object. Raises ModelFailed if the script fails."""
    blocks: list[dict[str, Any]] = []
    writer = _Writer()
    finish: Finish = "stop"
    for step in script.steps:
        if isinstance(step, ModelFailed):
            raise step
        if isinstance(step, FinishDelta):
            finish = step.finish
        elif not isinstance(step, UsageDelta | Gate):
            writer.frames(step)
    for block in writer.blocks:
        if block["type"] == "tool_use":
            block["input"] = msgspec.json.decode(block.pop("json") or "{}")
        blocks.append(block)
    message = _message(request, number, used=usage_in(script) or Usage())
    details = _details(writer.explanation)
    stop = STOP_REASONS["content_filter"] if details else STOP_REASONS[finish]
    return encode_json({**message, "content": blocks, "stop_reason": stop, "stop_details": details})


def error_body(status: int, error: ErrorObject) -> bytes:
    """An HTTP error in Anthropic's envelope: it has a type and no code."""
    kind = error.code if isinstance(error.code, str) else error.type
    said = {"type": kind, "message": error.message}
    return encode_json({"type": "error", "error": said, "request_id": "req_scripted"})


class _Writer:
    """Turns steps into events: opens a block for each new kind of content, and ends the block before it."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        """The blocks so far, as in a whole answer; a call's arguments are in `json`."""
        self.explanation = ""
        self._place: tuple[str, int] | None = None

    def frames(self, step: Step) -> bytes:
        match step:
            case TextDelta(text=text, refusal=True):
                self.explanation += text
                return b""
            case TextDelta(text=text, index=index):
                opening = self._at(("text", index), {"type": "text", "text": ""})
                return opening + self._grown("text", "text_delta", "text", text)
            case ReasoningDelta(text=text, index=index):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                opening = self._at(("thinking", index), block)
                return opening + self._grown("thinking", "thinking_delta", "thinking", text)
            case ExtraDelta(kind="reasoning", extra=extra, index=index):
                kept = read_thought(extra)
                if kept.type == "redacted_thinking":
                    redacted = {"type": "redacted_thinking", "data": kept.data}
                    return self.ended() + self._at(("redacted", index), redacted)
                block = {"type": "thinking", "thinking": "", "signature": ""}
                opening = self._at(("thinking", index), block)
                self.blocks[-1]["signature"] = kept.signature
                delta = {"type": "signature_delta", "signature": kept.signature}
                return opening + _event("content_block_delta", index=self._index, delta=delta)
            case ToolCallDelta(index=index, call_id=call_id, name=name, arguments=arguments):
                call = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                opening = self._at(("call", index), call)
                self.blocks[-1].setdefault("json", "")
                return opening + self._grown("json", "input_json_delta", "partial_json", arguments)
            case _:
                raise AssertionError(f"{step} has no place on this wire")

    def ended(self) -> bytes:
        """The event that ends the open block, if there is one."""
        if self._place is None:
            return b""
        self._place = None
        return _event("content_block_stop", index=self._index)

    @property
    def _index(self) -> int:
        return len(self.blocks) - 1

    def _at(self, place: tuple[str, int], block: dict[str, Any]) -> bytes:
        """The events that lead to this block; none if it is the open one."""
        if place == self._place:
            return b""
        before = self.ended()
        self._place = place
        self.blocks.append(block)
        return before + _event("content_block_start", index=self._index, content_block=block)

    def _grown(self, member: str, kind: str, name: str, text: str) -> bytes:
        self.blocks[-1][member] += text
        delta = {"type": kind, name: text}
        return _event("content_block_delta", index=self._index, delta=delta)


def _event(kind: str, **members: object) -> bytes:
    return event_frame(kind, encode_json({"type": kind, **members}))


def _message(request: UpstreamRequest, number: int, *, used: Usage) -> dict[str, object]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.json.get("model", ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {"service_tier": "standard", **_usage(used)},
    }


def _finished(finish: Finish, explanation: str, used: Usage) -> bytes:
    details = _details(explanation)
    stop = STOP_REASONS["content_filter"] if details else STOP_REASONS[finish]
    delta = {"stop_reason": stop, "stop_sequence": None, "stop_details": details}
    return _event("message_delta", delta=delta, usage=_usage(used))


def _details(explanation: str) -> dict[str, object] | None:
    if not explanation:
        return None
    return {"type": "refusal", "category": None, "explanation": explanation}


def _usage(used: Usage) -> dict[str, object]:
    """Usage as Anthropic counts: `input_tokens` excludes tokens read from or written to the cache."""
    return {
        "input_tokens": used.input_tokens - used.cached_tokens - used.cache_write_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
    }
