"""Requests that nobody waits for, and a session that is busy: they wait in the store, and hold nothing."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import (
    KeyReused,
    QueueFull,
    SessionBusy,
    SessionConflict,
    SessionGone,
    StoreUnusable,
)
from holdfast.ids import SessionKey, Tenant, TurnId
from holdfast.sessions.admission.queued_turns import OPENINGS_MAX
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.turns.watch import Watch
from holdfast.store.rows import TurnRow
from tests.simulation.clients import TENANT
from tests.simulation.stage import KEY, Gate, Hand, Stage, act_out, on_stage
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s


async def queue(stage: Stage, node: Node, text: str, **asking: object) -> Watch:
    """A request that is told at once that it waits."""
    began_s = stage.loop.time()
    watch = await stage.submit(node, text, queues=True, **asking)  # type: ignore[arg-type]
    assert watch.admission.how == "queued" and watch.admission.base is None
    assert stage.loop.time() - began_s < 1.0
    return watch


async def row_of(stage: Stage, turn_id: TurnId) -> TurnRow:
    row = await stage.store.turn(TENANT, turn_id)
    assert row is not None
    return row


@on_stage
async def test_it_waits_at_once_and_is_played_when_the_session_is_free(stage: Stage) -> None:
    node = await stage.boot()
    gate, first = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    assert (await row_of(stage, watch.admission.turn_id)).state == "queued"

    gate.open.set()
    assert (await first).ok
    ending = await node.run(watch.ended)
    assert ending.ok and ending.version == 2
    assert await stage.said() == ["Wait", "re: Wait", "Later", "re: Later"]


@on_stage
async def test_it_is_opened_at_once_where_the_session_was_played(stage: Stage) -> None:
    """The end of a turn is a hint; only what nobody hears of waits for the next sweep."""
    node = await stage.boot()
    gate, first = await stage.answering(node)
    await queue(stage, node, "Later")
    await stage.sleep(limits.sweep_s * 1.5)
    gate.open.set()
    await first
    ended_s = stage.loop.time()
    await stage.until(lambda: "Later" in stage.played)
    assert stage.loop.time() - ended_s < limits.sweep_s / 4


@on_stage
async def test_those_that_wait_are_played_in_the_order_in_which_they_came(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    gate, _ = await stage.answering(one)
    watches = [await queue(stage, node, f"{n}") for n, node in enumerate((two, one, one, two, one))]
    gate.open.set()
    for watch in watches:
        assert (await one.run(watch.ended)).ok
    assert stage.played == ["Wait", "0", "1", "2", "3", "4"]


async def come_after(
    stage: Stage, node: Node, gate: Gate, later: Watch, *, before: tuple[str, ...] = ()
) -> None:
    """Ask for a turn while others wait for its session, and see that they are played first."""
    at_the_door = stage.send(node, "After that")
    await stage.sleep(1)
    gate.open.set()
    assert (await at_the_door).ok
    assert (await node.run(later.ended)).ok
    assert stage.played == ["Wait", *before, "Later", "After that"]


@on_stage
async def test_who_comes_later_goes_behind_a_turn_that_waits(stage: Stage) -> None:
    """Also one whose client is there and waits; but not one that interrupts."""
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    await come_after(stage, node, gate, watch)


@on_stage
async def test_who_comes_later_goes_behind_also_if_many_end_where_they_wait(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    torn = [await queue(stage, node, f"Torn {n}") for n in range(OPENINGS_MAX)]
    watch = await queue(stage, node, "Later")
    unreadable = {each.admission.turn_id for each in torn}
    journal = node.store.as_store().journal

    async def read(tenant: Tenant, turn_id: TurnId, **more: int) -> object:
        return () if turn_id in unreadable else await journal(tenant, turn_id, **more)

    node.store.override("journal", read)
    await come_after(stage, node, gate, watch)


@on_stage
async def test_who_comes_later_goes_behind_also_if_the_session_is_free_again_when_it_asks(
    stage: Stage,
) -> None:
    """The turn before the first one that waits fails after the request looked, and before it begins."""
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    short = stage.parts["Short"] = Gate(fails=True)
    first = await queue(stage, node, "Short")
    watch = await queue(stage, node, "Later")
    look = node.store.queued

    async def queued(*, limit: int) -> object:
        found = await look(limit=limit)
        if first.admission.turn_id not in {each.turn_id for each in found}:
            short.open.set()
            await node.run(first.ended)
        return found

    node.store.override("queued", queued)
    await come_after(stage, node, gate, watch, before=("Short",))


@on_stage
async def test_who_comes_later_waits_for_a_turn_that_cannot_be_opened_at_once(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    failures = iter([AssertionError("nobody has thought of this")] * 3 * OPENINGS_MAX)
    open_queued = node.store.open_queued

    async def fail_often(opening: object) -> object:
        for failure in failures:
            raise failure
        return await open_queued(opening)

    node.store.override("open_queued", fail_often)
    rejected = stage.send(node, "Or not", on_busy="reject")
    await come_after(stage, node, gate, watch)
    with pytest.raises(SessionBusy):
        await rejected
    assert not list(failures)


@on_stage
async def test_a_turn_that_never_can_be_opened_makes_later_requests_wait_as_long_as_they_may(
    stage: Stage,
) -> None:
    node = await stage.boot()
    gate, first = await stage.answering(node)
    stuck = await queue(stage, node, "Stuck")

    async def fail(opening: object) -> object:
        raise AssertionError("nobody has thought of this")

    node.store.override("open_queued", fail)
    gate.open.set()
    await first
    with pytest.raises(SessionBusy):
        await stage.send(node, "After that", wait_s=5.0)
    await node.run(partial(node.sessions.operations.cancel, TENANT, stuck.admission.turn_id))
    assert (await stage.send(node, "After that", wait_s=5.0)).ok


@on_stage
async def test_who_comes_later_goes_behind_also_if_another_one_interrupts(stage: Stage) -> None:
    """The one that interrupts has come last, and is the first that waits: the others still come before the request."""
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    at_the_door = stage.send(node, "After that")
    await stage.sleep(1)
    await queue(stage, node, "Now", on_busy="interrupt")
    assert (await at_the_door).ok and (await node.run(watch.ended)).ok
    assert stage.played == ["Wait", "Now", "Later", "After that"]
    assert not gate.open.is_set(), "it was stopped"


@on_stage
async def test_who_came_first_goes_first_and_so_does_who_interrupts(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    at_the_door = stage.send(node, "Me first")
    await stage.sleep(1)
    watch = await queue(stage, node, "Later")
    now = stage.send(node, "Now", on_busy="interrupt")
    assert (await now).ok and (await at_the_door).ok
    assert (await node.run(watch.ended)).ok
    assert stage.played == ["Wait", "Now", "Me first", "Later"]
    assert not gate.open.is_set(), "it was stopped"


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
def test_a_client_that_never_stops_talking_does_not_keep_a_turn_waiting(
    home: str, elsewhere: bool
) -> None:
    """Its node knows of the turn at once if it was queued there, and else after a sweep."""

    async def scenario(stage: Stage) -> None:
        one = await stage.boot()
        two = await stage.boot() if elsewhere else one
        gate, _ = await stage.answering(two)
        watch = await queue(stage, one, "Later")
        came_s = stage.loop.time()
        gate.open.set()
        for n in range(40):

            async def slowly(hand: Hand) -> None:
                await asyncio.sleep(0.3)
                await hand.go_on()

            stage.parts[f"chat {n}"] = slowly
            assert (await stage.send(two, f"chat {n}")).ok
        assert (await one.run(watch.ended)).ok
        before = stage.played[: stage.played.index("Later")]
        waited_s = 0.4 * len(before)
        assert len(before) == 1 or (elsewhere and waited_s <= limits.sweep_s + 1), before
        assert stage.loop.time() > came_s + 10, "and it went on talking"

    act_out(scenario, home)  # type: ignore[arg-type]


def test_room_is_given_in_the_order_of_coming() -> None:
    """What waits for its session does not come after all that waits for room."""

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, _ = await stage.answering(node)
        full = stage.parts["Full"] = Gate()
        await stage.submit(node, "Full", queues=True, name=SessionKey("full"))
        first = await stage.submit(node, "First", queues=True, name=SessionKey("first"))
        watch = await queue(stage, node, "Later")
        last = [
            await stage.submit(node, f"Last {n}", queues=True, name=SessionKey(f"last-{n}"))
            for n in range(5)
        ]
        gate.open.set()
        await stage.sleep(limits.sweep_s * 2)
        full.open.set()
        for each in (first, watch, *last):
            assert (await node.run(each.ended)).ok
        assert stage.played[2:] == ["First", "Later", *(f"Last {n}" for n in range(5))]

    act_out(scenario, "memory", background_max=1)


@on_stage
async def test_who_comes_in_the_background_does_not_overtake_those_who_wait(stage: Stage) -> None:
    """The session is free for a moment, and somebody waits for it already."""
    one, two = await stage.boot(), await stage.boot()
    gate, first = await stage.answering(one)
    await queue(stage, two, "First")
    two.store.partitioned = True
    one.store.override("queued", _nothing)  # so that nobody opens it for a while
    gate.open.set()
    await first
    second = await queue(stage, one, "Second")
    two.store.partitioned = False
    assert (await two.run(second.ended)).ok
    assert stage.played[1:] == ["First", "Second"]


async def _nothing(*, limit: int) -> tuple[()]:
    return ()


@on_stage
async def test_it_waits_on_after_every_server_has_gone(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    await stage.answering(one)
    watch = await queue(stage, two, "Later", key="k")
    for node in (one, two):
        stage.world.bury(node)
    assert (await row_of(stage, watch.admission.turn_id)).state == "queued"

    other = await stage.boot()
    again = await stage.submit(other, "Later", queues=True, key="k")
    assert again.admission.how == "joined"
    assert again.admission.turn_id == watch.admission.turn_id
    assert (await other.run(again.ended)).ok
    assert stage.played.count("Later") == 1


@on_stage
async def test_it_is_resumed_like_any_other_once_it_has_begun(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    gate, first = await stage.answering(one)
    stage.parts["Later"] = Gate()
    watch = await queue(stage, one, "Later")
    two.store.override("queued", _nothing)
    gate.open.set()
    await first
    await stage.until(lambda: "Later" in stage.played)
    stage.world.bury(one)
    await stage.sleep(TTL_S + limits.sweep_s + 2)
    row = await row_of(stage, watch.admission.turn_id)
    assert (row.state, row.attempt) == ("committed", 2)


@on_stage
async def test_a_key_joins_what_waits_and_another_request_does_not(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    gate, _ = await stage.answering(one)
    watch = await queue(stage, one, "Later", key="k")
    again = await stage.submit(two, "Later", queues=True, key="k")
    assert (again.admission.how, again.admission.base) == ("joined", None)
    assert not again.admission.created
    assert again.admission.turn_id == watch.admission.turn_id
    with pytest.raises(KeyReused):
        await stage.submit(two, "Something else", queues=True, key="k")
    recognised = await queue(stage, one, "No key")
    retry = await stage.submit(two, "No key", queues=True, attempt=1)
    assert retry.admission.turn_id == recognised.admission.turn_id
    gate.open.set()
    for each in (watch, recognised):
        assert (await one.run(each.ended)).ok


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_cancel_ends_it_where_it_waits_from_anywhere_again_and_again(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    gate, _ = await stage.answering(one)
    watch = await queue(stage, one, "Later", key="k")
    turn_id = watch.admission.turn_id
    for node in (two, one, two):
        operations = node.sessions.operations
        ending = await node.run(partial(operations.cancel, TENANT, turn_id))
        assert isinstance(ending, Ending)
        assert (ending.by, ending.kept) == ("cancelled", False)
    assert (await one.run(watch.ended)).by == "cancelled"
    again = await stage.submit(two, "Later", queues=True, key="k")
    assert again.admission.how == "replayed"
    gate.open.set()
    await stage.sleep(2 * limits.sweep_s)
    assert await stage.said() == ["Wait", "re: Wait"]


@on_stage
async def test_a_cancel_at_the_moment_of_its_opening_stops_what_has_begun(stage: Stage) -> None:
    node = await stage.boot()
    gate, first = await stage.answering(node)
    stage.parts["Later"] = Gate()
    watch = await queue(stage, node, "Later")
    turn_id = watch.admission.turn_id
    withdraw = node.store.as_store().withdraw

    async def too_late(*args: object, **kwargs: object) -> TurnRow:
        gate.open.set()
        await stage.until(lambda: "Later" in stage.played)
        return await withdraw(*args, **kwargs)  # type: ignore[arg-type]

    node.store.override("withdraw", too_late)
    ending = await node.run(lambda: node.sessions.operations.cancel(TENANT, turn_id))
    assert isinstance(ending, Ending) and ending.by == "cancelled" and ending.kept
    assert (await first).ok


@on_stage
async def test_deleting_the_session_ends_what_waits_for_it(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.answering(one)
    watch = await queue(stage, two, "Later", key="k")
    session_id = watch.admission.session_id
    await two.run(lambda: two.sessions.operations.delete(TENANT, session_id))
    ending = await one.run(watch.ended)
    assert (ending.by, ending.kept) == ("deleted", False)
    with pytest.raises(SessionGone):
        await stage.submit(one, "Later", queues=True, key="k")
    await stage.sleep(2 * limits.sweep_s)
    assert stage.played == ["Wait"]


@on_stage
async def test_a_reset_leaves_it_with_the_session_that_it_was_said_to(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    watch = await queue(stage, node, "For the old one")
    await node.run(lambda: node.sessions.operations.reset(TENANT, KEY))
    gate.open.set()
    assert (await node.run(watch.ended)).ok
    old = watch.admission.session_id
    assert await stage.said(old) == ["Wait", "re: Wait", "For the old one", "re: For the old one"]
    assert await stage.said() == []


@on_stage
async def test_its_time_runs_out_also_while_the_session_is_busy(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    kept = Policy(deadline="keep")
    watch = await queue(stage, node, "Soon", deadline_s=20.0, policy=kept, key="k")
    ending = await node.run(watch.ended)
    assert (ending.by, ending.kept) == ("deadline", False)
    assert 20.0 <= stage.loop.time() < 20.0 + 2 * limits.sweep_s + 4
    gate.open.set()
    await stage.sleep(1)
    again = await stage.submit(node, "Soon", queues=True, key="k")
    assert again.admission.how == "began"
    assert (await node.run(again.ended)).ok


# ── what a request may ask for ───────────────────────────────────────────────────────────────


@on_stage
async def test_who_wants_to_be_told_that_the_session_is_busy_is(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    gate, first = await stage.answering(one)
    for node in (one, two):
        with pytest.raises(SessionBusy):
            await stage.submit(node, "Now", queues=True, on_busy="reject")
    gate.open.set()
    await first


@on_stage
async def test_who_interrupts_waits_for_as_long_as_that_takes(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    _, first = await stage.answering(one)
    watch = await queue(stage, two, "Now", on_busy="interrupt")
    assert (await first).by == "cancelled"
    assert (await two.run(watch.ended)).ok


@on_stage
async def test_a_version_that_is_demanded_is_waited_for_at_the_door(stage: Stage) -> None:
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    gate, _ = await stage.answering(node)
    demanding = asyncio.ensure_future(stage.submit(node, "On top of 1", queues=True, if_match=1))
    await stage.sleep(1)
    gate.open.set()
    with pytest.raises(SessionConflict):
        await demanding


@on_stage
async def test_a_first_turn_that_has_not_begun_yet_is_in_nobodys_way(stage: Stage) -> None:
    """A key that means nothing yet: the request that makes its session is on its way to the store."""
    node = await stage.boot()
    begin = node.store.as_store().begin
    gate = stage.parts["First"] = Gate()

    async def slowly(ask: object) -> object:
        await asyncio.sleep(1)
        return await begin(ask)  # type: ignore[arg-type]

    node.store.override("begin", slowly)
    first = stage.send(node, "First")
    await stage.sleep(0.1)
    watch = await stage.submit(node, "Second", queues=True)
    assert stage.loop.time() < 5
    gate.open.set()
    assert (await first).ok and (await node.run(watch.ended)).ok
    assert len(await stage.turns()) == 2


def test_more_than_may_wait_are_refused_and_a_free_session_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "background_queued_tenant_max", 1)

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, _ = await stage.answering(node)
        watch = await queue(stage, node, "One")
        with pytest.raises(QueueFull):
            await stage.submit(node, "Two", queues=True)
        other = await stage.submit(node, "Elsewhere", queues=True, name=SessionKey("free"))
        assert other.admission.how == "began"
        assert (await node.run(other.ended)).ok
        known = await stage.submit(node, "Again", queues=True, name=SessionKey("free"))
        assert known.admission.how == "began"
        gate.open.set()
        assert (await node.run(watch.ended)).ok

    act_out(scenario, "memory")


@on_stage
async def test_no_room_keeps_it_waiting_and_the_next_one_begins_when_there_is(stage: Stage) -> None:
    stage.world._background_max = 1
    node = await stage.boot()
    elsewhere = stage.parts["Long"] = Gate()
    occupying = await stage.submit(node, "Long", queues=True, name=SessionKey("elsewhere"))
    gate, first = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    gate.open.set()
    await first
    await stage.sleep(3 * limits.sweep_s)
    assert (await row_of(stage, watch.admission.turn_id)).state == "queued"
    elsewhere.open.set()
    for each in (occupying, watch):
        assert (await node.run(each.ended)).ok


@on_stage
async def test_no_room_keeps_nobody_waiting_whose_client_is_there(stage: Stage) -> None:
    """What has not begun for want of room, and what waits behind it, is played because a request waits for both."""
    stage.world._background_max = 1
    node = await stage.boot()
    elsewhere = stage.parts["Long"] = Gate()
    await stage.submit(node, "Long", queues=True, name=SessionKey("elsewhere"))
    await stage.submit(node, "No room", queues=True)
    await queue(stage, node, "Later")
    assert (await stage.send(node, "After that")).ok
    assert stage.played == ["Long", "No room", "Later", "After that"]
    elsewhere.open.set()


@on_stage
async def test_who_interrupts_goes_before_those_who_wait(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    for text in ("A", "B"):
        await queue(stage, node, text)
    now = await queue(stage, node, "Now", on_busy="interrupt")
    gate.open.set()
    assert (await node.run(now.ended)).ok
    await stage.until(lambda: "B" in stage.played)
    assert stage.played == ["Wait", "Now", "A", "B"]


@on_stage
async def test_one_that_cannot_be_opened_keeps_nobody_else_waiting(stage: Stage) -> None:
    await _is_stuck_alone(stage, "snapshot")


@on_stage
async def test_one_that_cannot_even_be_read_keeps_nobody_else_waiting(stage: Stage) -> None:
    await _is_stuck_alone(stage, "journal")


async def _is_stuck_alone(stage: Stage, unreadable: str) -> None:
    node = await stage.boot()
    broken = await stage.answering(node)
    stuck = await queue(stage, node, "Stuck")
    other = stage.parts["Elsewhere"] = Gate()
    stage.send(node, "Elsewhere", name=SessionKey("other"))
    await stage.until(lambda: "Elsewhere" in stage.played)
    watch = await queue(stage, node, "Not stuck", name=SessionKey("other"))

    readable = getattr(node.store, unreadable)
    torn = {"snapshot": stuck.admission.session_id, "journal": stuck.admission.turn_id}

    async def read(tenant: object, wanted: object, **more: object) -> object:
        if wanted == torn[unreadable]:
            raise StoreUnusable("a page of it cannot be read")
        return await readable(tenant, wanted, **more)

    node.store.override(unreadable, read)
    for gate in (broken[0], other):
        gate.open.set()
    assert (await node.run(watch.ended)).ok
    assert (await row_of(stage, stuck.admission.turn_id)).state == "queued"


@on_stage
async def test_a_sweep_survives_what_nobody_has_thought_of(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node)
    watch = await queue(stage, node, "Later")
    failures = iter([AssertionError("nobody has thought of this")])
    look = node.store.queued

    async def queued(*, limit: int) -> object:
        for failure in failures:
            raise failure
        return await look(limit=limit)

    node.store.override("queued", queued)
    gate.open.set()
    assert (await node.run(watch.ended)).ok
    assert not list(failures)
