"""Words with an idempotency key that are said to somebody else's turn: one key, one turn, one answer. Promise 2."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import limits
from holdfast.ids import IdempotencyKey
from holdfast.store.outcomes import (
    Attempt,
    Gone,
    Joined,
    Mismatch,
    Replay,
    Settlement,
    Signalled,
    SignalOutcome,
    Started,
    TooLate,
    Unconsumed,
)
from holdfast.store.rows import IdempotencyRow, IdempotencyState
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, Playing
from tests.store.contract.test_signals import hear
from tests.store.contract.words import OtherPlayer, changes_nothing

KEY = IdempotencyKey("s")
SAME = Attempt(request_hash=b"steered", key=KEY)
OTHER = msgspec.structs.replace(SAME, request_hash=b"other")


async def steer(store: Store, turn: Playing, attempt: Attempt = SAME) -> SignalOutcome:
    return await store.signal(
        ACME, turn.turn_id, kind="steer", payload=b"And quickly", attempt=attempt
    )


async def steered(store: Store, turn: Playing) -> int:
    """The number under which it was said."""
    said = await steer(store, turn)
    assert isinstance(said, Signalled)
    return said.n


async def state_of(store: Store, key: str) -> IdempotencyState | None:
    row = await store.idempotency(ACME, IdempotencyKey(key))
    return row.state if row else None


async def test_a_steer_claims_its_key_for_the_turn_that_it_is_said_to(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip", key="k", request_hash=b"own")
    n = await steered(store, turn)

    assert await store.idempotency(ACME, KEY) == IdempotencyRow(
        tenant=ACME,
        key=KEY,
        request_hash=b"steered",
        turn_id=turn.turn_id,
        state="running",
        steer=n,
    )
    own = await store.find_attempt(ACME, Attempt(request_hash=b"own", key=IdempotencyKey("k")))
    assert own == Joined(turn_id=turn.turn_id, session_id=turn.session_id)


async def test_the_same_words_again_are_not_said_twice(store: Store, player: Player) -> None:
    """Whoever asks again may have lost the answer, or only think so; in the turn or in another session's."""
    turn, elsewhere = await player.open("trip"), await player.open("holiday")
    n = await steered(store, turn)
    joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id, steer=n)

    async with changes_nothing(store, claims=["s"], nodes=[player.node]):
        assert await steer(store, turn) == joined
        assert await steer(store, elsewhere) == joined
        assert await store.find_attempt(ACME, SAME) == joined
        assert await player.begin("elsewhere", key="s", request_hash=b"steered") == joined


