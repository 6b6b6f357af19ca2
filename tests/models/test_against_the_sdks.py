"""Every provider's SDK and our client read the same server, and have to agree on what it said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors

from holdfast.models.model import ModelFailed
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.models.providers.google import GoogleModel
from holdfast.testing import FakeUpstream, Reply, Script, refuses, says
from tests.models.conversations import heard
from tests.models.witnesses import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    HELLO,
    RESPONSES,
    WITNESSES,
    Witness,
)

# The way of Google's SDK with aiohttp, which aiohttp dislikes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


every_script = pytest.mark.parametrize(
    ("witness", "script"),
    [
        pytest.param(witness, script, id=f"{witness.tongue}-{name}")
        for witness in WITNESSES
        for name, script in witness.scripts.items()
    ],
)


@every_script
async def test_both_hear_the_same_stream(
    upstream: FakeUpstream, witness: Witness, script: Script
) -> None:
    async with witness.client(upstream) as sdk:
        for reply in (Reply(script=script), Reply(script=script, line_end=b"\r\n", write_bytes=7)):
            upstream.will(reply, reply)
            theirs = await witness.streamed(sdk)
            assert theirs == await witness.ours(upstream)
            assert theirs["finish"] is not None


@every_script
async def test_the_sdk_hears_the_same_without_a_stream(
    upstream: FakeUpstream, witness: Witness, script: Script
) -> None:
    async with witness.client(upstream) as sdk:
        upstream.will(script, script)
        assert await witness.whole(sdk) == await witness.ours(upstream)


@pytest.mark.parametrize(
    ("witness", "reply", "kind", "transient"),
    [
        (CHAT, refuses(400, code="context_length_exceeded"), openai.BadRequestError, False),
        (CHAT, refuses(400, code="content_policy_violation"), openai.BadRequestError, False),
        (CHAT, refuses(401, code="invalid_api_key"), openai.AuthenticationError, False),
        (CHAT, refuses(403, code="unsupported_country"), openai.PermissionDeniedError, False),
        (CHAT, refuses(404, code="model_not_found"), openai.NotFoundError, False),
        (CHAT, refuses(409, code="conversation_locked"), openai.ConflictError, True),
        (CHAT, refuses(422, code="unprocessable"), openai.UnprocessableEntityError, False),
        (CHAT, refuses(429, code="rate_limit_exceeded"), openai.RateLimitError, True),
        (CHAT, refuses(429, code="insufficient_quota"), openai.RateLimitError, False),
        (CHAT, refuses(500, code="server_error"), openai.InternalServerError, True),
        (CHAT, refuses(503, code="overloaded"), openai.InternalServerError, True),
        (RESPONSES, refuses(400, code="context_length_exceeded"), openai.BadRequestError, False),
        (RESPONSES, refuses(429, code="rate_limit_exceeded"), openai.RateLimitError, True),
        (ANTHROPIC, refuses(400, kind="invalid_request_error"), anthropic.BadRequestError, False),
        (
            ANTHROPIC,
            refuses(401, kind="authentication_error"),
            anthropic.AuthenticationError,
            False,
        ),
        (ANTHROPIC, refuses(403, kind="permission_error"), anthropic.PermissionDeniedError, False),
        (ANTHROPIC, refuses(404, kind="not_found_error"), anthropic.NotFoundError, False),
        (ANTHROPIC, refuses(413, kind="request_too_large"), anthropic.APIStatusError, False),
        (ANTHROPIC, refuses(429, kind="rate_limit_error"), anthropic.RateLimitError, True),
        (ANTHROPIC, refuses(500, kind="api_error"), anthropic.InternalServerError, True),
        (ANTHROPIC, refuses(529, kind="overloaded_error"), anthropic.APIStatusError, True),
        (GOOGLE, refuses(400, kind="invalid_argument"), errors.ClientError, False),
        (GOOGLE, refuses(401, kind="unauthenticated"), errors.ClientError, False),
        (GOOGLE, refuses(403, kind="permission_denied"), errors.ClientError, False),
        (GOOGLE, refuses(404, kind="not_found"), errors.ClientError, False),
        (GOOGLE, refuses(429, kind="resource_exhausted"), errors.ClientError, True),
        (GOOGLE, refuses(500, kind="internal"), errors.ServerError, True),
        (GOOGLE, refuses(503, kind="unavailable"), errors.ServerError, True),
    ],
)
async def test_both_agree_on_errors(
    upstream: FakeUpstream, witness: Witness, reply: Reply, kind: type[Exception], transient: bool
) -> None:
    upstream.will(reply, reply)
    async with witness.client(upstream) as sdk:
        with pytest.raises(kind, match="scripted to refuse") as theirs:
            await witness.streamed(sdk)
    with pytest.raises(ModelFailed, match="scripted to refuse") as ours:
        await witness.ours(upstream)
    status = theirs.value.code if witness is GOOGLE else theirs.value.status_code  # type: ignore[attr-defined]
    assert status == ours.value.status == reply.status
    assert witness.reason(theirs.value) == ours.value.reason
    assert ours.value.transient == transient


@pytest.mark.parametrize(
    ("witness", "reply", "hint_s"),
    [
        (ANTHROPIC, refuses(429, headers={"retry-after": "7"}), 7),
        (GOOGLE, refuses(503, code=13), 13),
    ],
)
async def test_when_to_come_back_is_said_in_a_header_or_in_the_body(
    upstream: FakeUpstream, witness: Witness, reply: Reply, hint_s: int
) -> None:
    upstream.will(reply)
    with pytest.raises(ModelFailed) as ours:
        await witness.ours(upstream)
    assert ours.value.retry_after_s == hint_s


@pytest.mark.parametrize(
    ("witness", "failure", "kind"),
    [
        (CHAT, ModelFailed("Overloaded.", reason="overloaded"), openai.APIError),
        (
            ANTHROPIC,
            ModelFailed("Overloaded.", reason="overloaded_error"),
            anthropic.APIStatusError,
        ),
        (GOOGLE, ModelFailed("Overloaded.", status=503), errors.APIError),
    ],
)
async def test_both_agree_on_an_error_in_the_stream(
    upstream: FakeUpstream, witness: Witness, failure: ModelFailed, kind: type[Exception]
) -> None:
    script = says("a", "b").failing(failure, at=1)
    upstream.will(script, script)
    async with witness.client(upstream) as sdk:
        with pytest.raises(kind, match="Overloaded") as theirs:
            await witness.streamed(sdk)
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await witness.ours(upstream)
    assert witness.reason(theirs.value) == ours.value.reason
    assert (ours.value.status, ours.value.transient) == (failure.status, True)
    assert failure.reason in ("", ours.value.reason)


async def test_a_response_that_failed_is_a_failure(upstream: FakeUpstream) -> None:
    script = says("a", "b").failing(ModelFailed("Overloaded.", reason="server_error"), at=1)
    upstream.will(script, script)
    async with RESPONSES.client(upstream) as sdk:
        stream = await sdk.responses.create(model="fake-model", input="Hi", stream=True)
        last: Any = [event async for event in stream][-1]
    with pytest.raises(ModelFailed, match="Overloaded") as ours:
        await RESPONSES.ours(upstream)
    assert last.response.error.code == ours.value.reason == "server_error"
    assert ours.value.transient


# ── what one of them has of its own ──────────────────────────────────────────────────────────


async def test_the_helper_of_the_sdk_is_content(upstream: FakeUpstream) -> None:
    """It is the strictest of its readers: it wants a role, an object, an index and a finish reason."""
    upstream.will(CHAT.scripts["two_calls_after_words"])
    async with CHAT.client(upstream) as sdk:
        async with sdk.chat.completions.stream(model="fake-model", messages=HELLO) as stream:
            message = (await stream.get_final_completion()).choices[0].message
    assert message.content == "Let me see."
    assert [call.function.arguments for call in message.tool_calls] == ["{}", '{"to":1}']


async def test_where_they_differ_ours_is_the_honest_one(upstream: FakeUpstream) -> None:
    """A stream that merely ends is a success to the SDK. A turn must not be committed on that."""
    broken = Reply(script=says("Half an ", "answer").ending(at=1), done=False)
    upstream.will(broken, broken)
    async with CHAT.client(upstream) as sdk:
        theirs = await CHAT.streamed(sdk)
    assert (theirs["text"], theirs["finish"]) == ("Half an ", None)
    with pytest.raises(ModelFailed, match="broke off"):
        await CHAT.ours(upstream)


async def test_the_sdk_lists_the_models(upstream: FakeUpstream) -> None:
    async with CHAT.client(upstream) as sdk:
        assert [model.id async for model in sdk.models.list()] == ["fake-model"]
        assert (await sdk.models.retrieve("fake-model")).owned_by == "holdfast"
        with pytest.raises(openai.NotFoundError):
            await sdk.models.retrieve("another")


@pytest.mark.parametrize(
    ("witness", "model", "same"),
    [
        (ANTHROPIC, AnthropicModel, ("content-type",)),
        (GOOGLE, GoogleModel, ("content-type", "x-goog-api-key")),
    ],
)
async def test_both_ask_at_the_same_place(
    upstream: FakeUpstream, witness: Witness, model: Any, same: tuple[str, ...]
) -> None:
    """Anthropic's SDK has moved on to a newer version and a bearer token. We stay with what every server that
    speaks like theirs takes, and what their reference goes on to promise.
    """
    upstream.will("Hi", "Hi")
    made = model(
        "fake-model", base_url=upstream.url, token_key="KEY", environ={"KEY": "sk-1"}, proxy=""
    )
    await heard(made)
    await made.close()
    async with witness.client(upstream) as sdk:
        await witness.streamed(sdk)
    ours, theirs = upstream.requests
    assert ours.path == theirs.path
    for name in same:
        assert ours.headers[name] == theirs.headers[name]
    if witness is ANTHROPIC:
        assert (ours.headers["x-api-key"], ours.headers["anthropic-version"]) == (
            "sk-1",
            "2023-06-01",
        )
        assert "authorization" not in ours.headers
    else:
        assert ours.json["contents"][0]["role"] == theirs.json["contents"][0]["role"] == "user"
