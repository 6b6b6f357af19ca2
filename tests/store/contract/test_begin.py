"""T1: what it answers, in which order it looks, and what it leaves behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.core.history import chain
from holdfast.core.turns.events import Began
from holdfast.core.turns.journal import decode_records, encode_records, numbered
from holdfast.ids import Minter, NodeId, SessionId, SessionKey, Version
from holdfast.store.outcomes import (
    Begin,
    BeginOutcome,
    Busy,
    Gone,
    Joined,
    Mismatch,
    Missing,
    Moved,
    NotLive,
    Replay,
    Started,
)
from holdfast.store.rows import KeyRow, SessionRow, TurnRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, TTL_MS, Player
from tests.store.contract.words import OtherPlayer, changes_nothing

# ── beginning turns ──────────────────────────────────────────────────────────────────────────────


async def test_a_first_turn_makes_its_session(
    store: Store, player: Player, clock: ManualClock
) -> None:
    now = clock.advance(1)
    ask = await player.ask("trip", "Hello")
    outcome = await store.begin(ask)

    assert isinstance(outcome, Started) and outcome.created and outcome.retry_of is None
    fence = outcome.fence
    assert await store.session(ACME, fence.session_id) == SessionRow(
        tenant=ACME,
        id=fence.session_id,
        link=chain.GENESIS,
        lease_token=fence.token,
        lease_nonce=ask.nonce,
        lease_node=player.node,
        open_turn=ask.request.turn_id,
        created_ms=now,
        active_ms=now,
    )
    assert await store.resolve(ACME, SessionKey("trip")) == KeyRow(
        tenant=ACME, key=SessionKey("trip"), session_id=fence.session_id, generation=1
    )


async def test_a_turn_begins_as_it_was_decided(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.play("trip")
    now = clock.advance(1)
    ask = await player.ask("trip", "Hello", client_attempt=1, replayable=True)
    outcome = await store.begin(ask)

    assert isinstance(outcome, Started) and not outcome.created
    assert await store.turn(ACME, ask.request.turn_id) == TurnRow(
        tenant=ACME,
        turn_id=ask.request.turn_id,
        session_id=outcome.fence.session_id,
        base_head=Version(1),
        state="open",
        client_attempt=1,
        lease_token=outcome.fence.token,
        agent="butler",
        source_digest="d1",
        request_hash=ask.attempt.request_hash,
        replayable=True,
        began_ms=now,
    )


async def test_the_request_is_record_0(store: Store, player: Player, clock: ManualClock) -> None:
    """With it, any node can tell what was to be done, and go on."""
    ask = await player.ask("trip", "Hello")
    await store.begin(ask)

    [row] = await store.journal(ACME, ask.request.turn_id)
    record = numbered((Began(request=ask.request),), first=0, at_ms=clock.now_ms())
    assert (row.n, row.records) == (0, encode_records(record))
    assert decode_records(row.records) == record


async def test_an_anonymous_request_makes_a_session_without_a_key(
    store: Store, player: Player
) -> None:
    turn = await player.open(None, "Hello")

    info = await store.info(ACME, turn.session_id)
    assert info is not None and info.session.anonymous and info.keys == ()
    assert turn.started.created


async def test_a_session_that_exists_is_found_by_its_id(player: Player) -> None:
    first = await player.play("trip")
    second = await player.open(first.session_id)

    assert second.session_id == first.session_id
    assert not second.started.created


async def test_every_turn_has_a_greater_token_than_the_one_before(player: Player) -> None:
    tokens = [(await player.play("trip")).fence.token for _ in range(3)]
    tokens.append((await player.discard("trip")).fence.token)
    tokens.append((await player.open("trip")).fence.token)

    assert tokens == sorted(set(tokens))


async def test_a_session_whose_first_turn_was_discarded_is_not_new_any_more(player: Player) -> None:
    first = await player.discard("trip")
    second = await player.open("trip")

    assert (first.started.created, second.started.created) == (True, False)
    assert second.session_id == first.session_id


# ── what begin refuses ───────────────────────────────────────────────────────────────────────────
# All but `Started` leave nothing behind.


async def test_an_unknown_id_is_missing(store: Store, player: Player, mint: Minter) -> None:
    assert await refused(store, await player.ask(mint(SessionId))) == Missing()


async def test_an_unknown_key_is_missing_if_nothing_is_to_be_made(
    store: Store, player: Player
) -> None:
    assert await refused(store, await player.ask("trip", create=False)) == Missing()


async def test_a_known_key_is_found_even_if_nothing_is_to_be_made(player: Player) -> None:
    await player.play("trip")
    assert isinstance(await player.begin("trip", create=False), Started)


async def test_a_second_turn_is_told_who_is_busy(store: Store, player: Player) -> None:
    await player.play("trip")
    running = await player.open("trip")

    assert await refused(store, await player.ask("trip")) == Busy(
        session_id=running.session_id, turn_id=running.turn_id, holder_alive=True
    )


async def test_a_holder_on_another_node_is_alive_as_long_as_its_row(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    running = await player.open("trip")
    other = other_player()
    clock.advance((TTL_MS - 1) / 1000)
    await other.renew()
    assert await refused(store, await other.ask("trip")) == Busy(
        session_id=running.session_id, turn_id=running.turn_id, holder_alive=True
    )

    clock.advance(0.001)
    assert await refused(store, await other.ask("trip")) == Busy(
        session_id=running.session_id, turn_id=running.turn_id, holder_alive=False
    )


async def test_a_turn_that_was_handed_over_has_no_living_holder(
    store: Store, player: Player
) -> None:
    running = await player.open("trip")
    await store.release(running.fence)

    outcome = await refused(store, await player.ask("trip"))
    assert isinstance(outcome, Busy) and not outcome.holder_alive


async def test_a_head_that_has_moved_sends_the_request_back(store: Store, player: Player) -> None:
    stale = await player.ask("trip")
    turn = await player.play("trip")

    moved = Moved(session_id=turn.session_id, head=Version(1))
    assert await refused(store, stale) == moved
    stale = await player.ask("trip")
    await player.play("trip")
    assert await refused(store, stale) == Moved(session_id=turn.session_id, head=Version(2))


async def test_a_key_that_means_another_session_sends_the_request_back(
    store: Store, player: Player, mint: Minter
) -> None:
    await player.play("trip")
    stale = await player.ask("trip")
    fresh = await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))

    assert await refused(store, stale) == Moved(session_id=fresh.id, head=Version(0))


async def test_a_waiter_whose_session_was_deleted_is_told_so(store: Store, player: Player) -> None:
    """The key is free by then; beginning anew under it would be silent amnesia."""
    turn = await player.play("trip")
    by_key, by_id = await player.ask("trip"), await player.ask(turn.session_id)
    await store.remove(ACME, turn.session_id)

    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await refused(store, by_key) == gone
    assert await refused(store, by_id) == gone


async def test_a_session_that_was_idle_for_too_long_is_gone(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip")
    clock.advance(60)
    await player.renew()
    late = await player.ask("trip", expire_after_ms=59_999)
    in_time = await player.ask("trip", expire_after_ms=60_000)

    assert await refused(store, late) == Gone(session_id=turn.session_id, why="expired")
    assert isinstance(await store.begin(in_time), Started)


async def test_a_session_does_not_expire_under_an_open_turn(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.open("trip")
    clock.advance(60)
    outcome = await refused(store, await player.ask("trip", expire_after_ms=1))
    assert isinstance(outcome, Busy)


async def test_a_node_that_is_not_live_begins_nothing(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    assert await refused(store, await other_player().ask("trip")) == NotLive()

    clock.advance(TTL_MS / 1000)
    assert await refused(store, await player.ask("trip")) == NotLive()
    await player.renew()
    assert isinstance(await player.begin("trip"), Started)


# ── the order of checks ──────────────────────────────────────────────────────────────────────────
# A retry must never meet its own first attempt as an obstacle, so what is known comes first.


async def test_every_check_gives_way_to_the_ones_before_it(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    """One request with everything against it; the obstacles are taken away one by one."""
    turn = await player.open("trip", key="k", request_hash=b"one", client_attempt=0)
    dead = Player(store, mint, node=mint(NodeId))
    stale = msgspec.structs.replace(
        await dead.ask("trip", key="k", request_hash=b"other", client_attempt=1),
        expected=mint(SessionId),
    )

    async def now(**changes: object) -> BeginOutcome:
        attempt = msgspec.structs.replace(stale.attempt, **changes)
        return await refused(store, msgspec.structs.replace(stale, attempt=attempt))

    assert await now() == Mismatch(turn_id=turn.turn_id)
    joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await now(request_hash=b"one") == joined  # by its key
    assert await now(request_hash=b"one", key=None) == joined  # recognised
    assert isinstance(await now(key=None), Moved)  # another session than expected

    stale = msgspec.structs.replace(
        stale,
        expected=turn.session_id,
        request=msgspec.structs.replace(stale.request, base=Version(7)),
    )
    assert isinstance(await now(key=None), Busy)
    await turn.answer()
    await turn.commit()
    assert isinstance(await now(key=None), Moved)  # another head than expected
    stale = msgspec.structs.replace(
        stale, request=msgspec.structs.replace(stale.request, base=Version(1))
    )
    assert await now(key=None) == NotLive()
    await dead.renew()
    attempt = msgspec.structs.replace(stale.attempt, key=None)
    assert isinstance(await store.begin(msgspec.structs.replace(stale, attempt=attempt)), Started)


async def test_expiry_comes_before_everything_else_about_the_session(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    turn = await player.play("trip")
    clock.advance(60)
    ask = msgspec.structs.replace(
        await player.ask("trip", expire_after_ms=1), expected=mint(SessionId)
    )
    assert await refused(store, ask) == Gone(session_id=turn.session_id, why="expired")


# ── beginning again ──────────────────────────────────────────────────────────────────────────────
# The answer to a `Begin` can be lost on the way; asking again must not begin another turn.


async def test_the_same_begin_answers_the_same(
    store: Store, player: Player, clock: ManualClock
) -> None:
    for name in ("trip", None):
        ask = await player.ask(name)
        first = await store.begin(ask)
        clock.advance(1)
        async with changes_nothing(store):
            assert await store.begin(ask) == first


@pytest.mark.parametrize("discarded_before", [True, False])
async def test_a_later_begin_answers_the_same_too(
    store: Store, player: Player, clock: ManualClock, discarded_before: bool
) -> None:
    await (player.discard if discarded_before else player.play)("trip")
    clock.advance(1)
    ask = await player.ask("trip")
    first = await store.begin(ask)
    assert isinstance(first, Started) and not first.created
    async with changes_nothing(store):
        assert await store.begin(ask) == first


async def test_it_does_so_although_the_key_means_another_session_by_now(
    store: Store, player: Player, mint: Minter
) -> None:
    ask = await player.ask("trip")
    first = await store.begin(ask)
    await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))
    assert await store.begin(ask) == first


async def test_a_turn_that_ended_meanwhile_is_replayed(store: Store, player: Player) -> None:
    ask = await player.ask("trip")
    started = await store.begin(ask)
    assert isinstance(started, Started)
    turn = await player.playing(ask, started)
    await turn.answer()
    await turn.commit()

    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await refused(store, ask) == replay


async def test_a_turn_that_was_taken_over_meanwhile_is_joined(store: Store, player: Player) -> None:
    """Handing out the fence again would give two holders the same right to write."""
    ask = await player.ask("trip")
    started = await store.begin(ask)
    assert isinstance(started, Started)
    session_id = started.fence.session_id
    await store.takeover(ACME, session_id, node=player.node, nonce="theirs")

    joined = Joined(turn_id=ask.request.turn_id, session_id=session_id)
    assert await refused(store, ask) == joined


# ── one key one session ──────────────────────────────────────────────────────────────────────────
# Promise 4: concurrent first requests converge.


async def test_of_many_first_requests_one_makes_the_session(store: Store, player: Player) -> None:
    asks = [await player.ask("trip") for _ in range(8)]
    outcomes = await asyncio.gather(*map(store.begin, asks))

    [started] = [each for each in outcomes if isinstance(each, Started)]
    others = [each for each in outcomes if each is not started]
    session_id = started.fence.session_id
    assert others == [Moved(session_id=session_id, head=Version(0))] * 7
    assert await store.session_ids(ACME, after=None, limit=10) == (session_id,)


async def test_of_many_later_requests_one_gets_the_session(store: Store, player: Player) -> None:
    await player.play("trip")
    asks = [await player.ask("trip") for _ in range(8)]
    outcomes = await asyncio.gather(*map(store.begin, asks))

    assert sum(isinstance(each, Started) for each in outcomes) == 1
    assert sum(isinstance(each, Busy) for each in outcomes) == 7


async def refused(store: Store, ask: Begin) -> BeginOutcome:
    """What T1 answers, having checked that it left nothing behind."""
    claims = [ask.attempt.key] if ask.attempt.key else []
    async with changes_nothing(store, claims=claims):
        outcome = await store.begin(ask)
    assert not isinstance(outcome, Started)
    return outcome
