"""How large a prompt is, as its provider counts it: asked in its own words, and no answer is waited for in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import limits
from holdfast.core.items import UserMessage, plain_text
from holdfast.core.turns.events import ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.ids import MessageId, mint
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.fallback import FallbackModel
from holdfast.models.model import Model, ModelFailed, Prompt, counter_of
from holdfast.models.price import Price
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.models.providers.google import GoogleModel
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.models.providers.openai_responses import ResponsesModel, openai_counting
from holdfast.models.retries import RetryingModel
from holdfast.models.usage import MeteredModel
from holdfast.testing.upstream import FakeUpstream

LOOK = ToolDefinition(name="look", description="Look.", parameters='{"type":"object"}')
HELLO = UserMessage(id=mint(MessageId, at_ms=0, entropy=0), content=plain_text("Hello"))

Make = Callable[[FakeUpstream], Model]


def claude(upstream: FakeUpstream) -> Model:
    return AnthropicModel("claude-sonnet-4-5", base_url=upstream.base_url)


def gemini(upstream: FakeUpstream) -> Model:
    return GoogleModel("gemini-2.5-pro", base_url=upstream.url)


def gpt(upstream: FakeUpstream) -> Model:
    return ResponsesModel("gpt-5", base_url=upstream.base_url, counts=True)


def gpt_over_chat(upstream: FakeUpstream) -> Model:
    return OpenAIModel("gpt-4o", base_url=upstream.base_url, counting=openai_counting("gpt-4o"))


async def count(model: Model, *, tools: tuple[ToolDefinition, ...] = (LOOK,)) -> int:
    counter = counter_of(model)
    assert counter is not None and counter.count_dialect is not None
    messages = counter.count_dialect.encode([HELLO])
    try:
        return await counter.count(Prompt(system="Be brief.", messages=(messages,), tools=tools))
    finally:
        await model.close()


ASKED: dict[Make, tuple[str, dict[str, Any]]] = {
    claude: (
        "/v1/messages/count_tokens",
        {
            "model": "claude-sonnet-4-5",
            "tools": [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}],
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        },
    ),
    gemini: (
        "/v1beta/models/gemini-2.5-pro:countTokens",
        {
            "generateContentRequest": {
                "model": "models/gemini-2.5-pro",
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [
                    {
                        "functionDeclarations": [
                            {
                                "name": "look",
                                "description": "Look.",
                                "parametersJsonSchema": {"type": "object"},
                            }
                        ]
                    }
                ],
                "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            }
        },
    ),
    **dict.fromkeys(
        (gpt, gpt_over_chat),
        (
            "/v1/responses/input_tokens",
            {
                "instructions": "Be brief.",
                "tools": [
                    {
                        "type": "function",
                        "name": "look",
                        "description": "Look.",
                        "parameters": {"type": "object"},
                        "strict": False,
                    }
                ],
            },
        ),
    ),
}


@pytest.mark.parametrize("make", ASKED, ids=lambda make: make.__name__)
async def test_a_provider_is_asked_in_its_own_words(make: Make) -> None:
    async with FakeUpstream(counts=42) as upstream:
        assert await count(make(upstream)) == 42
        (asked,) = upstream.others
    path, body = ASKED[make]
    assert asked.route == path
    assert {name: asked.json[name] for name in body} == body
    assert "Hello" in str(asked.json) and "stream" not in asked.json
    assert not upstream.requests, "nobody was asked for an answer"


@pytest.mark.parametrize("make", ASKED, ids=lambda make: make.__name__)
async def test_a_server_that_does_not_count_says_so(make: Make) -> None:
    async with FakeUpstream() as upstream:
        with pytest.raises(ModelFailed):
            await count(make(upstream))


@pytest.mark.parametrize("told", [-1])
async def test_a_number_that_is_none_is_no_count(told: int) -> None:
    async with FakeUpstream(counts=told) as upstream:
        with pytest.raises(ModelFailed, match="no number of tokens"):
            await count(claude(upstream))


async def test_a_prompt_that_cannot_be_made_is_a_failure() -> None:
    broken = ToolDefinition(name="look", parameters="{")
    async with FakeUpstream(counts=1) as upstream:
        with pytest.raises((ModelFailed, InvalidValue)):
            await count(claude(upstream), tools=(broken,))


async def test_nobody_waits_long_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "upstream_count_s", 0.0)
    async with FakeUpstream(counts=1) as upstream:
        with pytest.raises(ModelFailed, match="no count in 0 s"):
            await count(claude(upstream))


@pytest.mark.parametrize(
    "wrapped",
    [
        RetryingModel,
        FallbackModel,
        lambda model: MeteredModel(model, Price()),
        lambda model: FallbackModel(RetryingModel(MeteredModel(model, Price())), DemoModel()),
    ],
    ids=["retrying", "fallback", "priced", "all of them"],
)
async def test_who_is_wrapped_counts_as_well(wrapped: Callable[[Model], Model]) -> None:
    async with FakeUpstream(counts=7) as upstream:
        assert await count(wrapped(claude(upstream))) == 7
    assert counter_of(wrapped(DemoModel())) is None


def test_only_who_is_known_to_count_is_asked() -> None:
    elsewhere = "http://127.0.0.1:9/v1"
    assert counter_of(ResponsesModel("gpt-5", base_url=elsewhere)) is None
    assert counter_of(OpenAIModel("gpt-5", base_url=elsewhere)) is None
    assert counter_of(DemoModel()) is None
    own = ResponsesModel("gpt-5", environ={"OPENAI_API_KEY": "sk-1"})
    assert counter_of(own) is not None
