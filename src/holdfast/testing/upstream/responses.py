"""OpenAI's Responses API, as a fake upstream writes it.

After the reference pages "Create a model response" and "Streaming events" of developers.openai.com, as the `openai`
SDK 3 (November 2026) reads them: every event has a number, and everything that is streamed is repeated once it is
whole. Sealed reasoning is an `ExtraDelta` in a script, made by `wire.openai.responses.dialect.kept_reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, TypeAlias

import msgspec

from holdfast.core.items import Opaque
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
from holdfast.testing.upstream.replies import (
    CREATED_S,
    Reply,
    UpstreamRequest,
    error_body,
    usage_in,
)
from holdfast.wire.openai.chat.chunks import encode_json
from holdfast.wire.sse import event_frame

__all__ = ["error_body", "streamed", "whole"]

Json: TypeAlias = dict[str, Any]

INCOMPLETE: dict[Finish, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


def streamed(reply: Reply, request: UpstreamRequest, number: int) -> Iterator[bytes | Gate]:
    """The body of a streamed answer, event by event, with the gates of its script."""
    writer = _Writer(number, reply.script)
    used = usage_in(reply.script) if reply.usage else None
    begun = _response(request, number, status="in_progress")
    if reply.opening:
        yield writer.event("response.created", response=begun)
        yield writer.event("response.in_progress", response=begun)
    for step in reply.script.steps:
        if isinstance(step, Gate):
            yield step
        elif isinstance(step, ModelFailed):
            error = {"code": step.reason or "server_error", "message": step.detail}
            failed = _response(request, number, status="failed", error=error)
            yield writer.event("response.failed", response=failed)
            return
        elif isinstance(step, FinishDelta):
            ended = writer.ended()
            response = _finished(request, number, step.finish, writer.items, used)
            yield ended + writer.event(f"response.{response['status']}", response=response)
        elif not isinstance(step, UsageDelta):
            yield writer.frames(step)


def whole(script: Script, request: UpstreamRequest, number: int) -> bytes:
    """The same answer as one object. Raises ModelFailed if the script fails."""
    writer = _Writer(number, script)
    finish: Finish = "stop"
    for step in script.steps:
        if isinstance(step, ModelFailed):
            raise step
        if isinstance(step, FinishDelta):
            finish = step.finish
        elif not isinstance(step, UsageDelta | Gate):
            writer.frames(step)
    writer.ended()
    return encode_json(_finished(request, number, finish, writer.items, usage_in(script)))


class _Writer:
    """Turns steps into events: opens an item for each new kind of content, and ends the item before it."""

    def __init__(self, number: int, script: Script) -> None:
        self.items: list[Json] = []
        """The items so far, as in a whole answer."""
        self._sealed = _sealed_in(script)
        self._number = number
        self._numbers = count()
        self._place: tuple[str, int] | None = None

    def event(self, kind: str, **members: object) -> bytes:
        numbered = {"type": kind, "sequence_number": next(self._numbers), **members}
        return event_frame(kind, encode_json(numbered))

    def frames(self, step: Step) -> bytes:
        match step:
            case TextDelta(text=text, index=index, refusal=refusal):
                return self._at("message", index) + self._words(text, refusal=refusal)
            case ReasoningDelta(text=text, index=index):
                return self._at("reasoning", index) + self._thought(text)
            case ExtraDelta(kind="reasoning", extra=extra, index=index):
                opened = self._at("reasoning", index)
                self.items[-1]["encrypted_content"] = _kept(extra)["encrypted_content"]
                return opened
            case ToolCallDelta(index=index, arguments=arguments):
                opened = self._at("function_call", index, call_id=step.call_id, name=step.name)
                self.items[-1]["arguments"] += arguments
                kind = "response.function_call_arguments.delta"
                return opened + self.event(kind, **self._where, delta=arguments)
            case _:
                raise AssertionError(f"{step} has no place on this wire")

    def ended(self) -> bytes:
        """The events that end the open item, if there is one: its content is repeated, whole."""
        if self._place is None:
            return b""
        kind, self._place = self._place[0], None
        item, said = self.items[-1], b""
        if kind == "message":
            for n, part in enumerate(item["content"]):
                said += self._part_done(n, part)
        elif kind == "function_call":
            done = {"name": item["name"], "arguments": item["arguments"]}
            said += self.event("response.function_call_arguments.done", **self._where, **done)
        elif item["summary"]:
            at: Json = {**self._where, "summary_index": 0}
            part = item["summary"][0]
            said += self.event("response.reasoning_summary_text.done", **at, text=part["text"])
            said += self.event("response.reasoning_summary_part.done", **at, part=part)
        item["status"] = "completed"
        return said + self.event(
            "response.output_item.done", output_index=self._where["output_index"], item=item
        )

    @property
    def _where(self) -> Json:
        return {"output_index": len(self.items) - 1, "item_id": self.items[-1]["id"]}

    def _at(self, kind: str, index: int, **fields: str) -> bytes:
        """The events that lead to this item; none if it is the open one."""
        if self._place == (kind, index):
            return b""
        before = self.ended()
        self._place = (kind, index)
        name = f"{kind}_{self._number}_{len(self.items)}"
        if kind == "reasoning":
            name = self._sealed.get(index, name)
        item: Json = {"id": name, "type": kind, "status": "in_progress", **fields}
        if kind == "message":
            item |= {"role": "assistant", "content": []}
        elif kind == "function_call":
            item |= {"arguments": ""}
        else:
            item |= {"summary": [], "encrypted_content": None}
        self.items.append(item)
        output_index = len(self.items) - 1
        return before + self.event(
            "response.output_item.added", output_index=output_index, item=item
        )

    def _words(self, text: str, *, refusal: bool) -> bytes:
        kind, member = ("refusal", "refusal") if refusal else ("output_text", "text")
        content: list[Json] = self.items[-1]["content"]
        opened = b""
        if not content or content[-1]["type"] != kind:
            part: Json = {"type": kind, member: ""}
            if not refusal:
                part |= {"annotations": [], "logprobs": []}
            content.append(part)
            at = {**self._where, "content_index": len(content) - 1}
            opened = self.event("response.content_part.added", **at, part=part)
        content[-1][member] += text
        at = {**self._where, "content_index": len(content) - 1}
        logprobs: Json = {} if refusal else {"logprobs": []}
        return opened + self.event(f"response.{kind}.delta", **at, delta=text, **logprobs)

    def _part_done(self, n: int, part: Json) -> bytes:
        at: Json = {**self._where, "content_index": n}
        if part["type"] == "refusal":
            said = self.event("response.refusal.done", **at, refusal=part["refusal"])
        else:
            said = self.event("response.output_text.done", **at, text=part["text"], logprobs=[])
        return said + self.event("response.content_part.done", **at, part=part)

    def _thought(self, text: str) -> bytes:
        summary: list[Json] = self.items[-1]["summary"]
        at: Json = {**self._where, "summary_index": 0}
        opened = b""
        if not summary:
            summary.append({"type": "summary_text", "text": ""})
            opened = self.event("response.reasoning_summary_part.added", **at, part=summary[0])
        summary[0]["text"] += text
        return opened + self.event("response.reasoning_summary_text.delta", **at, delta=text)


def _kept(extra: Opaque) -> Json:
    return msgspec.json.decode(extra.json, type=Json)


def _sealed_in(script: Script) -> dict[int, str]:
    """The ids of sealed reasoning, by index: an item has one id from its beginning to its end."""
    extras = (step for step in script.steps if isinstance(step, ExtraDelta))
    return {step.index: _kept(step.extra)["id"] for step in extras if step.kind == "reasoning"}


def _finished(
    request: UpstreamRequest, number: int, finish: Finish, items: list[Json], used: Usage | None
) -> Json:
    why = INCOMPLETE.get(finish)
    return _response(
        request,
        number,
        status="incomplete" if why else "completed",
        incomplete_details={"reason": why} if why else None,
        output=items,
        usage=_usage(used or Usage()),
    )


def _response(request: UpstreamRequest, number: int, **fields: object) -> Json:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": CREATED_S,
        "model": request.json.get("model", ""),
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": None,
        **fields,
    }


def _usage(used: Usage) -> Json:
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }
