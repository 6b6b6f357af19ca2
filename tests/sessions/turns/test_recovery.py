"""What dead nodes have left, where something is in the way of whoever cleans up."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import AssistantMessage, plain_text
from holdfast.core.policy import Policy
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.errors import StoreUnavailable, StoreUnusable
from holdfast.ids import MessageId, SessionKey, TurnId
from holdfast.sessions.turns.recovery import SIDE_BY_SIDE_MAX
from holdfast.sessions.turns.sweep_errors import AWAY_MAX
from holdfast.sessions.turns.watch import Watch
from holdfast.store.sql.tables import SESSIONS
from holdfast.store.steps import Operation, change, get, write
from tests.simulation.clients import TENANT
from tests.simulation.simulation import Home
from tests.simulation.stage import Gate, Hand, Stage, act_out, on_stage, outcomes
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s
KEYS = [SessionKey(f"key-{n}") for n in range(3)]


async def hang(hand: Hand) -> None:
    await asyncio.sleep(3600)


async def states(stage: Stage, *watches: Watch) -> list[str]:
    rows = [await stage.store.turn(TENANT, each.admission.turn_id) for each in watches]
    return [row.state if row else "missing" for row in rows]


async def hanging(stage: Stage, node: Node, *names: SessionKey) -> list[Watch]:
    """Keyed turns that somebody else will go on with."""
    stage.parts["Book it"] = hang
    return [await stage.submit(node, "Book it", name=name, key=f"for-{name}") for name in names]


# ── one that cannot be read ──────────────────────────────────────────────────────────────────

DAMAGED = [StoreUnusable("one row is damaged"), msgspec.DecodeError("one row is damaged")]


def unreadable(node: Node, turn_id: TurnId, error: Exception) -> None:
    """The journal of one turn cannot be had by this node."""
    journal = node.store.as_store().journal

    async def read(tenant: Any, which: TurnId, **where: Any) -> Any:
        if which == turn_id:
            raise error
        return await journal(tenant, which, **where)

    node.store.override("journal", read)


@pytest.mark.parametrize("error", DAMAGED, ids=["ours", "anybody's"])
@pytest.mark.parametrize("home", ["memory", "sqlite"])
def test_a_turn_that_cannot_be_read_keeps_no_other_waiting(home: Home, error: Exception) -> None:
    """Neither those of the same dead node, nor what was handed over, nor what waits for its session."""

    async def scenario(stage: Stage) -> None:
        one, two = await stage.boot(), await stage.boot()
        await stage.sleep(TTL_S + 1)
        begun = await hanging(stage, one, *KEYS)
        waiting = await stage.submit(two, "Later", name=KEYS[1], queues=True)
        unreadable(two, begun[0].admission.turn_id, error)
        stage.world.bury(one)
        await stage.sleep(TTL_S + 2 * limits.sweep_s + 1)
        assert await states(stage, *begun, waiting) == ["open", *["committed"] * 3]

    act_out(scenario, home)


@pytest.mark.parametrize("error", DAMAGED, ids=["ours", "anybody's"])
@pytest.mark.parametrize("home", ["memory", "sqlite"])
def test_a_node_starts_although_a_turn_cannot_be_read(home: Home, error: Exception) -> None:
    async def scenario(stage: Stage) -> None:
        one = await stage.boot()
        await stage.sleep(TTL_S + 1)
        bad, good = await hanging(stage, one, *KEYS[:2])
        await one.run(lambda: one.sessions.close(grace_s=0))
        stage.world.bury(one)
        journal = stage.store.journal

        async def read(tenant: Any, which: TurnId, **where: Any) -> Any:
            if which == bad.admission.turn_id:
                raise error
            return await journal(tenant, which, **where)

        stage.store.journal = read  # type: ignore[method-assign, assignment]
        stage.parts.clear()
        await stage.boot()
        await stage.sleep(limits.sweep_s)
        assert await states(stage, bad, good) == ["open", "committed"]

    act_out(scenario, home)


# ── one that breaks whoever plays it ─────────────────────────────────────────────────────────


@on_stage
async def test_a_turn_that_breaks_its_node_again_and_again_is_given_up(stage: Stage) -> None:
    """Its words cannot be written, so nothing can: not even why it ends."""
    played = 0

    async def broken(turn: OpenTurn) -> None:
        nonlocal played
        played += 1
        content = plain_text("half a sign: \ud83d")
        answer = AssistantMessage(id=turn.mint(MessageId), content=content)
        await turn.record(ev.StepStarted(), ev.Answered(items=(answer,)))

    stage.play = lambda world, node: broken  # type: ignore[method-assign]
    node = await stage.boot()
    watch = await stage.submit(node, "Book it", key="k1")
    await stage.sleep((limits.crash_attempts_max + 2) * limits.sweep_s)
    row = await stage.store.turn(TENANT, watch.admission.turn_id)
    assert row is not None and (row.state, row.ended_by) == ("discarded", "crash")
    assert played == limits.crash_attempts_max
    stage.loop.unheeded = list  # type: ignore[method-assign]  # that they broke is the point


# ── two who take the same one ────────────────────────────────────────────────────────────────


@on_stage
async def test_a_turn_is_not_taken_from_oneself_while_one_looks_whose_it_is(stage: Stage) -> None:
    """A request and the sweeper find the same orphan, and the request takes its time to read."""
    one = await stage.boot()
    paid = asyncio.Event()

    async def pay(turn: OpenTurn) -> None:
        hand = Hand(stage, two, turn)
        if not turn.turn.acted:
            (call,) = await hand.call("pay")
            await hand.start(call)
            await paid.wait()
            await hand.finish(call)
        await hand.go_on()

    stage.play = lambda world, node: pay  # type: ignore[method-assign]
    two = await stage.boot()
    await stage.sleep(TTL_S + 1)
    (watch,) = await hanging(stage, one, KEYS[0])
    session = two.store.as_store().session

    async def slowly(*args: Any) -> Any:
        row = await session(*args)
        await stage.until(lambda: stage.done == ["pay"])  # the sweeper has come by
        return row

    two.store.override("session", slowly)
    stage.world.bury(one)
    asked = watch.admission
    recover = two.sessions._recovery.recover
    assert not await two.run(lambda: recover(TENANT, asked.session_id, asked.turn_id))
    paid.set()
    await stage.sleep(limits.sweep_s)
    assert outcomes((await stage.snapshot(KEYS[0])).items) == [("pay", "ok")]


# ── one that is resumed ──────────────────────────────────────────────────────────────────────


@on_stage
async def test_whoever_watches_a_turn_that_is_resumed_sees_what_counts_no_more(
    stage: Stage,
) -> None:
    """Also without a key: it asked to be resumed, so all that was shown of it can be taken back."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)

    async def half(hand: Hand) -> None:
        item = hand.open.mint(MessageId)
        await hand.open.record(ev.StepStarted(), ev.ItemOpened(item=item, kind="message"))
        for n in range(5):
            await hand.open.record(ev.Grew(item=item, text=f"old{n} "))
        await asyncio.sleep(3600)

    stage.parts["Book it"] = half
    watch = await stage.submit(one, "Book it", policy=Policy(crash="resume"))

    async def see() -> list[ev.Event]:
        return [each.event async for each in watch.events()]

    seeing = stage.loop.create_task(one.run(see))
    await stage.sleep(1)
    one.store.partitioned = True
    await stage.sleep(2 * TTL_S)
    one.store.partitioned = False
    seen = await seeing

    kinds = [type(each) for each in seen]
    assert kinds.count(ev.Grew) == 5
    assert kinds.index(ev.StepBroken) < kinds.index(ev.Resumed) < kinds.index(ev.Answered)
    assert two in stage.world.nodes and (await stage.said())[-1] == "re: Book it"