async def test_of_many_tries_at_once_one_is_said(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    said = await asyncio.gather(*(steer(store, turn) for _ in range(8)))
    numbers = {each.n for each in said if isinstance(each, Signalled)}
    joined = {each.steer for each in said if isinstance(each, Joined)}
    assert len(numbers) == 1 and joined == numbers
    assert len(await store.signals(player.node)) == 1


@pytest.mark.parametrize("failed", [False, True])
async def test_a_key_is_claimed_once_however_many_places_want_it_at_once(
    store: Store, player: Player, failed: bool
) -> None:
    """Two turns that it is said to, and one that it would begin; also if the key is there, and has failed."""
    if failed:
        await player.discard("before", key="s", request_hash=b"steered")
    one, two = await player.open("trip"), await player.open("holiday")
    said, heard, begun = await asyncio.gather(
        steer(store, one),
        steer(store, two),
        player.begin("elsewhere", key="s", request_hash=b"steered"),
    )
    outcomes = (said, heard, begun)
    assert sum(isinstance(each, Signalled | Started) for each in outcomes) == 1
    (turn_id,) = {each.turn_id for each in outcomes if isinstance(each, Joined)}
    row = await store.idempotency(ACME, KEY)
    assert row is not None and (row.turn_id, row.state) == (turn_id, "running")
    assert len(await store.signals(player.node)) == (0 if isinstance(begun, Started) else 1)


async def test_other_words_under_the_key_are_a_mismatch(store: Store, player: Player) -> None:
    turn = await player.open("trip", key="k", request_hash=b"own")
    await steered(store, turn)
    async with changes_nothing(store, claims=["s", "k"], nodes=[player.node]):
        assert await steer(store, turn, OTHER) == Mismatch(turn_id=turn.turn_id)
        taken = Attempt(request_hash=b"steered", key=IdempotencyKey("k"))
        assert await steer(store, turn, taken) == Mismatch(turn_id=turn.turn_id)


async def test_too_late_claims_nothing(store: Store, player: Player) -> None:
    """The request begins the next turn then, and claims its key for that."""
    turn = await player.play("trip")
    async with changes_nothing(store, claims=["s"], nodes=[player.node]):
        assert await steer(store, turn) == TooLate(turn=await turn.row())
    assert await state_of(store, "s") is None


async def test_words_without_a_key_are_said_as_often_as_they_are_sent(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    for _ in range(2):
        said = await steer(store, turn, Attempt(request_hash=b"steered"))
        assert isinstance(said, Signalled)


# ── how it ends ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settlement", ["done", "failed"])
@pytest.mark.parametrize("end", ["commit", "end"])
async def test_what_was_heard_ends_as_its_turn_does(
    store: Store, player: Player, clock: ManualClock, end: str, settlement: Settlement
) -> None:
    turn = await player.open("trip", key="k")
    await steered(store, turn)
    await hear(turn, *await store.signals(player.node))
    await turn.answer()
    clock.advance(1)
    await (
        turn.commit(settlement=settlement) if end == "commit" else turn.end(settlement=settlement)
    )

    for key in ("k", "s"):
        row = await store.idempotency(ACME, IdempotencyKey(key))
        assert row is not None and row.state == settlement
        assert row.expires_ms == clock.now_ms() + int(limits.idempotency_keep_s * 1000)
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await store.find_attempt(ACME, SAME) == (replay if settlement == "done" else None)


@pytest.mark.parametrize("end", ["commit", "end"])
async def test_what_was_never_heard_has_failed_however_the_turn_ends(
    store: Store, player: Player, end: str
) -> None:
    """Nobody has answered it; so a retry runs, and not with the steps of somebody else's turn."""
    turn = await player.open("trip", key="k")
    await turn.answer()
    await turn.interrupt()
    await steered(store, turn)
    await (turn.commit() if end == "commit" else turn.end(settlement="done"))

    assert (await state_of(store, "k"), await state_of(store, "s")) == ("done", "failed")
    assert await store.find_attempt(ACME, SAME) is None
    begun = await player.begin("trip", key="s", request_hash=b"steered")
    assert isinstance(begun, Started) and begun.retry_of is None
    row = await store.idempotency(ACME, KEY)
    assert row is not None and (row.state, row.steer) == ("running", None)


async def test_a_failed_key_may_steer_again(store: Store, player: Player) -> None:
    first = await player.open("trip")
    await steered(store, first)
    await first.end()
    second = await player.open("trip")
    n = await steered(store, second)
    joined = Joined(turn_id=second.turn_id, session_id=second.session_id, steer=n)
    assert await store.find_attempt(ACME, SAME) == joined


async def test_a_commit_waits_for_words_with_a_key_too(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await turn.answer()
    await steered(store, turn)
    async with changes_nothing(store, claims=["s"], nodes=[player.node]):
        assert isinstance(await turn.try_commit(), Unconsumed)


async def test_a_key_follows_its_turn_to_whoever_takes_it_over(
    store: Store, player: Player, other_player: OtherPlayer
) -> None:
    turn, other = await player.open("trip"), other_player()
    await other.renew()
    n = await steered(store, turn)
    await store.release(turn.fence)
    await store.takeover(ACME, turn.session_id, node=other.node, nonce="theirs")

    [waiting] = await store.signals(other.node)
    assert waiting.n == n
    joined = Joined(turn_id=turn.turn_id, session_id=turn.session_id, steer=n)
    assert await store.find_attempt(ACME, SAME) == joined


@pytest.mark.parametrize("heard", [True, False])
async def test_after_a_delete_a_steer_is_gone(store: Store, player: Player, heard: bool) -> None:
    turn = await player.open("trip")
    await steered(store, turn)
    if heard:
        await hear(turn, *await store.signals(player.node))
    await store.remove(ACME, turn.session_id)

    assert await state_of(store, "s") == ("done" if heard else "failed")
    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await store.find_attempt(ACME, SAME) == gone
