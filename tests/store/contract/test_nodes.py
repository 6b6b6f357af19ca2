"""Nodes: who is alive, who may take over whose turn, and what a takeover changes."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from holdfast import limits
from holdfast.errors import StoreClosed, Superseded
from holdfast.ids import Minter, NodeId, SessionId, Tenant
from holdfast.store.outcomes import (
    Fence,
    HolderAlive,
    NotEligible,
    NothingOpen,
    Orphan,
    Taken,
    TakeoverOutcome,
)
from holdfast.store.rows import SignalKind
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, TTL_MS, Player, Playing
from tests.store.contract.words import OtherPlayer, changes_nothing

TTL_S = TTL_MS / 1000

# ── renewing ─────────────────────────────────────────────────────────────────────────────────


async def test_the_first_renewal_enrols_a_node(
    store: Store, other_player: OtherPlayer, clock: ManualClock
) -> None:
    other = other_player()
    row = await other.renew()
    assert (row.node_id, row.ttl_ms) == (other.node, TTL_MS)
    assert (row.since_ms, row.expires_ms) == (clock.now_ms(), clock.now_ms() + TTL_MS)


async def test_every_node_that_has_not_resigned_is_listed(
    store: Store, player: Player, other_player: OtherPlayer
) -> None:
    own, other = await player.renew(), await other_player().renew()
    assert set(await store.nodes()) == {own, other}
    await store.resign(other.node_id)
    assert await store.nodes() == (own,)


async def test_a_renewal_in_time_keeps_the_record_of_a_node(
    store: Store, player: Player, clock: ManualClock
) -> None:
    since = clock.now_ms()
    for _ in range(5):
        clock.advance(TTL_S - 0.001)
        row = await player.renew()
        assert (row.since_ms, row.expires_ms) == (since, clock.now_ms() + TTL_MS)


async def test_a_gap_starts_the_record_anew(
    store: Store, player: Player, clock: ManualClock
) -> None:
    clock.advance(TTL_S)
    assert (await player.renew()).since_ms == clock.now_ms()


async def test_a_node_that_resigned_and_comes_back_starts_anew(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await store.resign(player.node)
    await store.resign(player.node)
    clock.advance(1)
    assert (await player.renew()).since_ms == clock.now_ms()


async def test_a_nodes_own_ttl_counts(
    store: Store, other_player: OtherPlayer, clock: ManualClock
) -> None:
    other = other_player()
    await other.renew(ttl_ms=1000)
    row = await other.renew(ttl_ms=2000)
    assert (row.ttl_ms, row.expires_ms) == (2000, clock.now_ms() + 2000)


# ── taking over ──────────────────────────────────────────────────────────────────────────────


async def test_the_turn_of_a_dead_node_is_taken_over(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    other = await settled(other_player(), clock)
    turn = await orphaned(player, other, clock)
    before, session = await turn.row(), await store.session(ACME, turn.session_id)
    outcome = await take(store, other, turn)

    assert isinstance(outcome, Taken) and session is not None
    assert outcome.fence == Fence(
        tenant=ACME,
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        token=turn.fence.token + 1,
        nonce="theirs",
    )
    assert outcome.turn == msgspec.structs.replace(
        before, lease_token=outcome.fence.token, attempt=2
    )
    assert await turn.row() == outcome.turn
    assert await store.session(ACME, turn.session_id) == msgspec.structs.replace(
        session, lease_token=outcome.fence.token, lease_nonce="theirs", lease_node=other.node
    )


async def test_a_turn_that_was_taken_over_goes_on_under_its_new_fence(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    other = await settled(other_player(), clock)
    turn = await orphaned(player, other, clock)
    outcome = await take(store, other, turn)
    assert isinstance(outcome, Taken)

    theirs = turn.taken_by(other, outcome)
    await theirs.answer()
    with pytest.raises(Superseded):
        await turn.end()
    await theirs.commit()
    assert (await player.snapshot("trip")).version == 1
    assert (await theirs.row()).attempt == 2


async def test_a_living_holder_is_left_alone(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    turn = await player.open("trip")
    other = await settled(other_player(), clock, alive=player)

    async with changes_nothing(store):
        outcome = await take(store, other, turn)
    assert outcome == HolderAlive(turn_id=turn.turn_id, node=player.node)


async def test_a_node_that_has_just_come_back_judges_nobody(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    """After an outage everybody looks dead; whoever comes back first must not kill everybody."""
    turn = await player.open("trip")
    clock.advance(TTL_S)
    other = other_player()
    assert await take(store, other, turn) == NotEligible()  # has no row
    await other.renew()
    clock.advance(TTL_S - 0.001)
    async with changes_nothing(store):
        assert await take(store, other, turn) == NotEligible()  # not for a whole TTL

    await other.renew()
    clock.advance(0.001)
    assert isinstance(await take(store, other, turn), Taken)


async def test_a_node_that_is_not_live_judges_nobody(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    turn = await player.open("trip")
    await store.release(turn.fence)
    other = other_player()
    await other.renew()
    clock.advance(TTL_S)
    assert await take(store, other, turn) == NotEligible()


async def test_a_node_that_resigned_is_taken_over_at_once(
    store: Store, player: Player, other_player: OtherPlayer
) -> None:
    turn = await player.open("trip")
    other = other_player()
    await other.renew()
    await store.resign(player.node)

    outcome = await take(store, other, turn)
    assert isinstance(outcome, Taken) and outcome.turn.attempt == 2


async def test_a_turn_that_was_handed_over_is_taken_at_once_and_does_not_count_as_a_crash(
    store: Store, player: Player, other_player: OtherPlayer
) -> None:
    turn = await player.open("trip")
    await store.release(turn.fence)
    await store.release(turn.fence)
    session = await store.session(ACME, turn.session_id)
    assert session is not None
    assert (session.lease_node, session.open_turn) == (None, turn.turn_id)
    other = other_player()
    await other.renew()

    outcome = await take(store, other, turn)
    assert isinstance(outcome, Taken) and outcome.turn.attempt == 1


async def test_a_node_that_hands_over_may_still_write_until_somebody_takes_it(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    await store.release(turn.fence)
    await turn.answer()
    await turn.commit()


async def test_a_node_may_take_its_own_turn(store: Store, player: Player) -> None:
    """It has lost its task, and knows better than the clock."""
    turn = await player.open("trip")
    outcome = await take(store, player, turn)
    assert isinstance(outcome, Taken) and outcome.turn.attempt == 1
    assert outcome.fence.token == turn.fence.token + 1


async def test_a_takeover_of_one_turn_leaves_another_alone(store: Store, player: Player) -> None:
    """Between looking for orphans and taking one, its session may have gone on to the next turn."""
    first = await player.play("trip")
    second = await player.open("trip")
    await store.release(second.fence)
    async with changes_nothing(store):
        outcome = await store.takeover(
            ACME, first.session_id, node=player.node, nonce="theirs", turn_id=first.turn_id
        )
    assert outcome == NothingOpen()
    outcome = await store.takeover(
        ACME, first.session_id, node=player.node, nonce="theirs", turn_id=second.turn_id
    )
    assert isinstance(outcome, Taken) and outcome.fence.turn_id == second.turn_id


async def test_crashes_are_counted(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    turn = await player.open("trip")
    for attempt in (2, 3, 4):
        other = await settled(other_player(), clock)
        outcome = await take(store, other, turn)
        assert isinstance(outcome, Taken) and outcome.turn.attempt == attempt


async def test_there_is_nothing_to_take_where_nothing_is_open(
    store: Store, player: Player, mint: Minter
) -> None:
    idle = await player.play("trip")
    gone = await player.open("holiday")
    await store.remove(ACME, gone.session_id)

    for session_id in (idle.session_id, gone.session_id, mint(SessionId)):
        async with changes_nothing(store):
            outcome = await store.takeover(ACME, session_id, node=player.node, nonce="theirs")
        assert outcome == NothingOpen()


# ── a cancel that nobody heeds ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["cancel", "interrupt"])
async def test_a_holder_that_ignores_a_cancel_is_overruled(
    store: Store,
    player: Player,
    other_player: OtherPlayer,
    clock: ManualClock,
    kind: SignalKind,
) -> None:
    turn = await player.open("trip")
    other = other_player()
    await store.signal(ACME, turn.turn_id, kind=kind)
    clock.advance(limits.cancel_grace_s - 0.001)
    await store.signal(ACME, turn.turn_id, kind=kind)
    for each in (player, other):
        await each.renew()
    alive = HolderAlive(turn_id=turn.turn_id, node=player.node)
    assert await take(store, other, turn, ignored_cancel=True) == alive

    clock.advance(0.001)
    assert await take(store, other, turn) == alive, "only who asks for it overrules"
    outcome = await take(store, other, turn, ignored_cancel=True)
    assert isinstance(outcome, Taken) and outcome.turn.attempt == 1


async def test_without_a_cancel_nobody_is_overruled(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    turn = await player.open("trip")
    other = other_player()
    await store.signal(ACME, turn.turn_id, kind="steer")
    clock.advance(limits.cancel_grace_s)
    for each in (player, other):
        await each.renew()
    outcome = await take(store, other, turn, ignored_cancel=True)
    assert outcome == HolderAlive(turn_id=turn.turn_id, node=player.node)


# ── orphans ──────────────────────────────────────────────────────────────────────────────────


async def test_orphans_are_the_open_turns_without_a_living_holder_oldest_first(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    other, sweeper = other_player(), other_player()
    await other.renew()
    handed_over = await player.open("handed-over")
    await store.release(handed_over.fence)
    abandoned = await other.open("abandoned")
    await player.open("held")
    await player.play("idle")
    await store.resign(other.node)

    expected = [orphan(handed_over, handed_over=True), orphan(abandoned)]
    assert list(await store.orphans(node=sweeper.node, limit=10)) == expected
    assert list(await store.orphans(node=sweeper.node, limit=1)) == expected[:1]
    async with changes_nothing(store):
        await store.orphans(node=sweeper.node, limit=10)

    clock.advance(TTL_S)
    assert len(await store.orphans(node=sweeper.node, limit=10)) == 3


async def test_the_turns_that_the_asking_node_holds_are_among_the_orphans(
    store: Store, player: Player
) -> None:
    """It knows which of them it plays; the others it has lost."""
    turn = await player.open("trip")
    assert await store.orphans(node=player.node, limit=10) == (orphan(turn),)


async def test_orphans_can_be_looked_for_among_some_turns(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    """As a node does that wants to know which turns it still holds."""
    first, second = await player.open("trip"), await player.open("other-trip")
    await other_player().renew()
    both = [(ACME, first.turn_id), (ACME, second.turn_id)]
    among = partial(store.orphans, node=player.node, limit=10)
    assert await among(among=both) == (orphan(first), orphan(second))
    assert await among(among=both[1:]) == (orphan(second),)
    assert await among(among=[]) == ()
    assert await among(among=[(Tenant("other"), first.turn_id)]) == ()
    taker = await settled(other_player(), clock)
    await take(store, taker, first)
    assert await among(among=both) == (orphan(second),)


async def test_what_was_taken_over_is_no_orphan_any_more(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock, mint: Minter
) -> None:
    other = await settled(other_player(), clock)
    turn = await orphaned(player, other, clock)
    assert await store.orphans(node=other.node, limit=10) == (orphan(turn),)
    await take(store, other, turn)
    assert await store.orphans(node=mint(NodeId), limit=10) == ()


# ── closing ──────────────────────────────────────────────────────────────────────────────────


async def test_a_closed_store_says_so(store: Store, player: Player) -> None:
    ask = await player.ask("trip")
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.begin(ask)
    with pytest.raises(StoreClosed):
        await store.session_ids(ACME, after=None, limit=1)


# ── words ────────────────────────────────────────────────────────────────────────────────────


def orphan(turn: Playing, *, handed_over: bool = False) -> Orphan:
    holder = None if handed_over else turn.player.node
    return Orphan(tenant=ACME, session_id=turn.session_id, turn_id=turn.turn_id, holder=holder)


async def settled(player: Player, clock: ManualClock, *, alive: Player | None = None) -> Player:
    """A node that has been alive for a whole TTL. Everybody else is dead then, but for `alive`."""
    await player.renew()
    for _ in range(2):
        clock.advance(TTL_S / 2)
        await player.renew()
        if alive is not None:
            await alive.renew()
    return player


async def orphaned(player: Player, other: Player, clock: ManualClock) -> Playing:
    """A turn whose holder is dead by the clock, while `other` lives on."""
    await player.renew()
    turn = await player.open("trip")
    for _ in range(2):
        clock.advance(TTL_S / 2)
        await other.renew()
    return turn


async def take(
    store: Store, player: Player, turn: Playing, *, ignored_cancel: bool = False
) -> TakeoverOutcome:
    return await store.takeover(
        ACME, turn.session_id, node=player.node, nonce="theirs", ignored_cancel=ignored_cancel
    )