# ── a store that comes and goes ──────────────────────────────────────────────────────────────


@on_stage
async def test_a_store_that_is_away_after_a_takeover_is_no_crash_of_the_turn(stage: Stage) -> None:
    """It was taken over again and again, and never played: nothing about it has broken."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    (watch,) = await hanging(stage, one, KEYS[0])
    journal, failures = two.store.as_store().journal, 2 * limits.crash_attempts_max

    async def read(*args: Any, **where: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("the database is restarting")
        return await journal(*args, **where)

    two.store.override("journal", read)
    stage.world.bury(one)
    await stage.sleep(TTL_S + (2 * limits.crash_attempts_max + 2) * limits.sweep_s)
    assert failures < 0 and await states(stage, watch) == ["committed"]
    assert (await stage.said(KEYS[0])) == ["Book it", "re: Book it"]


@on_stage
async def test_a_store_that_is_away_is_not_asked_for_every_turn_of_a_dead_node(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    names = [SessionKey(f"key-{n}") for n in range(50)]
    await hanging(stage, one, *names)
    asked = 0

    async def away(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("the database is restarting")

    two.store.override("takeover", away)
    stage.world.bury(one)
    await stage.sleep(TTL_S)
    before = asked
    with pytest.raises(StoreUnavailable):
        await two.run(two.sessions._recovery.sweep)
    assert 0 < asked - before < AWAY_MAX + SIDE_BY_SIDE_MAX


@on_stage
async def test_a_retry_that_joins_a_turn_which_its_session_does_not_name_is_answered(
    stage: Stage,
) -> None:
    """It would wait for ever, since no node holds such a turn, and so none is asked to go on with it."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(limits.lease_ttl_s + 1)
    await stage.playing(one, "Wait", Gate(), key="k1")
    session_id = await stage.id_of()

    def forget() -> Operation[None]:
        session = yield from get(SESSIONS, TENANT, session_id)
        assert session is not None
        gone = change(SESSIONS, session, open_turn=None, lease_node=None)
        yield from write(gone, on=(session,))

    stage.world.bury(one)
    await stage.store._write(forget)
    del stage.parts["Wait"]
    joined = await stage.send(two, "Wait", key="k1")
    assert (joined.kept, joined.by) == (False, "crash")
    assert (await stage.send(two, "Wait", key="k1")).ok
    assert await stage.said() == ["Wait", "re: Wait"]
