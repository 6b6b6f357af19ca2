"""Conversations that change under a vendor that refuses what it documents as refused: none of them gets stuck.

A run takes a few seeds; `make torture-claims` takes more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from holdfast.models.http.connections import Connections
from holdfast.models.model import Model
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.models.providers.google import GoogleModel
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.models.providers.openai_responses import ResponsesModel
from holdfast.testing import FakeUpstream
from tests.vendors.claude import TYPES, Claude
from tests.vendors.drive import Drive
from tests.vendors.gemini import Gemini
from tests.vendors.gpt import DeepSeek, Gpt, GptChat, Moonshot
from tests.vendors.vendor import Vendor

SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 30)),
]

Make = Callable[[str, FakeUpstream, Connections], Model]


def _claude(name: str, at: FakeUpstream, shared: Connections) -> Model:
    return AnthropicModel(name, base_url=at.url, connections=shared, proxy="")


def _gemini(name: str, at: FakeUpstream, shared: Connections) -> Model:
    return GoogleModel(name, base_url=at.url, connections=shared, proxy="")


def _gpt(name: str, at: FakeUpstream, shared: Connections) -> Model:
    return ResponsesModel(name, base_url=at.base_url, connections=shared, proxy="")


def _chat(name: str, at: FakeUpstream, shared: Connections) -> Model:
    return OpenAIModel(
        name, base_url=at.base_url, reasoning_back=True, connections=shared, proxy=""
    )


KINDS: dict[type[Vendor], Make] = {
    Claude: _claude,
    Gemini: _gemini,
    Gpt: _gpt,
    GptChat: _chat,
    DeepSeek: _chat,
    Moonshot: _chat,
}


@asynccontextmanager
async def models(
    seed: int, named: Iterable[tuple[str, type[Vendor], str]]
) -> AsyncIterator[tuple[dict[str, Model], list[Vendor]]]:
    """Models by the names of agents, and the vendors that they are at."""
    connections = Connections()
    vendors: dict[type[Vendor], tuple[Vendor, FakeUpstream]] = {}
    made: dict[str, Model] = {}
    async with AsyncExitStack() as stack:
        for agent, kind, name in named:
            if kind not in vendors:
                vendor = kind(seed=seed)
                upstream = await stack.enter_async_context(FakeUpstream(otherwise=vendor))
                vendors[kind] = vendor, upstream
            made[agent] = KINDS[kind](name, vendors[kind][1], connections)
        yield made, [vendor for vendor, _ in vendors.values()]
        await connections.close()


async def drive(seed: int, *named: tuple[str, type[Vendor], str]) -> list[Vendor]:
    async with models(seed, named) as (made, vendors):
        driven = Drive(seed, made)
        await driven.run()
    assert [refusal for vendor in vendors for refusal in vendor.refused] == []
    assert driven.stuck == []
    return vendors


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(TYPES))
async def test_no_conversation_with_claude_gets_stuck(name: str, seed: int) -> None:
    other = sorted(TYPES)[seed % len(TYPES)]
    await drive(seed, ("ada", Claude, name), ("bob", Claude, other))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Gemini, ("gemini-4-argon", "gemini-3.1-pro-preview")),
        (Gemini, ("gemini-3-flash-preview", "gemini-2.5-pro")),
        (Gpt, ("gpt-6.1-sol", "gpt-5")),
        (Gpt, ("gpt-5.1", "gpt-4.1")),
        (GptChat, ("gpt-5.6-terra", "gpt-4.1")),
        (GptChat, ("gpt-5", "o3")),
        (DeepSeek, ("deepseek-v4-pro", "deepseek-v4-flash")),
        (Moonshot, ("kimi-k2.6", "kimi-k2.5")),
    ],
)
async def test_no_conversation_with_another_vendor_gets_stuck(
    kind: type[Vendor], names: tuple[str, str], seed: int
) -> None:
    await drive(seed, ("ada", kind, names[0]), ("bob", kind, names[1]))


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_conversation_that_goes_from_vendor_to_vendor_gets_stuck(seed: int) -> None:
    vendors = await drive(
        seed,
        ("ada", Claude, "claude-opus-5-5"),
        ("bob", Gemini, "gemini-4-argon"),
        ("cleo", Gpt, "gpt-6.1-sol"),
        ("dan", Moonshot, "kimi-k2.6"),
        ("eve", Claude, "claude-haiku-4-5"),
    )
    assert sum(vendor.thoughts_back for vendor in vendors) > 0


async def test_thoughts_go_back_while_a_conversation_only_grows() -> None:
    """Whoever leaves all thoughts out is never refused, and answers worse."""
    async with models(3, [("ada", Claude, "claude-opus-5-5")]) as (made, [vendor]):
        driven = Drive(3, made, quiet=True)
        await driven.run()
    assert isinstance(vendor, Claude)
    assert (vendor.refused, driven.stuck) == ([], [])
    assert vendor.thoughts_back == vendor.thoughts_expected > 100


async def test_reasoning_of_another_organization_costs_one_more_request_and_not_the_turn() -> None:
    """The key may be another one today, and nothing in a conversation says so."""
    async with models(1, [("ada", Gpt, "gpt-5")]) as (made, [vendor]):
        driven = Drive(1, made, quiet=True)
        assert isinstance(vendor, Gpt)
        told = iter(["org-1"] * 12 + ["org-2"] * 1000)
        check = vendor.check

        def checked(request: object) -> None:
            vendor.organization = next(told)
            check(request)  # type: ignore[arg-type]

        vendor.check = checked  # type: ignore[method-assign]
        await driven.run()
    assert driven.stuck == []
    assert set(vendor.refused) == {"The encrypted content could not be verified."}
