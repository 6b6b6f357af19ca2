"""Turns that wait for their session: there at once, holding nothing, opened one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from holdfast import limits
from holdfast.core.history.conversation import Titled
from holdfast.errors import SessionMissing
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey, TurnId, Version
from holdfast.store.outcomes import (
    Attempt,
    Busy,
    ByKey,
    Free,
    Gone,
    Joined,
    Mismatch,
    Missing,
    Moved,
    NotLive,
    NotNext,
    Queued,
    Replay,
    Started,
    TooLate,
    WaitingTurn,
)
from holdfast.store.rows import IdempotencyRow, TurnRow
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, Playing, in_use
from tests.store.contract.words import changes_nothing

KEY = IdempotencyKey("k")


async def row_of(store: Store, turn_id: TurnId) -> TurnRow:
    row = await store.turn(ACME, turn_id)
    assert row is not None
    return row


async def findings(store: Store) -> list[str]:
    return [str(each) async for each in verify(store) if isinstance(each, Finding)]


@pytest.fixture
async def running(player: Player) -> Playing:
    """A session with one version, and a turn that is open on top of it."""
    await player.play("trip")
    return await player.open("trip", "Wait for me", agent="butler")


# ── waiting ──────────────────────────────────────────────────────────────────────────────────


async def test_a_request_for_a_busy_session_is_queued_with_its_request_and_its_key(
    store: Store, player: Player, running: Playing, clock: ManualClock
) -> None:
    before = await store.session(ACME, running.session_id)
    ask = await player.ask("trip", "Later", key="k", request_hash=b"same", replayable=True)
    outcome = await store.enqueue(ask)

    turn_id = ask.request.turn_id
    assert outcome == Queued(turn_id=turn_id, session_id=running.session_id)
    assert await row_of(store, turn_id) == TurnRow(
        tenant=ACME,
        turn_id=turn_id,
        session_id=running.session_id,
        base_head=Version(1),
        state="queued",
        agent="butler",
        source_digest="d1",
        request_hash=b"same",
        replayable=True,
        began_ms=clock.now_ms(),
    )
    assert (await player.opening(turn_id)).request == ask.request
    assert await store.idempotency(ACME, KEY) == IdempotencyRow(
        tenant=ACME, key=KEY, request_hash=b"same", turn_id=turn_id, state="running"
    )
    assert await store.session(ACME, running.session_id) == before


async def test_it_holds_nothing_so_its_session_goes_on(
    store: Store, player: Player, running: Playing
) -> None:
    await player.wait("trip", "Later")
    await running.answer()
    await running.commit()
    await player.play("trip", "I was at the door")

    assert (await player.snapshot("trip")).version == 3
    assert await findings(store) == []


async def test_a_session_that_is_free_has_its_turn_begun_instead(
    store: Store, player: Player
) -> None:
    await player.play("trip")
    async with changes_nothing(store):
        assert await player.enqueue("trip") == Free()
        assert await player.enqueue("new") == Free()
        assert await player.enqueue(None) == Free()


async def test_who_has_to_stay_behind_waits_for_a_session_that_is_free(
    store: Store, player: Player
) -> None:
    await player.play("trip")
    assert isinstance(await player.enqueue("trip", behind=True), Queued)
    assert await player.enqueue("new", behind=True) == Free()


async def test_nobody_overtakes_those_who_wait(player: Player, running: Playing) -> None:
    await player.wait("trip", "First")
    await running.end()
    assert isinstance(await player.enqueue("trip", "Second"), Queued)


async def test_queueing_again_says_the_same(
    store: Store, player: Player, running: Playing, clock: ManualClock
) -> None:
    ask = await player.ask("trip", "Later", key="k")
    first = await store.enqueue(ask)
    clock.advance(1)
    async with changes_nothing(store):
        assert await store.enqueue(ask) == first
    await running.end()
    turn = await player.open_queued(ask.request.turn_id)
    assert isinstance(await store.enqueue(ask), Joined)
    await turn.answer()
    await turn.commit()
    assert isinstance(await store.enqueue(ask), Replay)


async def test_what_is_not_there_cannot_be_waited_for(
    store: Store, player: Player, running: Playing, mint: Minter
) -> None:
    ask = await player.ask("trip")
    await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))
    async with changes_nothing(store):
        assert isinstance(await store.enqueue(ask), Moved)
        assert await player.enqueue("nothing", create=False) == Missing()
    by_id = await player.ask(running.session_id)
    await store.remove(ACME, running.session_id)
    async with changes_nothing(store):
        assert await store.enqueue(by_id) == Gone(session_id=running.session_id, why="deleted")


# ── retries ──────────────────────────────────────────────────────────────────────────────────


async def test_a_key_is_joined_while_its_turn_waits(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip", key="k", request_hash=b"same")
    joined = Joined(turn_id=queued.turn_id, session_id=queued.session_id)
    same = Attempt(request_hash=b"same", key=KEY)
    assert await store.find_attempt(ACME, same) == joined
    assert await player.enqueue("trip", key="k", request_hash=b"same") == joined
    assert await player.begin("trip", key="k", request_hash=b"same") == joined
    assert await player.enqueue("trip", key="k", request_hash=b"other") == Mismatch(
        turn_id=queued.turn_id
    )


async def test_an_sdk_that_tries_again_is_recognised(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip", request_hash=b"same")
    joined = Joined(turn_id=queued.turn_id, session_id=queued.session_id)
    again = Attempt(request_hash=b"same", client_attempt=1)
    target = ByKey(key=SessionKey("trip"), fresh=running.session_id)
    assert await store.find_attempt(ACME, again, target) == joined
    assert await player.enqueue("trip", request_hash=b"same", client_attempt=1) == joined
    await running.end()
    assert await player.begin("trip", request_hash=b"same", client_attempt=1) == joined
    assert isinstance(await player.enqueue("trip", request_hash=b"other", client_attempt=1), Queued)


async def test_a_failed_attempt_is_known_to_the_one_that_waits(
    store: Store, player: Player, running: Playing
) -> None:
    await running.end()
    failed = await player.open("trip", key="k", request_hash=b"same")
    await failed.end("model_error", settlement="failed")
    await player.open("trip", "Somebody else")
    queued = await player.wait("trip", key="k", request_hash=b"same")
    assert (await row_of(store, queued.turn_id)).retry_of == failed.turn_id


# ── opening ──────────────────────────────────────────────────────────────────────────────────


async def test_it_is_opened_on_top_of_the_head_of_that_moment(
    store: Store, player: Player, running: Playing, clock: ManualClock
) -> None:
    queued = await player.wait("trip", "Later", key="k", replayable=True)
    await running.answer()
    await running.commit()
    clock.advance(3)
    before = await store.session(ACME, running.session_id)
    turn = await player.open_queued(queued.turn_id)

    row, session = await turn.row(), await store.session(ACME, running.session_id)
    assert before is not None and session is not None
    assert (row.state, row.base_head, row.began_ms) == ("open", 2, clock.now_ms())
    assert session.open_turn == queued.turn_id
    assert session.lease_token == row.lease_token == before.lease_token + 1
    await turn.answer("Here I am")
    await turn.commit()
    assert (await player.snapshot("trip")).version == 3
    claim = await store.idempotency(ACME, KEY)
    assert claim is not None and claim.state == "done"
    assert await findings(store) == []


async def test_opening_again_says_the_same(store: Store, player: Player, running: Playing) -> None:
    queued = await player.wait("trip")
    await running.end()
    ask = await player.opening(queued.turn_id)
    first = await store.open_queued(ask)
    assert isinstance(first, Started)
    async with changes_nothing(store):
        assert await store.open_queued(ask) == first


async def test_they_are_opened_in_the_order_in_which_they_came(
    store: Store, player: Player, running: Playing, mint: Minter
) -> None:
    """Also within one tick of the store's clock: ids are minted by others."""
    late_id, early_id = mint(TurnId), mint(TurnId)
    first = await player.wait("trip", "First", turn_id=early_id)
    second = await player.wait("trip", "Second", turn_id=late_id)
    assert [(each.turn_id, each.ready) for each in await store.queued(limit=9)] == [
        (first.turn_id, False),
        (second.turn_id, False),
    ]
    await running.end()
    assert [(each.turn_id, each.ready) for each in await store.queued(limit=9)] == [
        (first.turn_id, True),
        (second.turn_id, False),
    ]
    async with changes_nothing(store):
        assert await store.open_queued(await player.opening(second.turn_id)) == NotNext()
    turn = await player.open_queued(first.turn_id)
    await turn.answer()
    await turn.commit()
    await player.open_queued(second.turn_id)
    assert await store.queued(limit=9) == ()


