"""Retention: what goes, what stays, and that it goes in small steps."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.core import events as ev
from holdfast.core.conversation import Titled
from holdfast.ids import IdempotencyKey, Minter, NodeId, SessionId, Version
from holdfast.store.base import Attempt, Gone, NotEligible, Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing

KEY = IdempotencyKey("k")


async def prune(store: Store, *, limit: int = 500) -> int:
    """Everything that may go now, in steps of `limit`; how much went."""
    gone = 0
    for _ in range(1000):
        step = await store.prune(limit=limit)
        assert 0 <= step.rows <= limit, "a step stays small"
        gone += step.rows
        if not step.more:
            return gone
        assert step.rows, "a step that says there is more has done something"
    raise AssertionError("it never ends")


async def test_there_is_nothing_to_prune_in_a_fresh_store(store: Store, player: Player) -> None:
    await player.play("trip", key="k", replayable=True)
    await player.discard("trip")
    await player.play(None)
    await player.open("holiday")
    async with changes_nothing(store, claims=["k"], nodes=[player.node]):
        assert await prune(store) == 0


async def test_a_discarded_turn_goes_after_a_week(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.play("trip")
    turn = await player.open("trip")
    await store.signal(ACME, turn.turn_id, kind="cancel")
    clock.advance(60)
    await turn.end("cancelled")
    clock.advance(limits.discarded_keep_s - 0.001)
    await prune(store)
    assert (await turn.row()).state == "discarded"
    assert await store.journal(ACME, turn.turn_id)

    clock.advance(0.001)
    before = await player.snapshot("trip")
    await prune(store)
    assert await store.turn(ACME, turn.turn_id) is None
    assert await store.journal(ACME, turn.turn_id) == ()
    assert await store.find_signal(ACME, turn.turn_id, 1) is None
    assert await player.snapshot("trip") == before


async def test_the_events_of_a_committed_turn_go_after_a_day_and_the_turn_stays(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip", replayable=True)
    clock.advance(limits.idempotency_keep_s - 0.001)
    await prune(store)
    assert await store.journal(ACME, turn.turn_id)

    clock.advance(0.001)
    before = await player.snapshot("trip")
    await prune(store)
    assert await store.journal(ACME, turn.turn_id) == ()
    assert (await turn.row()).state == "committed"
    assert await player.snapshot("trip") == before


@pytest.mark.parametrize("replayable", [True, False])
async def test_what_was_said_to_a_committed_turn_goes_after_a_day(
    store: Store, player: Player, clock: ManualClock, replayable: bool
) -> None:
    turn = await player.open("trip", replayable=replayable)
    await store.signal(ACME, turn.turn_id, kind="cancel")
    await turn.answer()
    await turn.commit()
    clock.advance(limits.idempotency_keep_s - 0.001)
    await prune(store)
    assert await store.find_signal(ACME, turn.turn_id, 1) is not None

    clock.advance(0.001)
    await prune(store)
    assert await store.find_signal(ACME, turn.turn_id, 1) is None


async def test_an_idempotency_key_goes_a_day_after_its_turn_ended(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k")
    clock.advance(limits.idempotency_keep_s * 3)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is not None, "it runs"

    await turn.end(settlement="done")
    clock.advance(limits.idempotency_keep_s - 0.001)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is not None
    clock.advance(0.001)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is None


async def test_an_open_turn_never_goes(store: Store, player: Player, clock: ManualClock) -> None:
    """However long ago its node died: somebody has to end it, or resume it."""
    turn = await player.open(None)
    clock.advance(limits.anonymous_keep_s * 2)
    async with changes_nothing(store):
        await prune(store)
    assert (await turn.row()).state == "open"


async def test_an_anonymous_line_goes_a_month_after_its_last_turn(
    store: Store, player: Player, clock: ManualClock
) -> None:
    named = await player.play("trip")
    first = await player.play(None)
    clock.advance(60)
    await player.renew()
    await player.play(first.session_id)
    clock.advance(limits.anonymous_keep_s - 0.001)
    await prune(store)
    assert await store.snapshot(ACME, first.session_id)

    clock.advance(0.001)
    await prune(store)
    row = await store.session(ACME, first.session_id)
    assert row is not None and row.state == "deleted", "it says that it was there"
    assert await store.snapshot(ACME, named.session_id)
    assert (await store.stats()).items == 2


async def test_everything_of_a_deleted_session_goes_but_its_tombstone(
    store: Store, player: Player
) -> None:
    stays = await player.play("stays")
    turn = await player.play("trip", changes=(ev.StateSet(name="todo", value="[]"),))
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo"))])
    await store.put_blob(ACME, turn.session_id, b"picture")
    await player.discard("trip")
    running = await player.open("trip")
    row = await store.remove(ACME, turn.session_id)
    await prune(store)

    assert await store.session(ACME, turn.session_id) == row
    dump = await store.dump(ACME, turn.session_id)
    assert dump is not None
    assert (dump.turns, dump.items, dump.state, dump.annotations, dump.blobs) == ((),) * 5
    assert await store.turn(ACME, turn.turn_id) is None
    assert await store.journal(ACME, running.turn_id) == ()
    assert await store.snapshot(ACME, stays.session_id)
    assert await prune(store) == 0


async def test_a_key_says_gone_for_as_long_as_it_is_kept(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip", key="k", request_hash=b"same")
    await store.remove(ACME, turn.session_id)
    clock.advance(limits.idempotency_keep_s - 0.001)
    await prune(store)
    attempt = Attempt(request_hash=b"same", key=KEY)
    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await store.find_attempt(ACME, attempt) == gone
    assert (await store.stats()).items == 0, "the bytes need not wait for it"

    clock.advance(0.001)
    await prune(store)
    assert await store.find_attempt(ACME, attempt) is None
    assert await store.turn(ACME, turn.turn_id) is None


async def test_dead_nodes_go_after_a_day_if_they_hold_nothing(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    """A holder whose row is gone would be dead at once, without the wait that protects it."""
    holder = Player(store, mint)
    row = await holder.renew()
    turn = await holder.open("trip")
    expires_in_s = (row.expires_ms - clock.now_ms()) / 1000
    clock.advance(expires_in_s + limits.dead_node_keep_s - 0.001)
    assert await prune(store) == 0
    clock.advance(0.001)
    assert await prune(store) == 1, "the player's"

    await player.renew()
    taken = await store.takeover(ACME, turn.session_id, node=player.node, nonce="theirs")
    assert taken == NotEligible(), "the holder's is still there"


async def test_blobs_of_a_session_that_never_came_to_be_go_after_a_day(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    never, came = mint(SessionId), mint(SessionId)
    await store.put_blob(ACME, never, b"picture")
    digest = await store.put_blob(ACME, came, b"picture")
    await player.play("trip", fresh=came)
    clock.advance(limits.idempotency_keep_s - 1)
    assert await prune(store) == 0
    clock.advance(2)
    assert await prune(store) == 1
    assert await store.blob(ACME, came, digest) == b"picture"


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_small_steps_lead_to_the_same_place(
    store: Store, player: Player, clock: ManualClock, mint: Minter, limit: int
) -> None:
    for n in range(3):
        await player.play("trip", key=f"k{n}", replayable=True)
        await player.discard("holiday")
        await player.play(None, changes=(ev.StateSet(name="todo", value="[]"),))
    parent, fork = await player.play("parent"), mint(SessionId)
    await store.fork(ACME, parent.session_id, version=Version(1), fresh=fork)
    await store.remove(ACME, parent.session_id)
    for _ in range(2):
        await store.renew(mint(NodeId), ttl_ms=1000)
    clock.advance(limits.anonymous_keep_s)
    before = await player.snapshot("trip")

    assert (await store.prune(limit=limit)).more
    assert await prune(store, limit=limit) > 0
    stats = await store.stats()
    assert (stats.turns_discarded, stats.turns_committed, stats.sessions) == (0, 4, 3)
    assert stats.items == 8, "the trip's three turns, and the one that the fork reads"
    assert await player.snapshot("trip") == before
    assert (await player.snapshot(fork)).version == 1
    assert await prune(store, limit=limit) == 0
