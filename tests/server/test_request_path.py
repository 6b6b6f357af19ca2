"""What a chat request asks for on its way: its agent is chosen once, and handed down from there."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager

import pytest

from holdfast.agents.agent import Team
from holdfast.core.history.conversation import Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.sessions.session_requests import AgentChoice, Ask
from holdfast.testing import ScriptedModel
from tests.server.stubs import StubDirectory, agent, serving

KEY = {"Idempotency-Key": "once"}


class CountingDirectory(StubDirectory):
    """Counts what is asked of it."""

    asked: Counter[str]

    def choose(self, ask: Ask, snapshot: Snapshot | None = None) -> AgentChoice:
        self.asked["choose"] += 1
        return super().choose(ask, snapshot)

    def team_for(self, request: TurnRequest) -> AbstractContextManager[Team]:
        self.asked["team_for"] += 1
        return super().team_for(request)


def counting(*answers: str) -> CountingDirectory:
    directory = CountingDirectory(agent(ScriptedModel(*answers)))
    directory.asked = Counter()
    return directory


@pytest.mark.parametrize("name", [None, "trip"])
@pytest.mark.parametrize("headers", [{}, KEY])
async def test_an_agent_is_chosen_once_for_a_turn(
    name: str | None, headers: dict[str, str]
) -> None:
    directory = counting("One.", "Two.")
    async with serving(directory=directory) as server:
        await server.chat("1", to=name, seed=7)
        directory.asked.clear()
        answer = await server.chat("2", to=name, seed=7, headers=headers)
    assert answer.text == "Two."
    assert directory.asked == {"choose": 1, "team_for": 1}


async def test_the_answer_to_a_key_outlives_its_agent() -> None:
    """A retry is recognised before anything else is looked at, its agent included."""
    directory = counting("One.")
    async with serving(directory=directory) as server:
        first = await server.chat("1", headers=KEY)
        directory._agents.clear()
        again = await server.chat("1", headers=KEY)
        fresh = await server.chat("1")
    assert first.body == again.body
    assert (fresh.status, fresh.error["code"]) == (404, "model_not_found")
