"""A provider that reports no usage: its turns are counted and paid for all the same, and the answer says so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from holdfast.agents.agent import Agent, ModelConfig
from holdfast.core.items import EndedBy, TurnLimits
from holdfast.core.turns.deltas import UsageDelta
from holdfast.core.turns.estimates import tokens_in
from holdfast.core.turns.events import Usage
from holdfast.models.price import Price
from holdfast.models.usage import MeteredModel
from holdfast.server.agents.model_factory import ServerModels
from holdfast.testing import FakeUpstream, Gate, Script, ScriptedModel, fails, says
from tests.models.conversations import prompt
from tests.server.stubs import HeldTool, Serving, agent, serving

WORDS = "Twelve bytes"
PRICE = Price(input=Decimal(1), output=Decimal(1000))


@asynccontextmanager
async def silent(*replies: Any) -> AsyncIterator[Serving]:
    """A server whose model is behind an upstream that reports what its replies report."""
    async with FakeUpstream(*replies) as upstream:
        models = ServerModels({})
        config = ModelConfig(provider="p", model="m", base_url=upstream.base_url, price=PRICE)
        async with serving(agent(models(config))) as server:
            yield server
        await models.close()


def about_usage(answer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The usage of an answer, and what its `holdfast` says."""
    found = [each for each in answer if each.get("usage")]
    about = [each["holdfast"] for each in answer if "holdfast" in each]
    return found[-1]["usage"], about[-1]


async def asked(server: Serving, api: str, *, stream: bool) -> list[Any]:
    """The objects of an answer: one, or the events of its stream."""
    if api == "responses":
        answer = await server.respond("Hi", stream=stream)
        if not stream:
            return [answer.json]
        return [each["response"] for each in answer.named_events if "response" in each]
    options: dict[str, Any] = {}
    if stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
    answer = await server.chat("Hi", **options)
    return [each for each in answer.events if each != "[DONE]"] if stream else [answer.json]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("reports", [False, True], ids=["silent", "telling"])
async def test_usage_that_is_not_reported_is_estimated_and_marked(
    api: str, reports: bool, stream: bool
) -> None:
    used = Usage(input_tokens=7, output_tokens=2) if reports else None
    async with silent(says(WORDS, usage=used)) as server:
        usage, about = about_usage(await asked(server, api, stream=stream))
        metrics = (await server.get("/metrics")).body.decode()
    read, wrote = ("prompt_tokens", "completion_tokens")
    if api == "responses":
        read, wrote = ("input_tokens", "output_tokens")
    if reports:
        assert (usage[read], usage[wrote]) == (7, 2) and "estimated_tokens" not in about
    else:
        assert usage[read] > 0 and usage[wrote] == tokens_in(len(WORDS)) == 3
        assert about["estimated_tokens"] == usage["total_tokens"] == usage[read] + usage[wrote]
    estimated = 0 if reports else usage["total_tokens"]
    assert f'holdfast_tokens_total{{kind="estimated"}} {float(estimated)}' in metrics
    assert f'holdfast_tokens_total{{kind="output"}} {float(usage[wrote])}' in metrics


async def test_an_estimate_is_stored_and_paid_for() -> None:
    async with silent(says(WORDS), says(WORDS)) as server:
        await server.chat("Hi", to="trip")
        await server.chat("And?", to="trip")
        listed = (await server.get("/api/sessions/trip/turns")).json
    first, second = (each["usage"] for each in listed["turns"])
    for used in (first, second):
        assert used["estimated_tokens"] == used["input_tokens"] + used["output_tokens"] > 0
        assert used["cost_micros"] == used["input_tokens"] + 1000 * used["output_tokens"]
    assert listed["usage"]["estimated_tokens"] == sum(
        each["estimated_tokens"] for each in (first, second)
    )