async def test_a_session_that_is_busy_again_keeps_it_waiting(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip")
    await running.end()
    ask = await player.opening(queued.turn_id)
    faster = await player.open("trip", "I was at the door")
    async with changes_nothing(store):
        assert await store.open_queued(ask) == Busy(
            session_id=running.session_id, turn_id=faster.turn_id, holder_alive=True
        )
    await faster.answer()
    await faster.commit()
    async with changes_nothing(store):
        assert await store.open_queued(ask) == Moved(session_id=running.session_id, head=Version(2))
    await store.annotate(ACME, running.session_id, [(None, Titled(title="Trip"))])
    await player.open_queued(queued.turn_id)


async def test_only_a_node_that_is_alive_opens(
    store: Store, player: Player, running: Playing, other_player: Callable[[], Player]
) -> None:
    queued = await player.wait("trip")
    await running.end()
    other = other_player()
    async with changes_nothing(store):
        assert await store.open_queued(await other.opening(queued.turn_id)) == NotLive()
    await other.renew()
    turn = await other.open_queued(queued.turn_id)
    async with changes_nothing(store):
        assert isinstance(await store.open_queued(await player.opening(queued.turn_id)), Busy)
    await turn.answer()
    await turn.commit()


async def test_the_open_turn_is_committed_as_what_it_is_and_not_as_what_waits(
    store: Store, player: Player
) -> None:
    running = await player.open("trip", replayable=True, key="first", request_hash=b"one")
    await running.answer()
    await player.wait("trip", key="second", request_hash=b"two")
    await running.commit()
    claims = [await store.idempotency(ACME, IdempotencyKey(each)) for each in ("first", "second")]
    assert [each.state for each in claims if each] == ["done", "running"]
    assert len(await store.journal(ACME, running.turn_id)) == 3


async def test_two_nodes_open_it_once(
    store: Store, player: Player, running: Playing, other_player: Callable[[], Player]
) -> None:
    queued = await player.wait("trip")
    await running.end()
    other = other_player()
    await other.renew()
    asks = [await each.opening(queued.turn_id) for each in (player, other)]
    outcomes = await asyncio.gather(*map(store.open_queued, asks))
    assert sorted(type(each).__name__ for each in outcomes) == ["Busy", "Started"]


async def test_all_that_wait_are_found_the_first_first(
    store: Store, player: Player, running: Playing, clock: ManualClock
) -> None:
    other = await player.open("work")
    expected = []
    for name, session_id in (("work", other.session_id), ("trip", running.session_id)):
        clock.advance(1)
        queued = await player.wait(name)
        expected.append(
            WaitingTurn(
                tenant=ACME, session_id=session_id, turn_id=queued.turn_id, ready=name == "work"
            )
        )
    await other.end()
    assert await store.queued(limit=9) == tuple(expected)
    assert await store.queued(limit=1) == tuple(expected[:1])


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settlement", ["done", "failed"])
async def test_a_turn_that_waits_can_be_withdrawn(
    store: Store, player: Player, running: Playing, clock: ManualClock, settlement: str
) -> None:
    queued = await player.wait("trip", key="k", replayable=True)
    before = await store.session(ACME, running.session_id)
    clock.advance(1)
    row = await player.withdraw(queued.turn_id, detail="why", settlement=settlement)  # type: ignore[arg-type]

    assert (row.state, row.ended_by, row.detail) == ("discarded", "cancelled", "why")
    assert row.ended_ms == clock.now_ms()
    assert row == await row_of(store, queued.turn_id)
    assert await store.session(ACME, running.session_id) == before
    claim = await store.idempotency(ACME, KEY)
    assert claim is not None and claim.state == settlement
    assert [each.n for each in await store.journal(ACME, queued.turn_id)] == [0, 1]
    async with changes_nothing(store):
        assert await player.withdraw(queued.turn_id, "deadline") == row
        assert isinstance(await store.open_queued(await player.opening(queued.turn_id)), Busy)
    await running.end()
    async with changes_nothing(store):
        assert await store.open_queued(await player.opening(queued.turn_id)) == NotNext()
    assert await store.queued(limit=9) == ()
    assert await findings(store) == []


async def test_a_turn_that_has_begun_is_not_withdrawn(
    store: Store, player: Player, running: Playing, mint: Minter
) -> None:
    async with changes_nothing(store):
        assert await player.withdraw(running.turn_id) == await running.row()
    with pytest.raises(SessionMissing):
        await player.withdraw(mint(TurnId))


async def test_nobody_speaks_to_a_turn_that_waits(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip")
    async with changes_nothing(store):
        told = await store.signal(ACME, queued.turn_id, kind="cancel")
    assert told == TooLate(turn=await row_of(store, queued.turn_id))


async def test_deleting_a_session_ends_those_that_wait_for_it(
    store: Store, player: Player, running: Playing
) -> None:
    first = await player.wait("trip", key="k", request_hash=b"same")
    second = await player.wait("trip", "Me too")
    await store.remove(ACME, running.session_id)

    for queued in (first, second):
        row = await row_of(store, queued.turn_id)
        assert (row.state, row.ended_by) == ("discarded", "deleted")
    gone = Gone(session_id=running.session_id, why="deleted")
    assert await store.find_attempt(ACME, Attempt(request_hash=b"same", key=KEY)) == gone
    assert await store.queued(limit=9) == ()
    assert await findings(store) == []


async def test_who_queues_while_its_session_is_deleted_is_told_or_ended(
    store: Store, player: Player
) -> None:
    for n in range(12):
        running = await player.open(f"trip-{n}")
        asks = [await player.ask(f"trip-{n}", f"{m}") for m in range(3)]
        await asyncio.gather(
            store.enqueue(asks[0]),
            store.remove(ACME, running.session_id),
            *(store.enqueue(each) for each in asks[1:]),
        )
    assert await store.queued(limit=99) == ()
    assert await findings(store) == []


async def test_those_who_queue_at_once_are_in_some_order(
    store: Store, player: Player, running: Playing
) -> None:
    asks = [await player.ask("trip", f"{n}") for n in range(8)]
    await asyncio.gather(*map(store.enqueue, asks))
    waiting = await store.queued(limit=99)
    assert {each.turn_id for each in waiting} == {each.request.turn_id for each in asks}
    came = [(await row_of(store, each.turn_id)).began_ms for each in waiting]
    assert came == sorted(set(came))


async def test_who_is_ahead_goes_before_those_who_wait(
    store: Store, player: Player, running: Playing
) -> None:
    waiting = [(await player.wait("trip", text)).turn_id for text in ("First", "Second")]
    for text in ("Now", "No, this now"):
        ask = msgspec.structs.replace(await player.ask("trip", text), ahead=True)
        assert isinstance(await store.enqueue(ask), Queued)
        waiting.insert(0, ask.request.turn_id)
    await running.end()
    found = await store.queued(limit=9)
    assert [each.turn_id for each in found] == waiting
    assert [each.ready for each in found] == [True, False, False, False]


async def test_a_reset_leaves_them_with_the_session_that_they_wait_for(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip", "For the old one")
    fresh = await store.bind(ACME, SessionKey("trip"), fresh=player.mint(type(running.session_id)))
    fork = await store.fork(
        ACME, running.session_id, version=Version(1), fresh=player.mint(type(running.session_id))
    )
    await running.end()
    turn = await player.open_queued(queued.turn_id)
    assert turn.session_id == running.session_id
    for other in (fresh.id, fork.id):
        assert await store.turns(ACME, other) == ()


# ── keeping and moving ───────────────────────────────────────────────────────────────────────


async def test_one_that_waits_never_goes(
    store: Store, player: Player, running: Playing, clock: ManualClock
) -> None:
    queued = await player.wait("trip", key="k", replayable=True)
    await in_use(store, clock, limits.discarded_keep_s * 2)
    await player.renew()
    while (await store.prune()).more:
        pass
    row = await row_of(store, queued.turn_id)
    assert row.state == "queued" and row.replayable
    assert await store.idempotency(ACME, KEY) is not None
    assert len(await store.journal(ACME, queued.turn_id)) == 1


async def test_one_that_waits_is_not_dumped(store: Store, player: Player, running: Playing) -> None:
    before = await store.dump(ACME, running.session_id)
    queued = await player.wait("trip", key="k", replayable=True)
    assert await store.dump(ACME, running.session_id) == before
    newest, *_ = await store.turns(ACME, running.session_id)
    assert newest.turn_id == queued.turn_id


async def test_it_is_counted(store: Store, player: Player, running: Playing) -> None:
    await player.wait("trip")
    stats = await store.stats()
    assert (stats.turns_open, stats.turns_queued, stats.turns_committed) == (1, 1, 1)


async def test_another_tenant_sees_nothing_of_it(
    store: Store, player: Player, running: Playing
) -> None:
    queued = await player.wait("trip")
    await running.end()
    stranger = Player(store, player.mint, tenant=type(ACME)("umbrella"))
    await stranger.renew()
    ask = msgspec.structs.replace(
        await player.opening(queued.turn_id), tenant=stranger.tenant, node=stranger.node
    )
    async with changes_nothing(store):
        assert await store.open_queued(ask) == NotNext()
        with pytest.raises(SessionMissing):
            await stranger.withdraw(queued.turn_id)
        assert isinstance(await stranger.enqueue(running.session_id), Missing)
