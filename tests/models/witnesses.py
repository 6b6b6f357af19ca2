"""The providers' own SDKs, each as a witness to what a server has said.

Our fake upstream writes and our client reads with code from one house; an SDK says whether both speak the real language.
What a witness understood, and what we did, is told in the same words, so that the two can be compared.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import msgspec
import openai
from google import genai
from google.genai import types

from holdfast.core.items import AssistantMessage, Reasoning, Refusal, Text, ToolCall
from holdfast.core.turns.deltas import (
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from holdfast.core.turns.events import Answered, Usage
from holdfast.testing import FakeUpstream, Script, says
from holdfast.wire.anthropic.thoughts import kept_thought, read_thought
from holdfast.wire.google.dialect import kept_signature, read_signature
from tests.models.conversations import answered, heard
from tests.models.wires import TONGUES, sealed

HELLO: Any = [{"role": "user", "content": "Hi"}]
USAGE = Usage(input_tokens=90, cached_tokens=30, output_tokens=40, reasoning_tokens=2)
WRITTEN = msgspec.structs.replace(USAGE, cache_write_tokens=20)
SIGNATURE = b64encode(b"signed").decode()


def scripts_with(usage: Usage, **more: Script) -> dict[str, Script]:
    """What every wire can say, and what this one can say besides."""
    return {
        "text": says("Grüße ", "aus ", "Oslo 😀\u2028.", usage=usage),
        "one_call": says(calls=[("look", '{"where":"Ås"}')], usage=usage),
        "two_calls_after_words": says("Let me see.", calls=[("look", "{}"), ("fly", '{"to":1}')]),
        "cut_for_length": says("And then", finish="length", usage=usage),
        **more,
    }


class Witness(ABC):
    """An SDK that asks the same server as our model of this tongue."""

    tongue: str
    scripts: Mapping[str, Script]
    arguments: Callable[[str], object] = staticmethod(str)
    """How arguments of ours compare: by their text, or by what they mean where they travel as JSON."""

    @asynccontextmanager
    async def client(self, upstream: FakeUpstream) -> AsyncIterator[Any]:
        async with openai.AsyncOpenAI(
            base_url=upstream.base_url, api_key="sk-1", max_retries=0, timeout=10
        ) as client:
            yield client

    @abstractmethod
    async def streamed(self, client: Any) -> dict[str, Any]:
        """What the SDK hears in a stream."""

    @abstractmethod
    async def whole(self, client: Any) -> dict[str, Any]:
        """What the SDK hears without one."""

    def reason(self, error: Any) -> str:
        """The word for an error, as the SDK has it."""
        return str(error.code)

    def thoughts(self, answer: Answered) -> object:
        """What we keep of thoughts and their proofs."""
        return [each.text for each in answer.items if isinstance(each, Reasoning)]

    async def ours(self, upstream: FakeUpstream) -> dict[str, Any]:
        """What our model hears."""
        model = TONGUES[self.tongue].model(upstream)
        try:
            answer = answered(await heard(model))
        finally:
            await model.close()
        parts = [
            part
            for each in answer.items
            if isinstance(each, AssistantMessage)
            for part in each.content
        ]
        calls = [each for each in answer.items if isinstance(each, ToolCall)]
        used = answer.usage
        return {
            "text": "".join(part.text for part in parts if isinstance(part, Text)),
            "refusal": "".join(part.text for part in parts if isinstance(part, Refusal)),
            "calls": [(each.call_id, each.name, self.arguments(each.arguments)) for each in calls],
            "thoughts": self.thoughts(answer),
            "finish": answer.finish,
            "read": (used.input_tokens, used.cached_tokens, used.cache_write_tokens),
            "written": (used.output_tokens, used.reasoning_tokens),
        }


class OpenAIChat(Witness):
    tongue = "chat"
    scripts = scripts_with(
        USAGE,
        refusal=says(refuses=["I ", "cannot."], usage=USAGE),
        filtered=says("And", finish="content_filter"),
    )

    async def streamed(self, client: Any) -> dict[str, Any]:
        text = refusal = ""
        calls: dict[int, list[str]] = {}
        finish = usage = None
        stream = await client.chat.completions.create(
            model="fake-model", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                refusal += choice.delta.refusal or ""
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    fields = calls.setdefault(call.index, ["", "", ""])
                    fields[0] += call.id or ""
                    fields[1] += call.function.name or ""
                    fields[2] += call.function.arguments or ""
        return self._told(text, refusal, [tuple(each) for each in calls.values()], finish, usage)

    async def whole(self, client: Any) -> dict[str, Any]:
        completion = await client.chat.completions.create(model="fake-model", messages=HELLO)
        (choice,) = completion.choices
        message = choice.message
        calls = [
            (each.id, each.function.name, each.function.arguments)
            for each in message.tool_calls or ()
        ]
        return self._told(
            message.content or "",
            message.refusal or "",
            calls,
            choice.finish_reason,
            completion.usage,
        )

    def _told(
        self, text: str, refusal: str, calls: list[Any], finish: str | None, used: Any
    ) -> dict[str, Any]:
        assert used is None or used.total_tokens == used.prompt_tokens + used.completion_tokens
        return {
            "text": text,
            "refusal": refusal,
            "calls": calls,
            "thoughts": [],
            "finish": finish,
            "read": (used.prompt_tokens, used.prompt_tokens_details.cached_tokens, 0)
            if used
            else (0, 0, 0),
            "written": (
                used.completion_tokens,
                used.completion_tokens_details.reasoning_tokens,
            )
            if used
            else (0, 0),
        }


class OpenAIResponses(Witness):
    tongue = "responses"
    scripts = scripts_with(
        WRITTEN,
        refusal=says(refuses=["I ", "cannot."], usage=WRITTEN),
        words_and_a_refusal=says("Well, ", refuses=["no."]),
        reasoning=Script(
            ReasoningDelta(text="Hm, "),
            ReasoningDelta(text="so."),
            ExtraDelta(kind="reasoning", extra=sealed("rs_1", "Hm, so.")),
            *says("Cold.", calls=[("look", "{}")], usage=WRITTEN).steps,
        ),
        reasoning_that_is_not_shown=Script(
            ExtraDelta(kind="reasoning", extra=sealed("rs_1", "")), *says("Cold.").steps
        ),
        filtered=says("And", finish="content_filter"),
    )

    async def streamed(self, client: Any) -> dict[str, Any]:
        """By its helper, which checks that every event fits the ones before it."""
        async with client.responses.stream(model="fake-model", input="Hi") as stream:
            last: Any = [event async for event in stream][-1]
        return self._told(last.response)

    async def whole(self, client: Any) -> dict[str, Any]:
        return self._told(await client.responses.create(model="fake-model", input="Hi"))

    def _told(self, response: Any) -> dict[str, Any]:
        messages = [item for item in response.output if item.type == "message"]
        calls = [item for item in response.output if item.type == "function_call"]
        why = response.incomplete_details and response.incomplete_details.reason
        used = response.usage
        details = used.input_tokens_details
        return {
            "text": response.output_text,
            "refusal": "".join(
                part.refusal for item in messages for part in item.content if part.type == "refusal"
            ),
            "calls": [(item.call_id, item.name, item.arguments) for item in calls],
            "thoughts": [
                ("".join(part.text for part in item.summary), item.encrypted_content)
                for item in response.output
                if item.type == "reasoning"
            ],
            "finish": {"max_output_tokens": "length", "content_filter": "content_filter"}[why]
            if why
            else ("tool_calls" if calls else "stop"),
            "read": (used.input_tokens, details.cached_tokens, details.cache_write_tokens),
            "written": (used.output_tokens, used.output_tokens_details.reasoning_tokens),
        }

    def thoughts(self, answer: Answered) -> object:
        return [
            (each.text, msgspec.json.decode(each.extras[0].json)["encrypted_content"])
            for each in answer.items
            if isinstance(each, Reasoning)
        ]


class Anthropic(Witness):
    tongue = "anthropic"
    arguments = staticmethod(json.loads)
    scripts = scripts_with(
        WRITTEN,
        a_call_without_arguments=says(calls=[("look", "")]),
        thinking=Script(
            ReasoningDelta(text="Hm, "),
            ReasoningDelta(text="so."),
            ExtraDelta(kind="reasoning", extra=kept_thought(signature="sig==")),
            ExtraDelta(kind="reasoning", index=1, extra=kept_thought(data="c2VjcmV0")),
            *says("Cold.", usage=WRITTEN).steps,
        ),
        thinking_that_is_not_shown=Script(
            ExtraDelta(kind="reasoning", extra=kept_thought(signature="sig==")),
            *says("Cold.").steps,
        ),
        refusal=says("Well, ", refuses=["I ", "cannot."], finish="content_filter", usage=WRITTEN),
    )

    @asynccontextmanager
    async def client(self, upstream: FakeUpstream) -> AsyncIterator[Any]:
        async with anthropic.AsyncAnthropic(
            base_url=upstream.url, api_key="sk-1", max_retries=0, timeout=10
        ) as client:
            yield client

    async def streamed(self, client: Any) -> dict[str, Any]:
        asking = client.messages.stream(model="fake-model", messages=HELLO, max_tokens=100)
        async with asking as stream:
            return self._told(await stream.get_final_message())

    async def whole(self, client: Any) -> dict[str, Any]:
        return self._told(
            await client.messages.create(model="fake-model", messages=HELLO, max_tokens=100)
        )

    def _told(self, message: Any) -> dict[str, Any]:
        blocks, used = message.content, message.usage
        cached = used.cache_read_input_tokens, used.cache_creation_input_tokens
        stops = {
            "end_turn": "stop",
            "tool_use": "tool_calls",
            "max_tokens": "length",
            "refusal": "content_filter",
        }
        return {
            "text": "".join(each.text for each in blocks if each.type == "text"),
            "refusal": (message.stop_details.explanation if message.stop_details else None) or "",
            "calls": [
                (each.id, each.name, each.input) for each in blocks if each.type == "tool_use"
            ],
            "thoughts": [
                (each.type, each.thinking, each.signature)
                if each.type == "thinking"
                else (each.type, "", each.data)
                for each in blocks
                if each.type in ("thinking", "redacted_thinking")
            ],
            "finish": stops[message.stop_reason],
            "read": (used.input_tokens + sum(cached), *cached),
            "written": (used.output_tokens, used.output_tokens_details.thinking_tokens),
        }

    def reason(self, error: Any) -> str:
        return str(error.body["error"]["type"])

    def thoughts(self, answer: Answered) -> object:
        return [
            (kept.type, item.text, kept.signature or kept.data)
            for item in answer.items
            if isinstance(item, Reasoning)
            for kept in map(read_thought, item.extras)
        ]


class Google(Witness):
    tongue = "google"
    arguments = staticmethod(json.loads)
    scripts = scripts_with(
        USAGE,
        a_call_without_arguments=says(calls=[("look", "")]),
        signed=Script(
            ReasoningDelta(text="Hm, "),
            ReasoningDelta(text="so."),
            TextDelta(text="Cold."),
            ExtraDelta(kind="message", extra=kept_signature(SIGNATURE)),
            ToolCallDelta(index=0, call_id="call_1", name="look", arguments="{}"),
            ExtraDelta(kind="call", extra=kept_signature(SIGNATURE)),
            FinishDelta(finish="tool_calls"),
        ),
        filtered=says("And", finish="content_filter"),
    )

    @asynccontextmanager
    async def client(self, upstream: FakeUpstream) -> AsyncIterator[Any]:
        options = types.HttpOptions(base_url=upstream.url, api_version="v1beta", timeout=10_000)
        client = genai.Client(api_key="sk-1", http_options=options).aio
        try:
            yield client
        finally:
            await client.aclose()

    async def streamed(self, client: Any) -> dict[str, Any]:
        stream = await client.models.generate_content_stream(model="fake-model", contents="Hi")
        return self._told([each async for each in stream])

    async def whole(self, client: Any) -> dict[str, Any]:
        return self._told([await client.models.generate_content(model="fake-model", contents="Hi")])

    def _told(self, responses: list[Any]) -> dict[str, Any]:
        parts = [
            part
            for each in responses
            for candidate in each.candidates or ()
            for part in (candidate.content and candidate.content.parts) or ()
        ]
        calls = [each for each in parts if each.function_call]
        words = [each for each in parts if each.text is not None]
        finishes = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}
        finish = finishes[responses[-1].candidates[0].finish_reason.value]
        used = responses[-1].usage_metadata
        proofs = [each.thought_signature for each in (*words, *calls) if each.thought_signature]
        return {
            "text": "".join(each.text for each in words if not each.thought),
            "refusal": "",
            "calls": [
                (each.function_call.id, each.function_call.name, each.function_call.args)
                for each in calls
            ],
            "thoughts": (
                "".join(each.text for each in words if each.thought),
                [b64encode(each).decode() for each in proofs],
            ),
            "finish": "tool_calls" if calls and finish == "stop" else finish,
            "read": (used.prompt_token_count, used.cached_content_token_count, 0)
            if used
            else (0, 0, 0),
            "written": (
                used.candidates_token_count + used.thoughts_token_count,
                used.thoughts_token_count,
            )
            if used
            else (0, 0),
        }

    def reason(self, error: Any) -> str:
        return str(error.status).lower()

    def thoughts(self, answer: Answered) -> object:
        extras = [
            each.extras
            for kind in (AssistantMessage, ToolCall)
            for each in answer.items
            if isinstance(each, kind)
        ]
        return (
            "".join(each.text for each in answer.items if isinstance(each, Reasoning)),
            [read_signature(each[0]) for each in extras if each],
        )


CHAT, RESPONSES, ANTHROPIC, GOOGLE = OpenAIChat(), OpenAIResponses(), Anthropic(), Google()
WITNESSES = (CHAT, RESPONSES, ANTHROPIC, GOOGLE)
