"""Keys: what a client's name means, and how a reset or a rewind makes it mean something else."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.history import chain
from holdfast.core.history.conversation import Titled
from holdfast.errors import NameTaken, SessionGone, SessionMissing
from holdfast.ids import Minter, SessionId, SessionKey, Version
from holdfast.store.rows import KeyRow, SessionRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing
from tests.store.state import session_state

TRIP = SessionKey("trip")


async def test_a_key_that_nobody_used_means_nothing(store: Store, player: Player) -> None:
    assert await store.resolve(ACME, TRIP) is None


async def test_keys_are_case_sensitive(store: Store, player: Player) -> None:
    await player.play("trip")
    assert await store.resolve(ACME, SessionKey("Trip")) is None


# ── reset ────────────────────────────────────────────────────────────────────────────────────


async def test_a_reset_makes_the_key_mean_an_empty_session(
    store: Store, player: Player, mint: Minter, clock: ManualClock
) -> None:
    await player.play("trip")
    now, fresh = clock.advance(1), mint(SessionId)
    row = await store.bind(ACME, TRIP, fresh=fresh)

    assert row == SessionRow(
        tenant=ACME, id=fresh, link=chain.GENESIS, created_ms=now, active_ms=now
    )
    assert await store.session(ACME, fresh) == row
    assert await store.resolve(ACME, TRIP) == key_row(fresh, generation=2)
    await player.play("trip")
    assert (await player.snapshot("trip")).version == 1


async def test_the_old_session_stays_as_it_is(store: Store, player: Player, mint: Minter) -> None:
    turn = await player.play("trip")
    before = await session_state(store, ACME, turn.session_id)
    await store.bind(ACME, TRIP, fresh=mint(SessionId))

    after = await session_state(store, ACME, turn.session_id)
    assert (after.session, after.snapshots, after.turns) == (
        before.session,
        before.snapshots,
        before.turns,
    )
    assert after.keys == ()
    await player.play(turn.session_id)


async def test_a_turn_that_is_open_goes_on_in_the_old_session(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.open("trip")
    fresh = await store.bind(ACME, TRIP, fresh=mint(SessionId))
    await player.play("trip")
    await turn.answer()
    await turn.commit()

    assert (await player.snapshot(turn.session_id)).version == 1
    assert (await player.snapshot(fresh.id)).version == 1


async def test_a_reset_of_a_key_that_nobody_used_makes_a_session(
    store: Store, player: Player, mint: Minter
) -> None:
    fresh = mint(SessionId)
    await store.bind(ACME, TRIP, fresh=fresh)
    assert await store.resolve(ACME, TRIP) == key_row(fresh, generation=1)


async def test_a_reset_of_a_key_whose_session_was_deleted_starts_a_new_one(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    await store.remove(ACME, turn.session_id)
    fresh = mint(SessionId)
    await store.bind(ACME, TRIP, fresh=fresh)

    assert await player.id_of("trip") == fresh
    assert (await player.open("trip")).session_id == fresh


# ── rewind ───────────────────────────────────────────────────────────────────────────────────


async def test_a_rewind_makes_the_key_mean_a_fork_at_that_version(
    store: Store, player: Player, mint: Minter
) -> None:
    for n in range(3):
        await player.play("trip", f"Question {n}")
    old, fresh = await player.id_of("trip"), mint(SessionId)
    at_two = await player.snapshot(old, version=2)
    row = await store.bind(ACME, TRIP, fresh=fresh, version=Version(2))

    assert (row.id, row.head) == (fresh, 2)
    assert await store.session(ACME, fresh) == row
    assert await store.resolve(ACME, TRIP) == key_row(fresh, generation=2)
    assert await player.snapshot("trip") == at_two.forked(fresh)
    assert (await player.snapshot(old)).version == 3
    await player.play("trip", "Another question 2")
    assert (await player.snapshot("trip")).version == 3


async def test_a_rewind_to_nothing_is_possible(store: Store, player: Player, mint: Minter) -> None:
    await player.play("trip")
    await store.bind(ACME, TRIP, fresh=mint(SessionId), version=Version(0))
    snapshot = await player.snapshot("trip")
    assert (snapshot.version, len(snapshot.items), snapshot.link) == (0, 0, chain.GENESIS)


async def test_there_is_no_rewind_to_what_never_was(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    gone = await player.play("gone")
    await store.remove(ACME, gone.session_id)
    async with changes_nothing(store):
        for key, version in (("trip", 2), ("unknown", 0), ("gone", 1)):
            with pytest.raises(SessionMissing):
                await store.bind(
                    ACME, SessionKey(key), fresh=mint(SessionId), version=Version(version)
                )
    assert await player.id_of("trip") == turn.session_id


# ── binding again ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [None, Version(1)])
async def test_binding_again_returns_the_same_row(
    store: Store, player: Player, mint: Minter, clock: ManualClock, version: Version | None
) -> None:
    await player.play("trip")
    await player.play("trip")
    fresh = mint(SessionId)
    row = await store.bind(ACME, TRIP, fresh=fresh, version=version)
    clock.advance(1)

    async with changes_nothing(store):
        assert await store.bind(ACME, TRIP, fresh=fresh, version=version) == row


@pytest.mark.parametrize("version", [None, Version(1)])
async def test_an_old_retry_does_not_undo_what_came_later(
    store: Store, player: Player, mint: Minter, version: Version | None
) -> None:
    await player.play("trip")
    first, second = mint(SessionId), mint(SessionId)
    row = await store.bind(ACME, TRIP, fresh=first, version=version)
    await store.bind(ACME, TRIP, fresh=second)

    async with changes_nothing(store):
        assert await store.bind(ACME, TRIP, fresh=first, version=version) == row
    assert await player.id_of("trip") == second


async def test_every_reset_and_rewind_is_counted(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    for generation in (2, 3, 4):
        version = turn.base.version if generation == 3 else None
        await store.bind(ACME, TRIP, fresh=mint(SessionId), version=version)
        found = await store.resolve(ACME, TRIP)
        assert found is not None and found.generation == generation


async def test_of_many_resets_at_once_the_key_means_one(
    store: Store, player: Player, mint: Minter
) -> None:
    rows = await asyncio.gather(*(store.bind(ACME, TRIP, fresh=mint(SessionId)) for _ in range(4)))
    found = await store.resolve(ACME, TRIP)
    assert found is not None and found.generation == 4
    assert found.session_id in [row.id for row in rows]


# ── a name more ──────────────────────────────────────────────────────────────────────────────


async def test_a_session_can_have_a_name_more(store: Store, player: Player, mint: Minter) -> None:
    turn = await player.play("trip")
    other = await player.play("other")
    fork = await store.fork(
        ACME, turn.session_id, version=Version(1), fresh=mint(SessionId), anonymous=True
    )
    by_train = SessionKey("by-train")
    row = await store.name(ACME, fork.id, by_train)
    assert not row.anonymous and row == await store.session(ACME, fork.id), "it is listed now"
    assert await store.resolve(ACME, by_train) == KeyRow(
        tenant=ACME, key=by_train, session_id=fork.id
    )
    await player.play("by-train")
    assert (await player.snapshot(fork.id)).version == 2
    assert (await player.snapshot("trip")).version == 1

    async with changes_nothing(store):
        assert (await store.name(ACME, fork.id, by_train)).id == fork.id
        with pytest.raises(NameTaken, match="choose another name"):
            await store.name(ACME, other.session_id, by_train)
        with pytest.raises(SessionMissing):
            await store.name(ACME, mint(SessionId), SessionKey("new"))
    await store.remove(ACME, fork.id)
    with pytest.raises(SessionGone):
        await store.name(ACME, fork.id, SessionKey("new"))


async def test_a_session_knows_the_keys_that_mean_it(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    info = await store.info(ACME, turn.session_id)
    assert info is not None and info.keys == (TRIP,)
    assert info.session == await store.session(ACME, turn.session_id)

    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo"))])
    fresh = await store.bind(ACME, TRIP, fresh=mint(SessionId))
    old, new = await store.info(ACME, turn.session_id), await store.info(ACME, fresh.id)
    assert old is not None and new is not None
    assert (old.keys, new.keys) == ((), (TRIP,))
    assert new.session.title == ""
    assert await store.info(ACME, mint(SessionId)) is None


def key_row(session_id: SessionId, *, generation: int) -> KeyRow:
    return KeyRow(tenant=ACME, key=TRIP, session_id=session_id, generation=generation)
