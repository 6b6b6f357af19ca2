"""What tools remember is part of the turn: it lands with the commit, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from holdfast.agents.agent import Agent, Team
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import plain_text
from holdfast.core.policy import Policy
from holdfast.ids import SessionKey, Tenant
from holdfast.loop.player import Player
from holdfast.sessions.session_requests import Ask, Ending
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import fails, says
from holdfast.tools.notes.memory import MemoryToolset
from holdfast.tools.notes.think import INSTRUCTION, ThinkToolset
from holdfast.tools.notes.todo import TodoToolset
from tests.loop.stage import ANYTHING, Deed, Model, Tools, agent, scripted, words

ACME = Tenant("acme")


def named(name: str) -> Agent:
    return Agent(
        name,
        Model(),
        instruction="You are a butler.",
        toolsets=(ThinkToolset(), TodoToolset(), MemoryToolset()),
        permissions=ANYTHING,
    )


class House:
    """Sessions on a store, with two agents who remember."""

    def __init__(self, sessions: Sessions, team: Team) -> None:
        self.sessions = sessions
        self.team = team

    async def ask(
        self, text: str, *, key: str = "trip", of: str = "butler", **fields: Any
    ) -> Ending:
        messages = (Incoming(role="user", content=plain_text(text)),)
        asked = Ask(tenant=ACME, name=SessionKey(key), agent=of, messages=messages, **fields)
        async with await self.sessions.submit(asked) as watch:
            return await watch.ended()

    def will(self, *scripts: Any, of: str = "butler") -> None:
        scripted(self.team.agents[of]).will(*scripts)

    def heard(self, of: str = "butler") -> str:
        """What the model was last told by its tools."""
        return words(scripted(self.team.agents[of]).messages()[-1])


@pytest.fixture
async def house() -> AsyncIterator[House]:
    team = Team({name: named(name) for name in ("butler", "cook")}, entry="butler", digest="d1")

    async with Sessions(MemoryStore(), Player(lambda _: nullcontext(team))) as opened:
        yield House(opened, team)


def call(name: str, **arguments: object) -> tuple[str, str]:
    return name, msgspec.json.encode(arguments).decode()


LIST = says(calls=[call("list_todos")])
RECALL = says(calls=[call("get_memories")])


async def test_calls_side_by_side_keep_each_others_entries(house: House) -> None:
    """Each stages the whole list: two that had seen the same one would lose an entry."""
    calls = [call("create_todo", description=f"step {n}") for n in range(8)]
    house.will(says(calls=calls), LIST, "Done.", LIST, "Still there.")
    assert (await house.ask("Plan")).ok
    assert house.heard().count("step") == 8
    assert (await house.ask("And now?")).ok
    assert house.heard().count("step") == 8


async def test_a_discarded_turn_leaves_the_list_and_the_memories_as_they_were(house: House) -> None:
    house.will(says(calls=[call("create_todo", description="Pack")]), "Noted.")
    await house.ask("Pack")
    staged = [call("create_todo", description="Fly"), call("add_memory", memory="Likes tea")]
    house.will(says(calls=staged), fails("broke"))
    ending = await house.ask("Fly", policies=(Policy(error="discard"),))
    assert not ending.ok and not ending.kept
    house.will(LIST, RECALL, "Well.")
    await house.ask("What is there?")
    told = [words(each) for each in scripted(house.team.agents["butler"]).messages()[-3:]]
    assert told[0] == "[ ] 1. Pack"
    assert told[-1] == "[nothing]"


async def test_memories_are_there_in_other_conversations_of_the_same_agent_only(
    house: House,
) -> None:
    house.will(says(calls=[call("add_memory", memory="Likes tea")]), RECALL, "Noted.")
    assert (await house.ask("I like tea", key="one")).ok
    assert "Likes tea" in house.heard()  # in the same turn already
    house.will(RECALL, LIST, "Tea?")
    assert (await house.ask("What do I like?", key="two")).ok
    told = [words(each) for each in scripted(house.team.agents["butler"]).messages()]
    assert any("Likes tea" in each for each in told)
    house.will(RECALL, "Hm.", of="cook")
    assert (await house.ask("What do I like?", key="three", of="cook")).ok
    assert house.heard("cook") == "[nothing]"


async def test_a_request_that_stores_nothing_can_recall_and_adds_nothing(house: House) -> None:
    house.will(says(calls=[call("add_memory", memory="Likes tea")]), "Noted.")
    await house.ask("I like tea")
    asked = Ask(
        tenant=ACME,
        name=SessionKey("trip"),
        agent="butler",
        messages=(Incoming(role="user", content=plain_text("?")),),
    )
    house.will(says(calls=[call("add_memory", memory="Hates milk")]), RECALL, "Well.")
    async with house.sessions.submit_stateless(asked) as watch:
        assert (await watch.ended()).ok
    assert "Likes tea" in house.heard()
    house.will(RECALL, "Well.")
    await house.ask("?", key="another")
    assert "Hates milk" not in house.heard()


async def test_what_toolsets_say_goes_into_the_instructions(house: House) -> None:
    house.will("Hello.")
    await house.ask("Hi")
    system = scripted(house.team.agents["butler"]).prompts[-1].system
    assert system.startswith("You are a butler.\n\n")
    assert INSTRUCTION in system


async def test_of_two_tools_with_one_name_the_first_is_meant() -> None:
    first, second = Deed("look"), Deed("look")
    butler = agent("butler", says(calls=[("look", "{}")]), "Well.", tools=[first])
    butler.toolsets += (Tools(second),)
    team = Team({"butler": butler}, entry="butler", digest="d1")
    async with Sessions(MemoryStore(), Player(lambda _: nullcontext(team))) as sessions:
        house = House(sessions, team)
        assert (await house.ask("Look")).ok
    assert (len(first.runs), len(second.runs)) == (1, 0)
