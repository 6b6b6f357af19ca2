"""The anthropic SDK and our client read the same server, and have to agree on what it said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from holdfast.core.accumulate import ExtraDelta, ReasoningDelta
from holdfast.core.events import Usage
from holdfast.core.items import AssistantMessage, Reasoning, ToolCall, text_of
from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import ModelFailed
from holdfast.testing import FakeUpstream, Reply, Script, refuses, says
from holdfast.wire.anthropic import kept_thought, read_thought
from tests.models.talking import answered, heard

HELLO: Any = [{"role": "user", "content": "Hi"}]
USAGE = Usage(
    input_tokens=90, cached_tokens=30, cache_write_tokens=20, output_tokens=40, reasoning_tokens=2
)

SCRIPTS = {
    "text": says("Grüße ", "aus ", "Oslo 😀\u2028.", usage=USAGE),
    "one call": says(calls=[("look", '{"where":"Ås"}')], usage=USAGE),
    "a call without arguments": says(calls=[("look", "")]),
    "two calls after words": says("Let me see.", calls=[("look", "{}"), ("fly", '{"to":1}')]),
    "thinking": Script(
        ReasoningDelta(text="Hm, "),
        ReasoningDelta(text="so."),
        ExtraDelta(kind="reasoning", extra=kept_thought(signature="sig==")),
        ExtraDelta(kind="reasoning", index=1, extra=kept_thought(data="c2VjcmV0")),
        *says("Cold.", usage=USAGE).steps,
    ),
    "thinking that is not shown": Script(
        ExtraDelta(kind="reasoning", extra=kept_thought(signature="sig==")), *says("Cold.").steps
    ),
    "refusal": says("Well, ", refuses=["I ", "cannot."], finish="content_filter", usage=USAGE),
    "cut for length": says("And then", finish="length", usage=USAGE),
}

STOPS = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
async def sdk(upstream: FakeUpstream) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=upstream.url, api_key="sk-ant-1", max_retries=0, timeout=10
    ) as client:
        yield client


def of_theirs(message: Any) -> dict[str, Any]:
    """What the SDK understood, in words that ours can be put in too."""
    blocks = message.content
    used = message.usage
    return {
        "text": "".join(each.text for each in blocks if each.type == "text"),
        "refusal": (message.stop_details.explanation if message.stop_details else None) or "",
        "calls": [(each.id, each.name, each.input) for each in blocks if each.type == "tool_use"],
        "thoughts": [
            (each.type, getattr(each, "thinking", ""), _proof(each))
            for each in blocks
            if each.type in ("thinking", "redacted_thinking")
        ],
        "finish": STOPS[message.stop_reason],
        "input": used.input_tokens
        + used.cache_read_input_tokens
        + used.cache_creation_input_tokens,
        "cached": (used.cache_read_input_tokens, used.cache_creation_input_tokens),
        "output": (used.output_tokens, used.output_tokens_details.thinking_tokens),
    }


def _proof(block: Any) -> str:
    proof: str = block.signature if block.type == "thinking" else block.data
    return proof


async def by_us(upstream: FakeUpstream) -> dict[str, Any]:
    model = AnthropicModel("fake-model", base_url=upstream.url, proxy="")
    try:
        answer = answered(await heard(model))
    finally:
        await model.close()
    messages = [each for each in answer.items if isinstance(each, AssistantMessage)]
    calls = [each for each in answer.items if isinstance(each, ToolCall)]
    thoughts = [
        (kept.type, item.text, kept.signature or kept.data)
        for item in answer.items
        if isinstance(item, Reasoning)
        for kept in map(read_thought, item.extras)
    ]
    parts = [part for each in messages for part in each.content]
    used = answer.usage
    return {
        "text": text_of(tuple(part for part in parts if type(part).__name__ == "Text")),
        "refusal": text_of(tuple(part for part in parts if type(part).__name__ == "Refusal")),
        "calls": [(each.call_id, each.name, json.loads(each.arguments)) for each in calls],
        "thoughts": thoughts,
        "finish": answer.finish,
        "input": used.input_tokens,
        "cached": (used.cached_tokens, used.cache_write_tokens),
        "output": (used.output_tokens, used.reasoning_tokens),
    }


async def by_sdk(client: anthropic.AsyncAnthropic) -> dict[str, Any]:
    async with client.messages.stream(model="fake-model", messages=HELLO, max_tokens=100) as stream:
        return of_theirs(await stream.get_final_message())


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_both_hear_the_same_stream(
    upstream: FakeUpstream, sdk: anthropic.AsyncAnthropic, script: Script
) -> None:
    for reply in (Reply(script=script), Reply(script=script, line_end=b"\r\n", write_bytes=7)):
        upstream.will(reply, reply)
        assert await by_sdk(sdk) == await by_us(upstream)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_the_sdk_hears_the_same_without_a_stream(
    upstream: FakeUpstream, sdk: anthropic.AsyncAnthropic, script: Script
) -> None:
    upstream.will(script, script)
    whole = await sdk.messages.create(model="fake-model", messages=HELLO, max_tokens=100)
    assert of_theirs(whole) == await by_us(upstream)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refuses(400, kind="invalid_request_error"), anthropic.BadRequestError),
        (refuses(401, kind="authentication_error"), anthropic.AuthenticationError),
        (refuses(403, kind="permission_error"), anthropic.PermissionDeniedError),
        (refuses(404, kind="not_found_error"), anthropic.NotFoundError),
        (refuses(413, kind="request_too_large"), anthropic.APIStatusError),
        (
            refuses(429, kind="rate_limit_error", headers={"retry-after": "7"}),
            anthropic.RateLimitError,
        ),
        (refuses(500, kind="api_error"), anthropic.InternalServerError),
        (refuses(529, kind="overloaded_error"), anthropic.APIStatusError),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else "",
)
async def test_both_agree_on_errors(
    upstream: FakeUpstream,
    sdk: anthropic.AsyncAnthropic,
    reply: Reply,
    kind: type[anthropic.APIStatusError],
) -> None:
    upstream.will(reply, reply)
    with pytest.raises(kind) as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed) as ours:
        await by_us(upstream)
    assert theirs.value.status_code == ours.value.status == reply.status
    body: Any = theirs.value.body
    assert body["error"]["type"] == ours.value.reason
    assert "scripted to refuse" in str(theirs.value)
    assert "scripted to refuse" in str(ours.value)
    assert ours.value.transient == (reply.status in (429, 500, 529))
    assert ours.value.retry_after_s == (7 if reply.status == 429 else None)


async def test_both_agree_on_an_error_in_the_stream(
    upstream: FakeUpstream, sdk: anthropic.AsyncAnthropic
) -> None:
    script = says("a", "b").failing(ModelFailed("Overloaded.", reason="overloaded_error"), at=1)
    upstream.will(script, script)
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await by_us(upstream)
    body: Any = theirs.value.body
    assert body["error"]["type"] == ours.value.reason == "overloaded_error"
    assert ours.value.transient


async def test_both_ask_at_the_same_place(upstream: FakeUpstream) -> None:
    """Their SDK has moved on to a newer version and a bearer token. We stay with what every server that
    speaks like theirs takes, and what their reference goes on to promise.
    """
    upstream.will("Hi", "Hi")
    model = AnthropicModel(
        "fake-model",
        base_url=upstream.url,
        token_key="KEY",
        environ={"KEY": "sk-ant-1"},
        proxy="",
    )
    await heard(model)
    await model.close()
    async with anthropic.AsyncAnthropic(base_url=upstream.url, api_key="sk-ant-1") as client:
        await by_sdk(client)
    ours, theirs = upstream.requests
    assert ours.path == theirs.path
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert ours.headers["x-api-key"] == "sk-ant-1"
    assert ours.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in ours.headers
