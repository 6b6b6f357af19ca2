"""Requests that come again: under an idempotency key, or recognised without one. Promise 2."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import limits
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey
from holdfast.store.outcomes import (
    Attempt,
    BeginOutcome,
    ById,
    ByKey,
    Gone,
    Joined,
    Mismatch,
    Replay,
    Settlement,
    Started,
    Target,
)
from holdfast.store.rows import IdempotencyRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, in_use
from tests.store.contract.words import changes_nothing

KEY = IdempotencyKey("k")
DAY_MS = int(limits.idempotency_keep_s * 1000)
SAME = Attempt(request_hash=b"same", key=KEY)

# ── the life of a key ────────────────────────────────────────────────────────────────────────


async def test_a_key_is_claimed_by_the_turn_that_begins(store: Store, player: Player) -> None:
    assert await store.idempotency(ACME, KEY) is None
    turn = await player.open("trip", key="k", request_hash=b"same")

    assert await store.idempotency(ACME, KEY) == IdempotencyRow(
        tenant=ACME, key=KEY, request_hash=b"same", turn_id=turn.turn_id, state="running"
    )


async def test_a_request_without_a_key_claims_none(store: Store, player: Player) -> None:
    await player.play("trip")
    assert await store.find_attempt(ACME, Attempt(request_hash=b"same")) is None


async def test_a_key_is_joined_while_its_turn_runs_however_long_that_takes(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k", request_hash=b"same")
    for _ in range(3):
        joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id)
        assert await both(store, player, SAME) == joined
        clock.advance(limits.idempotency_keep_s)
        await player.renew()


@pytest.mark.parametrize("end", ["commit", "end"])
async def test_a_key_that_is_done_is_replayed_for_a_day(
    store: Store, player: Player, clock: ManualClock, end: str
) -> None:
    """Whether the turn was kept does not matter: a cancelled one is answered with its cancellation."""
    turn = await player.open("trip", key="k", request_hash=b"same")
    await turn.answer()
    clock.advance(1)
    await (turn.commit() if end == "commit" else turn.end(settlement="done"))

    row = await store.idempotency(ACME, KEY)
    assert row is not None
    assert (row.state, row.expires_ms) == ("done", clock.now_ms() + DAY_MS)
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await both(store, player, SAME) == replay
    clock.advance(limits.idempotency_keep_s - 0.001)
    assert await both(store, player, SAME) == replay


@pytest.mark.parametrize("settlement", ["done", "failed"])
async def test_after_a_day_a_key_is_as_good_as_new(
    store: Store, player: Player, clock: ManualClock, settlement: Settlement
) -> None:
    first = await player.open("trip", key="k", request_hash=b"same")
    await first.end(settlement=settlement)
    await in_use(store, clock, limits.idempotency_keep_s)
    await store.prune()
    await player.renew()

    assert await store.find_attempt(ACME, SAME) is None
    second = await player.open("trip", key="k", request_hash=b"other")
    assert second.started.retry_of is None, "what is forgotten is not used"
    row = await store.idempotency(ACME, KEY)
    assert row == IdempotencyRow(
        tenant=ACME, key=KEY, request_hash=b"other", turn_id=second.turn_id, state="running"
    )


@pytest.mark.parametrize("end", ["commit", "end"])
async def test_a_key_that_failed_begins_anew_and_knows_what_it_can_use(
    store: Store, player: Player, end: str
) -> None:
    first = await player.open("trip", key="k", request_hash=b"same")
    await first.answer()
    await (first.commit(settlement="failed") if end == "commit" else first.end())
    assert await store.find_attempt(ACME, SAME) is None

    second = await player.open("trip", key="k", request_hash=b"same")
    assert second.started.retry_of == first.turn_id
    assert (await second.row()).retry_of == first.turn_id
    joined = Joined(turn_id=second.turn_id, session_id=second.session_id)
    assert await both(store, player, SAME) == joined


async def test_a_different_request_under_a_known_key_is_a_mismatch(
    store: Store, player: Player, clock: ManualClock
) -> None:
    other = msgspec.structs.replace(SAME, request_hash=b"other")
    turn = await player.open("trip", key="k", request_hash=b"same")
    mismatch = Mismatch(turn_id=turn.turn_id)

    assert await both(store, player, other) == mismatch  # running
    await turn.end()
    assert await both(store, player, other) == mismatch  # failed
    turn = await player.play("trip", key="k", request_hash=b"same")
    assert await both(store, player, other) == Mismatch(turn_id=turn.turn_id)  # done


async def test_a_key_whose_session_was_deleted_says_that_it_is_gone(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip", key="k", request_hash=b"same")
    await store.remove(ACME, turn.session_id)

    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await both(store, player, SAME) == gone
    other = msgspec.structs.replace(SAME, request_hash=b"other")
    assert await both(store, player, other) == Mismatch(turn_id=turn.turn_id)


async def test_a_key_does_not_run_for_ever_if_its_session_is_deleted(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k", request_hash=b"same")
    await store.remove(ACME, turn.session_id)

    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await both(store, player, SAME) == gone
    await in_use(store, clock, limits.idempotency_keep_s)
    await store.prune()
    assert await store.find_attempt(ACME, SAME) is None


async def test_one_key_is_one_request_whatever_session_it_names(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip", key="k", request_hash=b"same")
    outcome = await player.begin("holiday", key="k", request_hash=b"same")

    assert outcome == Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await store.resolve(ACME, SessionKey("holiday")) is None


async def test_of_many_requests_with_one_key_one_begins_and_the_rest_join(
    store: Store, player: Player
) -> None:
    asks = [await player.ask("trip", key="k", request_hash=b"same") for _ in range(6)]
    outcomes = await asyncio.gather(*map(store.begin, asks))

    [started] = [each for each in outcomes if isinstance(each, Started)]
    joined = Joined(turn_id=started.fence.turn_id, session_id=started.fence.session_id)
    assert [each for each in outcomes if each is not started] == [joined] * 5


# ── recognised without a key ─────────────────────────────────────────────────────────────────


async def test_an_sdks_retry_joins_the_turn_that_is_open(store: Store, player: Player) -> None:
    turn = await player.open("trip", request_hash=b"same")
    joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id)

    assert await retried(store, player, attempt=1) == joined
    assert await retried(store, player, attempt=2) == joined


async def test_an_sdks_retry_replays_the_head_within_a_minute_of_its_end(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", request_hash=b"same")
    await turn.answer()
    clock.advance(10)
    await turn.commit()
    clock.advance(limits.recognised_retry_s)
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await retried(store, player, attempt=1) == replay

    clock.advance(0.001)
    await player.renew()
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_a_first_attempt_is_never_a_retry(store: Store, player: Player) -> None:
    """Somebody who says the same thing twice means it twice."""
    await player.play("trip", request_hash=b"same")
    assert isinstance(await retried(store, player, attempt=0), Started)


async def test_a_retry_is_of_an_earlier_attempt(store: Store, player: Player) -> None:
    await player.play("trip", request_hash=b"same", client_attempt=2)
    assert isinstance(await retried(store, player, attempt=2), Started)


async def test_another_request_is_not_a_retry(store: Store, player: Player) -> None:
    await player.play("trip", request_hash=b"other")
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_an_answer_that_arrived_is_not_retried(store: Store, player: Player) -> None:
    turn = await player.play("trip", request_hash=b"same")
    await store.acknowledge(ACME, turn.turn_id)
    assert isinstance(await retried(store, player, attempt=1), Started)


@pytest.mark.parametrize("end", ["answered", "broken off"])
async def test_an_sdks_retry_is_recognised_after_others_were_heard(
    store: Store, player: Player, clock: ManualClock, end: str
) -> None:
    kept = player.play if end == "answered" else player.break_off
    turn = await kept("trip", request_hash=b"same")
    await player.play("trip", request_hash=b"other")
    await player.play("trip")
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await retried(store, player, attempt=1) == replay
    clock.advance(limits.recognised_retry_s)
    assert await retried(store, player, attempt=1) == replay

    clock.advance(0.001)
    await player.renew()
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_of_the_same_said_twice_an_sdk_retries_the_last(store: Store, player: Player) -> None:
    first = await player.play("trip", request_hash=b"same")
    second = await player.play("trip", request_hash=b"same")
    await player.play("trip")
    replay = Replay(turn_id=second.turn_id, session_id=first.session_id)
    assert await retried(store, player, attempt=1) == replay

    await store.acknowledge(ACME, second.turn_id)
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_an_sdks_retry_is_not_looked_for_in_a_long_past(store: Store, player: Player) -> None:
    """What it costs to look for it is bounded."""
    turn = await player.play("trip", request_hash=b"same")
    for _ in range(limits.recognised_versions - 1):
        await player.play("trip")
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await retried(store, player, attempt=1) == replay

    await player.play("trip")
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_a_request_that_comes_first_is_not_taken_for_an_earlier_one(
    store: Store, player: Player
) -> None:
    await player.play("trip", request_hash=b"same", client_attempt=1)
    await player.play("trip")
    assert isinstance(await retried(store, player, attempt=0), Started)


async def test_a_discarded_turn_is_not_replayed(store: Store, player: Player) -> None:
    await player.play("trip")
    await player.discard("trip", request_hash=b"same")
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_another_sessions_turn_is_not_retried(store: Store, player: Player) -> None:
    await player.play("holiday", request_hash=b"same")
    assert isinstance(await retried(store, player, attempt=1), Started)


async def test_a_fork_is_not_taken_for_its_parent(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip", request_hash=b"same")
    fork = await store.fork(
        ACME, turn.session_id, version=turn.base.version.next, fresh=mint(SessionId)
    )
    ask = await player.ask(fork.id, request_hash=b"same", client_attempt=1)
    assert isinstance(await store.begin(ask), Started)


async def test_a_turn_of_a_deleted_session_is_not_replayed(store: Store, player: Player) -> None:
    turn = await player.play("trip", request_hash=b"same")
    await store.remove(ACME, turn.session_id)

    again = Attempt(request_hash=b"same", client_attempt=1)
    target = ById(session_id=turn.session_id)
    assert await store.find_attempt(ACME, again, target) is None
    outcome = await player.begin(turn.session_id, request_hash=b"same", client_attempt=1)
    assert outcome == Gone(session_id=turn.session_id, why="deleted")


async def test_a_retry_is_looked_for_in_the_session_that_it_names(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.open("trip", request_hash=b"same")
    again = Attempt(request_hash=b"same", client_attempt=1)
    joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id)
    by_key = ByKey(key=SessionKey("trip"), fresh=mint(SessionId))

    for target in (by_key, ById(session_id=turn.session_id)):
        assert await store.find_attempt(ACME, again, target) == joined
    assert await store.find_attempt(ACME, again) is None
    for name in ("holiday", "tri"):
        other: Target = ByKey(key=SessionKey(name), fresh=mint(SessionId))
        assert await store.find_attempt(ACME, again, other) is None


# ── words ────────────────────────────────────────────────────────────────────────────────────


async def both(store: Store, player: Player, attempt: Attempt) -> BeginOutcome | None:
    """What a key says, asked either way; neither leaves anything behind."""
    assert attempt.key is not None
    ask = msgspec.structs.replace(await player.ask("trip"), attempt=attempt)
    async with changes_nothing(store, claims=["k"]):
        found = await store.find_attempt(ACME, attempt)
        assert await store.begin(ask) == found
    return found


async def retried(store: Store, player: Player, *, attempt: int) -> BeginOutcome:
    """What the session `trip` answers to a retry; `find_attempt` has to agree."""
    ask = await player.ask("trip", request_hash=b"same", client_attempt=attempt)
    found = await store.find_attempt(ACME, ask.attempt, ask.target)
    outcome = await store.begin(ask)
    assert found == (None if isinstance(outcome, Started) else outcome)
    return outcome
