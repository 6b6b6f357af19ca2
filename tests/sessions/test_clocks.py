"""Machines whose clocks are hours apart, over one store: deadlines are the store's, and nobody fails for a clock."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.ids import TurnId
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.turns.lease import Lease
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ManualClock
from tests.simulation.clients import TENANT
from tests.simulation.stage import Gate, Stage, act_out
from tests.simulation.world import EPOCH_MS

HOUR_S = 3600.0
OFF = pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S, 12 * HOUR_S], ids=lambda s: f"{s:g} s")
HOMES = pytest.mark.parametrize("home", ["memory", "sqlite"])

# ── a clock that follows the store's ─────────────────────────────────────────────────────────


def test_a_clock_is_set_by_the_store_and_goes_on_by_itself() -> None:
    own = ManualClock(at_ms=5_000_000)
    ambient = Ambient(own_ms=own.now_ms)
    ambient.follow(1_000_000, asked_ms=5_000_000, told_ms=5_000_000)
    assert ambient.now_ms() == 1_000_000
    own.advance(2)
    assert ambient.now_ms() == 1_002_000


def test_a_slow_answer_that_agrees_changes_nothing() -> None:
    own = ManualClock(at_ms=0)
    ambient = Ambient(own_ms=own.now_ms)
    ambient.follow(1_000, asked_ms=0, told_ms=0)
    ambient.follow(5_000, asked_ms=100, told_ms=9_000)
    assert ambient.now_ms() == 1_000


def test_an_answer_that_disagrees_is_taken_for_as_late_as_it_can_be() -> None:
    """So nothing runs out before its time."""
    own = ManualClock(at_ms=10_000)
    for before in (0, 99_999):
        ambient = Ambient(own_ms=own.now_ms)
        ambient.follow(before, asked_ms=10_000, told_ms=10_000)
        ambient.follow(50_000, asked_ms=9_000, told_ms=10_000)
        assert ambient.now_ms() == 50_000


async def test_every_renewal_sets_the_clock() -> None:
    machine, database = ManualClock(at_ms=7 * 3_600_000), ManualClock(at_ms=3_600_000)
    ambient = Ambient(own_ms=machine.now_ms)
    store = MemoryStore(now_ms=database.now_ms)
    lease = Lease(store, ambient.node_id(), monotonic=lambda: 0.0, ambient=ambient)
    await lease.renew()
    assert ambient.now_ms() == database.now_ms()
    database.advance(60)  # somebody has set it
    await lease.renew()
    assert ambient.now_ms() == database.now_ms()
    assert ambient.mint(TurnId).minted_at_ms == database.now_ms()
    assert lease.node.minted_at_ms == machine.now_ms(), "operators see how far the two are apart"


# ── turns that change hands ──────────────────────────────────────────────────────────────────


@HOMES
@OFF
def test_a_queued_turn_waits_as_long_as_it_may(home: str, off_s: float) -> None:
    async def scenario(stage: Stage) -> None:
        one = await stage.boot(ahead_s=0)
        gate, _ = await stage.answering(one)
        watch = await stage.submit(one, "Later", queues=True, deadline_s=60.0)
        other = await stage.boot(ahead_s=off_s)
        late = await stage.submit(other, "Too late", queues=True, deadline_s=30.0)
        await stage.sleep(20)
        gate.open.set()
        assert (await one.run(watch.ended)).ok
        assert (await other.run(late.ended)).ok

    act_out(scenario, home)  # type: ignore[arg-type]


@HOMES
@OFF
def test_a_queued_turn_waits_no_longer_than_it_may(home: str, off_s: float) -> None:
    async def scenario(stage: Stage) -> None:
        one, other = await stage.boot(ahead_s=0), await stage.boot(ahead_s=off_s)
        gate, _ = await stage.answering(one)
        watch = await stage.submit(other, "Later", queues=True, deadline_s=8.0)
        ending = await one.run(watch.ended)
        assert (ending.kept, ending.by) == (False, "deadline")
        assert 8.0 <= stage.loop.time() <= 8.0 + 2 * limits.sweep_s
        gate.open.set()

    act_out(scenario, home)  # type: ignore[arg-type]


@HOMES
@OFF
@pytest.mark.parametrize("how", ["handed over", "recovered"])
def test_a_turn_that_changes_hands_has_the_time_that_it_had(
    home: str, off_s: float, how: str
) -> None:
    async def scenario(stage: Stage) -> None:
        one, other = await stage.boot(ahead_s=0), await stage.boot(ahead_s=off_s)
        gate = stage.parts["Long"] = Gate()
        watch = await stage.submit(one, "Long", queues=True, deadline_s=120.0)
        await stage.until(lambda: "Long" in stage.played)
        if how == "handed over":
            await one.run(lambda: one.sessions.close(grace_s=0.0))
        stage.world.bury(one)
        gate.open.set()
        found = await other.run(lambda: other.sessions.watch(TENANT, watch.admission.turn_id))
        ending = await other.run(found.ended)
        assert ending.ok, ending
        row = await stage.store.turn(TENANT, watch.admission.turn_id)
        assert row is not None and row.ended_ms < EPOCH_MS + 120_000

    act_out(scenario, home)  # type: ignore[arg-type]
