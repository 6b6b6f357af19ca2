"""Words with an idempotency key that are said to a turn that runs: heard once, answered once, wherever they are
sent again; and if the turn ends before it hears them, a turn of their own."""

from __future__ import annotations

import asyncio
from typing import Unpack

import pytest

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import KeyReused, SessionGone, StoreUnavailable
from holdfast.ids import IdempotencyKey
from holdfast.sessions.session_requests import Ending
from holdfast.store.outcomes import SignalOutcome
from tests.simulation.clients import TENANT
from tests.simulation.stage import Asking, Hand, Stage, on_stage
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s


class Long:
    """A turn that listens and goes on when a test says so."""

    def __init__(self, stage: Stage) -> None:
        self.goes_on = asyncio.Event()
        stage.parts["Long"] = self.play

    async def play(self, hand: Hand) -> None:
        await self.goes_on.wait()
        await hand.go_on()


class Deaf(Long):
    """One that never listens."""

    async def play(self, hand: Hand) -> None:
        await self.goes_on.wait()
        raise RuntimeError("it has fallen over")


async def begin(stage: Stage, node: Node, **asking: Unpack[Asking]) -> asyncio.Task[Ending]:
    running = stage.send(node, "Long", **asking)
    await stage.until(lambda: bool(stage.played))
    return running


async def said_to(stage: Stage, key: str = "k") -> None:
    """Wait until the key is claimed."""
    for _ in range(1000):
        if await stage.store.idempotency(TENANT, IdempotencyKey(key)) is not None:
            return
        await stage.sleep(0.01)
    raise AssertionError("it was never said")


