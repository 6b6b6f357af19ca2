"""The OpenAI SDK and our client read the same server, and have to agree on what it said.

Our fake upstream writes and our client reads with code from one house; the SDK is the witness that both speak
the real language.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from holdfast.core.events import Usage
from holdfast.core.items import AssistantMessage, Refusal, Text, ToolCall
from holdfast.models.base import ModelFailed
from holdfast.testing import FakeUpstream, Reply, Script, refuses, says
from tests.models.talking import answered, heard, model_at

HELLO: Any = [{"role": "user", "content": "Hi"}]
USAGE = Usage(input_tokens=9, cached_tokens=3, output_tokens=40, reasoning_tokens=2)

SCRIPTS = {
    "text": says("Grüße ", "aus ", "Oslo 😀\u2028.", usage=USAGE),
    "one call": says(calls=[("look", '{"where":"Ås"}')], usage=USAGE),
    "two calls after words": says("Let me see.", calls=[("look", "{}"), ("fly", '{"to":1}')]),
    "refusal": says(refuses=["I ", "cannot."], usage=USAGE),
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


class Heard:
    """What one of the two understood."""

    def __init__(self) -> None:
        self.text = self.refusal = ""
        self.calls: dict[int, list[str]] = {}
        self.finish: str | None = None
        self.usage: tuple[int, int, int, int] | None = None

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Heard {vars(self)}>"


async def by_sdk(client: openai.AsyncOpenAI) -> Heard:
    said = Heard()
    stream = await client.chat.completions.create(
        model="fake-model", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if chunk.usage is not None:
            said.usage = _sdk_usage(chunk.usage)
        for choice in chunk.choices:
            said.text += choice.delta.content or ""
            said.refusal += choice.delta.refusal or ""
            said.finish = choice.finish_reason or said.finish
            for call in choice.delta.tool_calls or ():
                fields = said.calls.setdefault(call.index, ["", "", ""])
                fields[0] += call.id or ""
                assert call.function is not None
                fields[1] += call.function.name or ""
                fields[2] += call.function.arguments or ""
    return said


def _sdk_usage(usage: Any) -> tuple[int, int, int, int]:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return (
        usage.prompt_tokens,
        usage.prompt_tokens_details.cached_tokens,
        usage.completion_tokens,
        usage.completion_tokens_details.reasoning_tokens,
    )


async def by_us(upstream: FakeUpstream) -> Heard:
    model = model_at(upstream.base_url)
    try:
        answer = answered(await heard(model))
    finally:
        await model.close()
    said = Heard()
    for item in answer.items:
        if isinstance(item, AssistantMessage):
            said.text += "".join(part.text for part in item.content if isinstance(part, Text))
            said.refusal += "".join(part.text for part in item.content if isinstance(part, Refusal))
        elif isinstance(item, ToolCall):
            said.calls[len(said.calls)] = [item.call_id, item.name, item.arguments]
    said.finish = answer.finish
    used = answer.usage
    if used != Usage():
        said.usage = (
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            used.reasoning_tokens,
        )
    return said


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_both_hear_the_same_stream(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI, script: Script
) -> None:
    for reply in (Reply(script=script), Reply(script=script, line_end=b"\r\n", write_bytes=7)):
        upstream.will(reply, reply)
        theirs, ours = await by_sdk(sdk), await by_us(upstream)
        assert theirs == ours
        assert theirs.finish is not None


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_the_sdk_hears_the_same_without_a_stream(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI, script: Script
) -> None:
    upstream.will(script, script)
    whole = await sdk.chat.completions.create(model="fake-model", messages=HELLO)
    ours = await by_us(upstream)
    message, finish = whole.choices[0].message, whole.choices[0].finish_reason
    assert (message.content or "", message.refusal or "", finish) == (
        ours.text,
        ours.refusal,
        ours.finish,
    )
    calls: Any = message.tool_calls or ()
    assert [[each.id, each.function.name, each.function.arguments] for each in calls] == [
        *ours.calls.values()
    ]
    if ours.usage:
        assert _sdk_usage(whole.usage) == ours.usage


async def test_the_helper_of_the_sdk_is_content(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI
) -> None:
    """It is the strictest of its readers: it wants a role, an object, an index and a finish reason."""
    upstream.will(SCRIPTS["two calls after words"])
    async with sdk.chat.completions.stream(model="fake-model", messages=HELLO) as stream:
        completion = await stream.get_final_completion()
    message = completion.choices[0].message
    assert message.content == "Let me see."
    assert [call.function.arguments for call in message.tool_calls or ()] == ["{}", '{"to":1}']


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refuses(400, code="context_length_exceeded"), openai.BadRequestError),
        (refuses(401, code="invalid_api_key"), openai.AuthenticationError),
        (refuses(403, code="unsupported_country"), openai.PermissionDeniedError),
        (refuses(404, code="model_not_found"), openai.NotFoundError),
        (refuses(409, code="conversation_locked"), openai.ConflictError),
        (refuses(422, code="unprocessable"), openai.UnprocessableEntityError),
        (refuses(429, code="rate_limit_exceeded"), openai.RateLimitError),
        (refuses(500, code="server_error"), openai.InternalServerError),
        (refuses(503, code="overloaded"), openai.InternalServerError),
    ],
)
async def test_both_agree_on_errors(
    upstream: FakeUpstream,
    sdk: openai.AsyncOpenAI,
    reply: Reply,
    kind: type[openai.APIStatusError],
) -> None:
    upstream.will(reply, reply)
    with pytest.raises(kind) as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed) as ours:
        await by_us(upstream)
    assert theirs.value.status_code == ours.value.status == reply.status
    assert theirs.value.code == ours.value.reason
    assert "scripted to refuse" in str(theirs.value)
    assert "scripted to refuse" in str(ours.value)


async def test_both_agree_on_an_error_in_the_stream(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI
) -> None:
    script = says("a", "b").failing(ModelFailed("Overloaded.", reason="overloaded"), at=1)
    upstream.will(script, script)
    with pytest.raises(openai.APIError, match="Overloaded") as theirs:
        await by_sdk(sdk)
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await by_us(upstream)
    assert theirs.value.code == ours.value.reason == "overloaded"


async def test_where_they_differ_ours_is_the_honest_one(
    upstream: FakeUpstream, sdk: openai.AsyncOpenAI
) -> None:
    """A stream that merely ends is a success to the SDK. A turn must not be committed on that."""
    broken = Reply(script=says("Half an ", "answer").ending(at=1), done=False)
    upstream.will(broken, broken)
    theirs = await by_sdk(sdk)
    assert (theirs.text, theirs.finish) == ("Half an ", None)
    with pytest.raises(ModelFailed, match="broke off"):
        await by_us(upstream)


async def test_the_sdk_lists_the_models(upstream: FakeUpstream, sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["fake-model"]
    assert (await sdk.models.retrieve("fake-model")).owned_by == "holdfast"
    with pytest.raises(openai.NotFoundError):
        await sdk.models.retrieve("another")