async def test_a_limit_on_cost_holds_although_a_provider_reports_nothing() -> None:
    """Two steps of calls would go on for ever: the estimate of the second is over the limit."""
    script = says(calls=[("act", '{"words":"a call of forty bytes and more"}')])
    model = MeteredModel(ScriptedModel(otherwise=lambda _: script), PRICE)
    dear = Agent(
        "root",
        model,
        toolsets=agent(model, HeldTool(held=False)).toolsets,
        limits=TurnLimits(cost_micros_max=15_000),
    )
    async with serving(dear) as server:
        await server.chat("Go", to="trip")
        (turn,) = await server.turns("trip")
    assert (turn["ended_by"], turn["detail"]) == ("limit", "cost")
    assert 15_000 <= turn["usage"]["cost_micros"] < 45_000


BEFORE = "Twelve bytes"
ENDS: dict[EndedBy, str] = {
    "cancelled": "cancel",
    "disconnected": "disconnect",
    "deadline": "deadline",
    "model_error": "error",
    "tool_error": "error",
    "limit": "limit",
    "crash": "crash",
    "shutdown": "crash",
}
"""The ways in which a turn may end in the middle of an answer, and their policies."""


@pytest.mark.parametrize("fate", ["keep", "discard"])
@pytest.mark.parametrize("by", ENDS)
async def test_an_answer_that_breaks_off_is_estimated_however_its_turn_ends(
    by: EndedBy, fate: str
) -> None:
    gate = Gate()
    model = MeteredModel(ScriptedModel(says(BEFORE, "more").waiting(gate, at=1)), PRICE)
    async with serving(agent(model)) as server:
        policy = {"X-Turn-Policy": f"{ENDS[by]}={fate}"}
        asked = asyncio.create_task(server.chat("Hi", to="trip", headers=policy, stream=True))
        await gate.reached.wait()
        (live,) = server.sessions._owner.playing
        live.interrupt(by)
        await asked
        (turn,) = await server.turns("trip")
        metrics = (await server.get("/metrics")).body.decode()
    used = turn["usage"]
    assert (turn["state"], turn["ended_by"]) == (f"{STATES[fate]}", by)
    assert used["input_tokens"] > 0 and used["output_tokens"] == tokens_in(len(BEFORE))
    assert used["estimated_tokens"] == used["input_tokens"] + used["output_tokens"]
    assert used["cost_micros"] == used["input_tokens"] + 1000 * used["output_tokens"]
    assert f'holdfast_tokens_total{{kind="output"}} {used["output_tokens"]:.1f}' in metrics
    assert re.search(
        rf'holdfast_model_tokens_total{{.*kind="output".*}} {used["output_tokens"]}.0', metrics
    )


STATES = {"keep": "committed", "discard": "discarded"}


async def test_a_report_counts_and_only_what_came_after_it_is_estimated() -> None:
    """Some providers report the prompt at the beginning, and the answer at its end."""
    gate = Gate()
    report = UsageDelta(usage=Usage(input_tokens=7, cached_tokens=3, output_tokens=1))
    script = Script(report, *says(BEFORE).steps).waiting(gate, at=2)
    async with serving(agent(MeteredModel(ScriptedModel(script), PRICE))) as server:
        asked = asyncio.create_task(server.chat("Hi", to="trip", stream=True))
        await gate.reached.wait()
        (live,) = server.sessions._owner.playing
        live.interrupt("disconnected")
        await asked
        (turn,) = await server.turns("trip")
    used = turn["usage"]
    assert (used["input_tokens"], used["cached_tokens"], used["output_tokens"]) == (7, 3, 3)
    assert (used["estimated_tokens"], used["cost_micros"]) == (2, 7 + 3000)


async def test_a_model_that_fails_before_it_answers_has_used_nothing() -> None:
    model = MeteredModel(ScriptedModel(fails("it said no", status=401, transient=False)), PRICE)
    async with serving(agent(model)) as server:
        await server.chat("Hi", to="trip")
        (turn,) = await server.turns("trip")
    assert (turn["ended_by"], turn["usage"]["input_tokens"]) == ("model_error", 0)


def test_a_prompt_with_a_picture_is_not_measured_by_the_bytes_of_the_picture() -> None:
    asked = msgspec.structs.replace(prompt(), messages=(b"x" * 1_000_000,), text_bytes=400)
    assert asked.size_bytes == 400
