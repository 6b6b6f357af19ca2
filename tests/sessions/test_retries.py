"""A keyed request that failed is sent again: what its first attempt has finished is not done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import limits
from holdfast.core.history.conversation import Titled
from holdfast.core.policy import Policy
from holdfast.core.turns import events as ev
from holdfast.errors import TurnFailed
from holdfast.ids import TurnId
from tests.simulation.clients import TENANT
from tests.simulation.stage import KEY, Hand, Stage, on_stage, outcomes, words
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s
LAST_DEED = Policy(error="discard")


def fail() -> None:
    raise TurnFailed("model_error", "overloaded", reason="overloaded")


async def look_then_fail(hand: Hand) -> None:
    (look,) = await hand.call("look")
    await hand.start(look, read_only=True)
    await hand.finish(look)
    fail()


async def failed_once(stage: Stage, node: Node, part: Callable[[Hand], Awaitable[None]]) -> TurnId:
    """A first attempt under the key k1, that was played so and is discarded."""
    stage.parts["Weather?"] = part
    ending = await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)
    assert (ending.kept, ending.by) == (False, "model_error")
    assert await stage.said() == []
    return ending.turn_id


async def retry_of(stage: Stage, turn_id: TurnId) -> TurnId | None:
    row = await stage.store.turn(TENANT, turn_id)
    assert row is not None
    return row.retry_of


@on_stage
async def test_the_retry_of_a_failed_attempt_goes_on_from_its_finished_steps(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    first = await failed_once(stage, one, look_then_fail)

    again = await stage.send(two, "Weather?", key="k1", policy=LAST_DEED)

    assert again.ok
    assert stage.done == ["look"], "it has its result, so it is not run again"
    items = (await stage.snapshot()).items
    assert (outcomes(items), words(items)) == ([("look", "ok")], ["Weather?", "re: Weather?"])
    assert await retry_of(stage, again.turn_id) == first
    assert again == await stage.send(one, "Weather?", key="k1", policy=LAST_DEED)


@on_stage
async def test_watchers_of_a_retry_see_the_steps_that_it_begins_with(stage: Stage) -> None:
    node = await stage.boot()
    await failed_once(stage, node, look_then_fail)

    watch = await stage.submit(node, "Weather?", key="k1", policy=LAST_DEED)
    shown = [each async for each in watch.events()]

    kinds = [type(each.event) for each in shown]
    assert kinds[:6] == [
        ev.Began,
        ev.StepStarted,
        ev.Answered,
        ev.ToolStarted,
        ev.ToolFinished,
        ev.Resumed,
    ]
    assert [each.n for each in shown] == list(range(len(shown)))
    assert kinds.count(ev.Answered) == 2


@on_stage
async def test_a_call_that_had_started_when_the_attempt_failed_is_in_doubt_for_its_retry(
    stage: Stage,
) -> None:
    """Its policy says that the turn leaves no trace in the session. In the world it may have left one."""
    node = await stage.boot()

    async def fly_then_fail(hand: Hand) -> None:
        fly, _ = await hand.call("fly", "wave")
        await hand.start(fly)
        fail()

    await failed_once(stage, node, fly_then_fail)
    assert (await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)).ok

    assert stage.done == ["fly", "wave"]
    assert outcomes((await stage.snapshot()).items) == [("fly", "unknown"), ("wave", "ok")]


@on_stage
async def test_an_attempt_that_was_kept_is_the_answer_to_its_retry(stage: Stage) -> None:
    node = await stage.boot()

    async def fly_then_fail(hand: Hand) -> None:
        (fly,) = await hand.call("fly")
        await hand.start(fly)
        await hand.finish(fly)
        fail()

    stage.parts["Fly"] = fly_then_fail
    first = await stage.send(node, "Fly", key="k1")
    assert (first.kept, first.by) == (True, "model_error")
    assert first == await stage.send(node, "Fly", key="k1")
    assert stage.done == ["fly"]


def once(part: Callable[[Hand], Awaitable[None]]) -> Callable[[Hand], Awaitable[None]]:
    """A part that is played the first time; after that, everything goes well."""
    played: list[Hand] = []

    async def play(hand: Hand) -> None:
        played.append(hand)
        await (part(hand) if len(played) == 1 else hand.go_on())

    return play


@on_stage
async def test_a_retry_starts_over_if_the_session_has_moved_on(stage: Stage) -> None:
    """The steps were an answer to another history."""
    node = await stage.boot()
    await failed_once(stage, node, once(look_then_fail))
    assert (await stage.send(node, "Something else")).ok

    assert (await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)).ok

    items = (await stage.snapshot()).items
    assert outcomes(items) == []
    assert words(items)[-2:] == ["Weather?", "re: Weather?"]


@on_stage
async def test_a_retry_starts_over_if_the_model_is_shown_something_else(stage: Stage) -> None:
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    stage.parts["Weather?"] = once(look_then_fail)
    assert not (await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)).ok
    operations, session_id = node.sessions.operations, await stage.id_of()
    patch = [(None, Titled(title="Oslo"))]
    await node.run(lambda: operations.annotate(TENANT, session_id, patch))

    assert (await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)).ok
    assert outcomes((await stage.snapshot()).items) == []


@on_stage
async def test_a_retry_starts_over_in_a_session_that_is_another_one(stage: Stage) -> None:
    """Both are empty, so their versions do not tell them apart."""
    node = await stage.boot()
    await failed_once(stage, node, once(look_then_fail))
    await node.run(lambda: node.sessions.operations.reset(TENANT, KEY))

    assert (await stage.send(node, "Weather?", key="k1", policy=LAST_DEED)).ok
    assert outcomes((await stage.snapshot()).items) == []


def never_reads_a_journal(node: Node) -> None:
    """This node does not come to the steps of an earlier attempt."""

    async def journal(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(100_000)

    node.store.override("journal", journal)


@on_stage
async def test_an_attempt_that_came_to_nothing_does_not_hide_the_one_before_it(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    first = await failed_once(stage, one, look_then_fail)
    never_reads_a_journal(one)
    second = await stage.send(one, "Weather?", key="k1", policy=LAST_DEED, deadline_s=5)
    assert (second.kept, second.by) == (False, "deadline")

    third = await stage.send(two, "Weather?", key="k1", policy=LAST_DEED)

    assert third.ok
    assert stage.done == ["look"]
    assert await retry_of(stage, third.turn_id) == second.turn_id
    assert await retry_of(stage, second.turn_id) == first


@on_stage
async def test_a_retry_whose_node_dies_before_it_takes_over_the_steps_is_resumed_with_them(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)  # so that they may judge
    await failed_once(stage, two, look_then_fail)
    never_reads_a_journal(one)
    stage.send(one, "Weather?", key="k1", policy=LAST_DEED)
    await stage.sleep(1)
    assert len(await stage.turns()) == 2
    stage.world.bury(one)

    again = await stage.send(two, "Weather?", key="k1", policy=LAST_DEED)

    assert again.ok
    assert stage.done == ["look"]
    items = (await stage.snapshot()).items
    assert (outcomes(items), words(items)) == ([("look", "ok")], ["Weather?", "re: Weather?"])
