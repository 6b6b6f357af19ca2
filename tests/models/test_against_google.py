"""The google-genai SDK and our client read the same server, and have to agree on what it said."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from holdfast.core.accumulate import CallDelta, ExtraDelta, FinishDelta, ReasoningDelta, TextDelta
from holdfast.core.events import Usage
from holdfast.core.items import AssistantMessage, Reasoning, ToolCall, text_of
from holdfast.models.base import ModelFailed
from holdfast.models.google import GoogleModel
from holdfast.testing import FakeUpstream, Reply, Script, refuses, says
from holdfast.wire.google import kept_signature, read_signature
from tests.models.talking import answered, heard

# The SDK's own way with aiohttp, which aiohttp dislikes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

USAGE = Usage(input_tokens=90, cached_tokens=30, output_tokens=40, reasoning_tokens=2)
SIGNATURE = b64encode(b"signed").decode()

SCRIPTS = {
    "text": says("Grüße ", "aus ", "Oslo 😀\u2028.", usage=USAGE),
    "one call": says(calls=[("look", '{"where":"Ås"}')], usage=USAGE),
    "a call without arguments": says(calls=[("look", "")]),
    "two calls after words": says("Let me see.", calls=[("look", "{}"), ("fly", '{"to":1}')]),
    "signed": Script(
        ReasoningDelta(text="Hm, "),
        ReasoningDelta(text="so."),
        TextDelta(text="Cold."),
        ExtraDelta(kind="message", extra=kept_signature(SIGNATURE)),
        CallDelta(index=0, call_id="call_1", name="look", arguments="{}"),
        ExtraDelta(kind="call", extra=kept_signature(SIGNATURE)),
        FinishDelta(finish="tool_calls"),
    ),
    "cut for length": says("And then", finish="length", usage=USAGE),
    "filtered": says("And", finish="content_filter"),
}

FINISHES = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
async def sdk(upstream: FakeUpstream) -> AsyncIterator[Any]:
    options = types.HttpOptions(base_url=upstream.url, api_version="v1beta", timeout=10_000)
    client = genai.Client(api_key="key-1", http_options=options).aio
    yield client
    await client.aclose()


def of_theirs(responses: list[Any]) -> dict[str, Any]:
    """What the SDK understood, in words that ours can be put in too."""
    parts = [
        part
        for each in responses
        for candidate in each.candidates or ()
        for part in (candidate.content and candidate.content.parts) or ()
    ]
    calls = [(each.function_call, each.thought_signature) for each in parts if each.function_call]
    words = [each for each in parts if each.text is not None]
    finish = FINISHES[responses[-1].candidates[0].finish_reason.value]
    used = responses[-1].usage_metadata
    return {
        "text": "".join(each.text for each in words if not each.thought),
        "thoughts": "".join(each.text for each in words if each.thought),
        "calls": [
            (call.id, call.name, call.args, b64encode(signature or b"").decode())
            for call, signature in calls
        ],
        "signed": [b64encode(each.thought_signature) for each in words if each.thought_signature],
        "finish": "tool_calls" if calls and finish == "stop" else finish,
        "usage": used
        and (
            used.prompt_token_count,
            used.cached_content_token_count,
            used.candidates_token_count + used.thoughts_token_count,
            used.thoughts_token_count,
        ),
    }


async def by_us(upstream: FakeUpstream) -> dict[str, Any]:
    model = GoogleModel("fake-model", base_url=upstream.url, proxy="")
    try:
        answer = answered(await heard(model))
    finally:
        await model.close()
    messages = [each for each in answer.items if isinstance(each, AssistantMessage)]
    calls = [each for each in answer.items if isinstance(each, ToolCall)]
    used = answer.usage
    return {
        "text": "".join(text_of(each.content) for each in messages),
        "thoughts": "".join(each.text for each in answer.items if isinstance(each, Reasoning)),
        "calls": [
            (each.call_id, each.name, json.loads(each.arguments), _signature(each))
            for each in calls
        ],
        "signed": [_signature(each).encode() for each in messages if each.extras],
        "finish": answer.finish,
        "usage": None
        if used == Usage()
        else (
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            used.reasoning_tokens,
        ),
    }


def _signature(item: Any) -> str:
    return read_signature(item.extras[0]) if item.extras else ""


async def by_sdk(client: Any) -> dict[str, Any]:
    stream = await client.models.generate_content_stream(model="fake-model", contents="Hi")
    return of_theirs([each async for each in stream])


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_both_hear_the_same_stream(upstream: FakeUpstream, sdk: Any, script: Script) -> None:
    for reply in (Reply(script=script), Reply(script=script, line_end=b"\r\n", write_bytes=7)):
        upstream.will(reply, reply)
        assert await by_sdk(sdk) == await by_us(upstream)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_the_sdk_hears_the_same_without_a_stream(
    upstream: FakeUpstream, sdk: Any, script: Script
) -> None:
    upstream.will(script, script)
    whole = await sdk.models.generate_content(model="fake-model", contents="Hi")
    assert of_theirs([whole]) == await by_us(upstream)


@pytest.mark.parametrize(
    ("status", "kind", "theirs_is"),
    [
        (400, "invalid_argument", errors.ClientError),
        (401, "unauthenticated", errors.ClientError),
        (403, "permission_denied", errors.ClientError),
        (404, "not_found", errors.ClientError),
        (429, "resource_exhausted", errors.ClientError),
        (500, "internal", errors.ServerError),
        (503, "unavailable", errors.ServerError),
    ],
)
async def test_both_agree_on_errors(
    upstream: FakeUpstream, sdk: Any, status: int, kind: str, theirs_is: type[errors.APIError]
) -> None:
    upstream.will(refuses(status, code=13), refuses(status, code=13))
    with pytest.raises(theirs_is) as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed) as ours:
        await by_us(upstream)
    assert theirs.value.code == ours.value.status == status
    assert (theirs.value.status or "").lower() == ours.value.reason == kind
    assert theirs.value.message == "scripted to refuse"
    assert "scripted to refuse" in str(ours.value)
    assert ours.value.transient == (status in (429, 500, 503))
    assert ours.value.retry_after_s == 13, "it says so in its body, and not in a header"


async def test_both_agree_on_an_error_in_the_stream(upstream: FakeUpstream, sdk: Any) -> None:
    script = says("a", "b").failing(ModelFailed("Overloaded.", status=503), at=1)
    upstream.will(script, script)
    with pytest.raises(errors.APIError, match="Overloaded") as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await by_us(upstream)
    assert theirs.value.code == ours.value.status == 503
    assert ours.value.transient


async def test_both_ask_at_the_same_place(upstream: FakeUpstream, sdk: Any) -> None:
    upstream.will("Hi", "Hi")
    model = GoogleModel(
        "fake-model", base_url=upstream.url, token_key="KEY", environ={"KEY": "key-1"}, proxy=""
    )
    await heard(model)
    await model.close()
    await by_sdk(sdk)
    ours, theirs = upstream.requests
    assert ours.path == theirs.path
    for name in ("x-goog-api-key", "content-type"):
        assert ours.headers[name] == theirs.headers[name]
    assert ours.json["contents"][0]["role"] == theirs.json["contents"][0]["role"] == "user"
