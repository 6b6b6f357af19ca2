"""After a hand-off the agent that plays counts: its policy, its limits, and what its model can be asked for."""

from __future__ import annotations

import pytest

from holdfast.agents.agent import Agent
from holdfast.core.history.conversation import SettingsChanged
from holdfast.core.items import SessionSettings, TurnLimits
from holdfast.core.policy import Policy
from holdfast.ids import LOCAL, SessionId
from holdfast.models.model import ModelFailed
from holdfast.testing import Script, ScriptedModel, says
from tests.server.stubs import HeldTool, Serving, agent, serving

NOTHING: frozenset[str] = frozenset()


def butler(*more: str, knows: frozenset[str] = NOTHING) -> Agent:
    scripts: tuple[Script | str, ...] = (says(calls=[("handoff", '{"agent":"cook"}')]), *more)
    made = agent(ScriptedModel(*scripts, knows=knows), name="butler")
    made.handoffs = ("cook",)
    return made


async def handed_over(server: Serving) -> None:
    answer = await server.chat("To the kitchen", to="trip", model="butler")
    assert answer.status == 200, answer.body


async def test_its_policy_decides_what_becomes_of_a_turn_that_fails() -> None:
    failing = says("Let me ", "see.").failing(ModelFailed("burnt"), at=1)
    for policy, kept in ((Policy(error="keep"), 2), (Policy(error="discard"), 1)):
        cook = agent(ScriptedModel("Yes?", failing), name="cook", policy=policy)
        host = butler()
        host.policy = Policy(error="keep" if kept == 1 else "discard")
        async with serving(host, cook) as server:
            await handed_over(server)
            assert (await server.chat("Soup", to="trip", model="butler")).status >= 500
            turns = await server.turns("trip")
        assert sum(each["state"] == "committed" for each in turns) == kept


async def test_its_limits_bound_the_turn() -> None:
    look = HeldTool("look", held=False)
    model = ScriptedModel("Yes?", otherwise=lambda _: says(calls=[("look", "{}")]))
    cook = agent(model, look, name="cook")
    cook.limits = TurnLimits(calls_max=1)
    async with serving(butler(), cook) as server:
        await handed_over(server)
        answer = await server.chat("Soup", to="trip", model="butler")
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert look.runs <= 2


async def test_a_sessions_own_limits_bound_its_turns() -> None:
    look = HeldTool("look", held=False)
    model = ScriptedModel("Yes?", otherwise=lambda _: says(calls=[("look", "{}")]))
    async with serving(agent(model, look)) as server:
        first = await server.chat("Hi", to="trip")
        settings = SessionSettings(limits=TurnLimits(calls_max=1))
        await server.sessions.operations.annotate(
            LOCAL,
            SessionId(first.headers["x-session-id"]),
            [(None, SettingsChanged(settings=settings))],
        )
        answer = await server.chat("Look", to="trip")
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert look.runs <= 2


@pytest.mark.parametrize("knows", [NOTHING, frozenset({"seed"})])
async def test_what_it_ignores_is_told(knows: frozenset[str]) -> None:
    cook = agent(ScriptedModel("Yes?", "Soup.", knows=knows), name="cook")
    async with serving(butler(knows=frozenset({"seed"}) - knows), cook) as server:
        await handed_over(server)
        answer = await server.chat("Soup", to="trip", model="butler", seed=7)
    assert answer.headers.get("x-ignored-params") == (None if knows else "seed")


@pytest.mark.parametrize("knows", [NOTHING, frozenset({"stop"})])
async def test_what_it_cannot_keep_to_is_refused_before_anything_begins(
    knows: frozenset[str],
) -> None:
    cook = agent(ScriptedModel("Yes?", "Soup.", knows=knows), name="cook")
    async with serving(butler(knows=frozenset({"stop"}) - knows), cook) as server:
        await handed_over(server)
        answer = await server.chat("Soup", to="trip", model="butler", stop="!")
        turns = await server.turns("trip")
    if knows:
        assert answer.status == 200
    else:
        assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
    assert len(turns) == (2 if knows else 1)
