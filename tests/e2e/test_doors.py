"""The same promises through every door: what goes wrong between requests, by each protocol that leads to a turn."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from holdfast.testing import refuses, says
from tests.e2e.doors import DOORS
from tests.e2e.doors.door import Behaviour, Door, DoorAnswer
from tests.e2e.world import World

ANSWER = "This is the whole answer to {} "


TASKS = ("a2a", "mcp_tasks")
"""Doors of which a client asks later what became of a turn: any replica may be asked. What replicas do otherwise is
behind all doors alike, and told of in the other files."""


def through(behaviour: Behaviour) -> pytest.MarkDecorator:
    """Every door that has a notion of this."""
    found = [each for each in DOORS if behaviour not in each.lacks]
    return pytest.mark.parametrize("door", found, ids=lambda each: each.name)


def through_in_worlds(behaviour: Behaviour) -> pytest.MarkDecorator:
    """The same on one server and on replicas."""

    def marks(world: str, door: Door) -> tuple[pytest.MarkDecorator, ...]:
        if world == "one":
            return ()
        return (pytest.mark.slow, *(() if door.name in TASKS else (pytest.mark.thorough,)))

    found = [
        pytest.param(world, each, id=f"{world}-{each.name}", marks=marks(world, each))
        for world in ("one", "replicas")
        for each in DOORS
        if behaviour not in each.lacks
    ]
    return pytest.mark.parametrize(("world", "door"), found, indirect=["world"])


def is_answer(answer: DoorAnswer, said: str) -> bool:
    return not answer.error and answer.text.strip() == ANSWER.format(said).strip()


@through_in_worlds("failed_turn")
async def test_a_turn_that_fails_is_not_seen_by_the_next_one(world: World, door: Door) -> None:
    assert is_answer(await door.ask(world, "first", to="trip"), "first")
    failed = await door.ask(world, "fail", to="trip")
    assert failed.error and not failed.text
    await world.restart()
    assert is_answer(await door.ask(world, "after", to="trip"), "after")
    assert world.sent == [["first"], ["first", "fail"], ["first", "after"]]
    await world.verify()


@through("nothing_new")
async def test_a_request_that_brings_nothing_is_refused(world: World, door: Door) -> None:
    assert (await door.ask(world, "  ", to="trip")).error
    assert world.sent == []


@through("disconnect")
async def test_a_client_that_leaves_half_way_leaves_a_whole_turn_or_none(
    world: World, door: Door
) -> None:
    gate = world.hold("leave")
    async with door.begun(world, "leave", to="trip"):
        await gate.reached.wait()
    if door.goes_on_alone:
        gate.release()
    session = await door.session(world, to="trip")
    turn = await world.ended(session)
    expected = ("committed", "completed") if door.goes_on_alone else ("discarded", "disconnected")
    assert (turn["state"], turn["ended_by"]) == expected
    world.gates.clear()
    assert is_answer(await door.ask(world, "after", to="trip"), "after")
    kept = ["leave"] if door.goes_on_alone else []
    assert world.sent[-1] == [*kept, "after"]
    await world.verify()


@through_in_worlds("kill")
async def test_a_killed_server_leaves_a_whole_turn_or_none(world: World, door: Door) -> None:
    assert is_answer(await door.ask(world, "first", to="trip"), "first")
    gate = world.hold("second")
    async with AsyncExitStack() as connection:
        await connection.enter_async_context(door.begun(world, "second", to="trip"))
        await gate.reached.wait()
        await world.kill()
        world.gates.clear()
        await world.start()
        session = await door.session(world, to="trip")
        texts = [
            each["content"][0]["text"]
            for each in await world.items(session)
            if each.get("state") != "set_aside"
        ]
        assert texts[:2] == ["first", ANSWER.format("first")]
        assert texts[2:] in ([], ["second", ANSWER.format("second")])
    assert is_answer(await door.ask(world, "third", to="trip"), "third")
    assert world.sent[-1] in (["first", "third"], ["first", "second", "third"])
    await world.verify()


@through_in_worlds("two_first_requests")
async def test_first_requests_that_come_together_make_one_conversation(
    world: World, door: Door
) -> None:
    said = [f"n{n}" for n in range(4)]
    answers = await asyncio.gather(*(door.ask(world, each, to="trip") for each in said))
    assert all(is_answer(answer, each) for answer, each in zip(answers, said, strict=True))
    assert is_answer(await door.ask(world, "last", to="trip"), "last")
    assert sorted(world.sent[-1][:-1]) == said
    assert [len(each) for each in world.sent] == [1, 2, 3, 4, 5]


@through_in_worlds("retry")
async def test_a_retry_gets_the_answer_of_the_first_attempt(world: World, door: Door) -> None:
    gate = world.hold("once")
    first = asyncio.create_task(door.ask(world, "once", to="trip", key="7d8f"))
    await gate.reached.wait()
    meanwhile = asyncio.create_task(door.ask(world, "once", to="trip", key="7d8f"))
    gate.release()
    answers = [await first, await meanwhile, await door.ask(world, "once", to="trip", key="7d8f")]
    await world.restart()
    answers.append(await door.ask(world, "once", to="trip", key="7d8f"))
    assert is_answer(answers[0], "once")
    assert len(set(answers)) == 1
    assert world.sent == [["once"]]


@through("retry_after_acting")
async def test_a_turn_that_fails_after_it_has_acted_is_finished_by_a_retry(
    world: World, door: Door
) -> None:
    world.let_tools_go()
    world.upstream.will(says("Let me.", calls=[("act", "{}")]), refuses(500), "Done.")
    assert (await door.ask(world, "act now", to="trip", key="7d8f")).error
    await world.restart()
    again = await door.ask(world, "act now", to="trip", key="7d8f")
    assert not again.error and again.text.endswith("Done.")
    assert (world.runs, len(world.sent)) == (1, 3)
    items = await world.items(await door.session(world, to="trip"))
    assert [each["type"] for each in items].count("user") == 1
    await world.verify()


@through_in_worlds("cancel")
async def test_a_turn_that_is_stopped_is_kept_as_far_as_it_came(world: World, door: Door) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(door.ask(world, "long", to="trip"))
    await gate.reached.wait()
    await door.cancel(world, to="trip")
    stopped = await waiting
    assert stopped.error
    turn = await world.ended(await door.session(world, to="trip"))
    assert (turn["state"], turn["ended_by"]) == ("committed", "cancelled")
    world.gates.clear()
    assert is_answer(await door.ask(world, "after", to="trip"), "after")
    assert (world.sent[-1][0], world.sent[-1][-1]) == ("long", "after")
    await world.verify()


@through_in_worlds("busy")
async def test_a_message_waits_for_the_turn_before_it(world: World, door: Door) -> None:
    gate = world.hold("slow")
    first = asyncio.create_task(door.ask(world, "slow", to="trip"))
    await gate.reached.wait()
    second = asyncio.create_task(door.ask(world, "quick", to="trip"))
    session = await door.session(world, to="trip")
    impatient = await world.chat("no time", to=session, headers={"X-On-Busy": "reject"})
    gate.release()
    assert (impatient.status, impatient.error["code"]) == (409, "conversation_locked")
    assert is_answer(await first, "slow") and is_answer(await second, "quick")
    assert world.sent == [["slow"], ["slow", "quick"]]