@on_stage
async def test_a_keyed_message_is_heard_once_and_answered_by_the_turn_that_heard_it(
    stage: Stage,
) -> None:
    """The first try, a retry while it runs and one afterwards, on every node: one answer."""
    one, two = await stage.boot(), await stage.boot()
    long = Long(stage)
    running = await begin(stage, one)
    first = stage.send(one, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    during = [stage.send(node, "Faster", key="k", on_busy="steer") for node in (two, one, two)]
    await stage.sleep(1)
    long.goes_on.set()

    answers = [await first, *[await each for each in during]]
    answers += [await stage.send(node, "Faster", key="k") for node in (one, two)]
    assert answers == [await running] * 6
    assert await stage.said() == ["Long", "Faster", "re: Faster"]


@on_stage
async def test_a_client_that_hung_up_finds_its_words_in_the_turn(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    long = Long(stage)
    running = await begin(stage, one)
    first = stage.send(one, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    first.cancel()
    again = stage.send(two, "Faster", key="k", on_busy="reject")
    await stage.sleep(1)
    assert not again.done(), "it is not known yet whether they are heard"
    long.goes_on.set()

    assert await again == await running
    assert (await stage.said()).count("Faster") == 1


@on_stage
async def test_an_answer_that_was_lost_on_the_way_does_not_say_it_twice(stage: Stage) -> None:
    node = await stage.boot()
    long = Long(stage)
    running = await begin(stage, node)
    signal = node.store.as_store().signal

    async def lost(*args: object, **kwargs: object) -> SignalOutcome:
        await signal(*args, **kwargs)  # type: ignore[arg-type]
        raise StoreUnavailable("the answer was lost")

    node.store.override("signal", lost)
    with pytest.raises(StoreUnavailable):
        await stage.send(node, "Faster", key="k", on_busy="steer")
    node.store.override("signal", signal)
    again = stage.send(node, "Faster", key="k", on_busy="steer")
    await stage.sleep(1)
    long.goes_on.set()

    assert await again == await running
    assert (await stage.said()).count("Faster") == 1


@on_stage
async def test_other_words_under_the_key_are_refused(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    long = Long(stage)
    await begin(stage, one)
    steered = stage.send(one, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    with pytest.raises(KeyReused):
        await stage.send(two, "Slower", key="k", on_busy="steer")
    long.goes_on.set()
    assert (await steered).ok
    with pytest.raises(KeyReused):
        await stage.send(one, "Slower", key="k")


@on_stage
async def test_too_late_it_begins_a_turn_of_its_own(stage: Stage) -> None:
    node = await stage.boot()
    assert (await stage.send(node, "Long")).ok
    first = await stage.send(node, "Faster", key="k", on_busy="steer")
    assert first == await stage.send(node, "Faster", key="k", on_busy="steer")
    assert await stage.said() == ["Long", "re: Long", "Faster", "re: Faster"]


# ── turns that end before they listen ────────────────────────────────────────────────────────


@on_stage
async def test_a_turn_that_falls_over_before_it_listens_leaves_the_words_to_the_next(
    stage: Stage,
) -> None:
    """Also for a retry that has joined it meanwhile: both are answered by the one turn that heard them."""
    one, two = await stage.boot(), await stage.boot()
    deaf = Deaf(stage)
    running = await begin(stage, one, key="own")
    tries = [stage.send(one, "Faster", key="k", on_busy="steer")]
    await said_to(stage)
    tries.append(stage.send(two, "Faster", key="k", on_busy="steer"))
    await stage.sleep(1)
    deaf.goes_on.set()

    answers = [await each for each in tries]
    assert answers[0].ok and answers[1] == answers[0]
    assert not (await running).kept
    assert await stage.said() == ["Faster", "re: Faster"]
    assert [row.retry_of for row in await stage.turns()] == [None, None], "its steps are another's"


@on_stage
async def test_a_turn_that_is_cancelled_and_kept_does_not_answer_what_it_did_not_hear(
    stage: Stage,
) -> None:
    node = await stage.boot()
    Long(stage)
    running = await begin(stage, node, policy=Policy(cancel="keep"))
    steered = stage.send(node, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    (turn,) = await stage.turns()
    await node.run(lambda: node.sessions.operations.cancel(TENANT, turn.turn_id))

    answer = await steered
    assert answer.ok and answer.turn_id != turn.turn_id
    assert (await running).by == "cancelled"
    assert (await stage.said()).count("Faster") == 1
    assert await stage.send(node, "Faster", key="k") == answer


@on_stage
async def test_a_crash_lets_the_key_go_if_the_turn_is_not_resumed(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)  # so that they may judge
    Long(stage)
    await begin(stage, one)
    stage.send(one, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    stage.world.bury(one)

    answer = await stage.send(two, "Faster", key="k", on_busy="steer")
    assert answer.ok
    assert await stage.said() == ["Faster", "re: Faster"]


@on_stage
async def test_a_turn_that_is_resumed_hears_what_was_said_before_the_crash(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)  # so that they may judge
    Long(stage)
    await begin(stage, one, key="own")
    stage.send(one, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    stage.world.bury(one)

    answer = await stage.send(two, "Faster", key="k", on_busy="steer")
    assert answer == await stage.send(two, "Long", key="own")
    assert await stage.said() == ["Long", "re: Long", "Faster", "re: Faster"], "all in one turn"


@on_stage
async def test_words_that_were_heard_by_a_turn_that_failed_are_said_anew_by_a_retry(
    stage: Stage,
) -> None:
    """Each request has its own retry, with its own words and nothing of the other's."""
    node = await stage.boot()

    async def listens_and_falls_over(hand: Hand) -> None:
        live = next(iter(node.sessions._owner.live.values()))
        await stage.until(lambda: bool(live._steers))
        await hand.open.take_steering()
        await hand.say("re: both of you")
        raise RuntimeError("it has fallen over")

    stage.parts["Long"] = listens_and_falls_over
    running = await begin(stage, node, key="own")
    steered = await stage.send(node, "Faster", key="k", on_busy="steer")
    assert not steered.kept
    assert steered == await running

    stage.parts.clear()
    assert (await stage.send(node, "Faster", key="k", on_busy="steer")).ok
    assert (await stage.send(node, "Long", key="own")).ok
    assert await stage.said() == ["Faster", "re: Faster", "Long", "re: Long"]


@on_stage
async def test_after_a_delete_the_words_are_gone_with_the_session(stage: Stage) -> None:
    node = await stage.boot()
    Long(stage)
    await begin(stage, node)
    steered = stage.send(node, "Faster", key="k", on_busy="steer")
    await said_to(stage)
    session_id = await stage.id_of()
    await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))

    for answer in (steered, stage.send(node, "Faster", key="k", on_busy="steer")):
        with pytest.raises(SessionGone):
            await answer
