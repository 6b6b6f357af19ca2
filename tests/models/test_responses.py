"""OpenAI's models over Responses: what they are asked, and that the SDK hears what we hear."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest

from holdfast.core.accumulate import ExtraDelta, ReasoningDelta
from holdfast.core.events import Parameters, ToolDefinition, Usage
from holdfast.core.items import AssistantMessage, Reasoning, Refusal, Text, ToolCall
from holdfast.models.base import ModelFailed, Prompt
from holdfast.models.responses import (
    ResponsesModel,
    ResponsesStyle,
    ResponsesWire,
    request_body,
)
from holdfast.testing import FakeUpstream, Reply, Script, refuses, says
from tests.models.talking import answered, heard
from tests.models.tongues import SIGNATURE, sealed

HELLO = b'{"role":"user","content":"Hi"}'
LOOK = ToolDefinition(name="look", description="Look.", parameters='{"type":"object"}')
FLY = ToolDefinition(name="fly", strict=True)


def asked(
    model: str = "gpt-4.1",
    *,
    tools: tuple[ToolDefinition, ...] = (),
    system: str = "",
    **parameters: Any,
) -> Any:
    prompt = Prompt(
        system=system, messages=(HELLO,), tools=tools, parameters=Parameters(**parameters)
    )
    return msgspec.json.decode(request_body(prompt, ResponsesStyle(model=model)))


def test_a_plain_request_leaves_nothing_at_the_provider() -> None:
    assert asked(system="Be brief.") == {
        "model": "gpt-4.1",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("gpt-5", True),
        ("gpt-5.1-codex-mini", True),
        ("o3-pro", True),
        ("gpt-6", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("house", False),
    ],
)
def test_sealed_reasoning_is_asked_of_those_who_reason(model: str, reasons: bool) -> None:
    included = asked(model).get("include")
    assert included == (["reasoning.encrypted_content"] if reasons else None)


def test_tools_are_strict_only_if_somebody_says_so() -> None:
    look, fly = asked(tools=(LOOK, FLY))["tools"]
    assert look == {
        "type": "function",
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert fly["strict"] is True


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ('{"type":"function","function":{"name":"fly"}}', {"type": "function", "name": "fly"}),
        (
            '{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"look"}]}}',
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "look"}],
            },
        ),
    ],
)
def test_a_choice_of_tools_is_written_flat(choice: str, expected: Any) -> None:
    assert asked(tools=(LOOK, FLY), tool_choice=choice)["tool_choice"] == expected
    assert "tool_choice" not in asked(tool_choice=choice)


def test_parameters_have_the_names_that_they_have_here() -> None:
    body = asked(
        tools=(LOOK,),
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        reasoning_effort="low",
        parallel_tool_calls=False,
        stop=("\n",),
        seed=3,
        others=(("user", '"ada"'), ("verbosity", '"low"'), ("logit_bias", "{}")),
        output_schema='{"type":"json_schema","json_schema":{"name":"x","schema":{},"strict":true}}',
    )
    assert {name: body[name] for name in ("temperature", "top_p", "max_output_tokens", "user")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "user": "ada",
    }
    assert body["reasoning"] == {"effort": "low"}
    assert body["parallel_tool_calls"] is False
    assert body["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "x", "schema": {}, "strict": True},
    }
    knows = ResponsesWire(ResponsesStyle(model="m")).knows
    for name in ("stop", "seed", "logit_bias"):
        assert name not in body
        assert name not in knows
    assert asked(output_schema='{"type":"json_object"}')["text"] == {
        "format": {"type": "json_object"}
    }


# ── against the SDK ──────────────────────────────────────────────────────────────────────────

USAGE = Usage(
    input_tokens=90, cached_tokens=30, cache_write_tokens=20, output_tokens=40, reasoning_tokens=2
)

SCRIPTS = {
    "text": says("Grüße ", "aus ", "Oslo 😀\u2028.", usage=USAGE),
    "one call": says(calls=[("look", '{"where":"Ås"}')], usage=USAGE),
    "two calls after words": says("Let me see.", calls=[("look", "{}"), ("fly", '{"to":1}')]),
    "refusal": says(refuses=["I ", "cannot."], usage=USAGE),
    "words and a refusal": says("Well, ", refuses=["no."]),
    "reasoning": Script(
        ReasoningDelta(text="Hm, "),
        ReasoningDelta(text="so."),
        ExtraDelta(kind="reasoning", extra=sealed("rs_1", "Hm, so.")),
        *says("Cold.", calls=[("look", "{}")], usage=USAGE).steps,
    ),
    "reasoning that is not shown": Script(
        ExtraDelta(kind="reasoning", extra=sealed("rs_1", "")), *says("Cold.").steps
    ),
    "cut for length": says("And then", finish="length", usage=USAGE),
    "filtered": says("And", finish="content_filter"),
}


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
async def sdk(upstream: FakeUpstream) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=upstream.base_url, api_key="sk-1", max_retries=0, timeout=10
    ) as client:
        yield client


def of_theirs(response: Any) -> dict[str, Any]:
    """What the SDK understood, in words that ours can be put in too."""
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    calls = [item for item in response.output if item.type == "function_call"]
    why = response.incomplete_details and response.incomplete_details.reason
    used = response.usage
    return {
        "text": response.output_text,
        "refusal": "".join(part.refusal for part in parts if part.type == "refusal"),
        "calls": [(item.call_id, item.name, item.arguments) for item in calls],
        "reasoning": [
            ("".join(part.text for part in item.summary), item.encrypted_content)
            for item in response.output
            if item.type == "reasoning"
        ],
        "finish": {"max_output_tokens": "length", "content_filter": "content_filter"}[why]
        if why
        else ("tool_calls" if calls else "stop"),
        "usage": (
            used.input_tokens,
            used.input_tokens_details.cached_tokens,
            used.input_tokens_details.cache_write_tokens,
            used.output_tokens,
            used.output_tokens_details.reasoning_tokens,
        ),
    }


async def by_us(upstream: FakeUpstream) -> dict[str, Any]:
    model = ResponsesModel("fake-model", base_url=upstream.base_url, proxy="")
    try:
        answer = answered(await heard(model))
    finally:
        await model.close()
    parts = [
        part for each in answer.items if isinstance(each, AssistantMessage) for part in each.content
    ]
    used = answer.usage
    return {
        "text": "".join(part.text for part in parts if isinstance(part, Text)),
        "refusal": "".join(part.text for part in parts if isinstance(part, Refusal)),
        "calls": [
            (each.call_id, each.name, each.arguments)
            for each in answer.items
            if isinstance(each, ToolCall)
        ],
        "reasoning": [
            (each.text, msgspec.json.decode(each.extras[0].json)["encrypted_content"])
            for each in answer.items
            if isinstance(each, Reasoning)
        ],
        "finish": answer.finish,
        "usage": (
            used.input_tokens,
            used.cached_tokens,
            used.cache_write_tokens,
            used.output_tokens,
            used.reasoning_tokens,
        ),
    }


async def by_sdk(client: openai.AsyncOpenAI) -> dict[str, Any]:
    """By its helper, which checks that every event fits the ones before it."""
    async with client.responses.stream(model="fake-model", input="Hi") as stream:
        response: Any = None
        async for event in stream:
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                response = event.response
    return of_theirs(response)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_both_hear_the_same_stream(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI, script: Script
) -> None:
    for reply in (Reply(script=script), Reply(script=script, line_end=b"\r\n", write_bytes=7)):
        upstream.will(reply, reply)
        assert await by_sdk(sdk) == await by_us(upstream)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_the_sdk_hears_the_same_without_a_stream(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI, script: Script
) -> None:
    upstream.will(script, script)
    whole = await sdk.responses.create(model="fake-model", input="Hi")
    assert of_theirs(whole) == await by_us(upstream)


async def test_both_agree_on_errors(upstream: FakeUpstream, sdk: openai.AsyncOpenAI) -> None:
    for status, code in ((400, "context_length_exceeded"), (429, "rate_limit_exceeded")):
        upstream.will(refuses(status, code=code), refuses(status, code=code))
        with pytest.raises(openai.APIStatusError) as theirs:
            await by_sdk(sdk)
        with pytest.raises(ModelFailed) as ours:
            await by_us(upstream)
        assert theirs.value.status_code == ours.value.status == status
        assert theirs.value.code == ours.value.reason == code


async def test_a_response_that_failed_is_a_failure(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI
) -> None:
    script = says("a", "b").failing(ModelFailed("Overloaded.", reason="server_error"), at=1)
    upstream.will(script, script)
    stream = await sdk.responses.create(model="fake-model", input="Hi", stream=True)
    last: Any = [event async for event in stream][-1]
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await by_us(upstream)
    assert last.response.error.code == ours.value.reason == "server_error"
    assert ours.value.transient


def test_what_is_sealed_goes_back_sealed() -> None:
    kept = msgspec.json.decode(sealed("rs_1", "Hm.").json)
    assert kept == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": SIGNATURE,
    }
