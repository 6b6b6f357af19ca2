"""Retention: what goes, what stays, and that it goes in small steps."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.core.history.conversation import Titled
from holdfast.core.items import Blob, Image, UserMessage
from holdfast.core.turns import events as ev
from holdfast.ids import IdempotencyKey, MessageId, Minter, NodeId, SessionId, Version
from holdfast.store.outcomes import Attempt, Gone, NotEligible, Replay, Started
from holdfast.store.store import Store
from holdfast.store.transfer.import_checks import digest_of
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, in_use
from tests.store.contract.words import changes_nothing
from tests.store.homes import Damage

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
    await in_use(store, clock, limits.discarded_keep_s - 0.001)
    await prune(store)
    assert (await turn.row()).state == "discarded"
    assert await store.journal(ACME, turn.turn_id)
    assert await store.find_signal(ACME, turn.turn_id, 1) is not None

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
    await in_use(store, clock, limits.idempotency_keep_s - 0.001)
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
    await in_use(store, clock, limits.idempotency_keep_s - 0.001)
    await prune(store)
    assert await store.find_signal(ACME, turn.turn_id, 1) is not None

    clock.advance(0.001)
    await prune(store)
    assert await store.find_signal(ACME, turn.turn_id, 1) is None


async def test_an_idempotency_key_goes_a_day_after_its_turn_ended(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k")
    await in_use(store, clock, limits.idempotency_keep_s * 3)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is not None, "it runs"

    await turn.end(settlement="done")
    await in_use(store, clock, limits.idempotency_keep_s - 0.001)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is not None
    clock.advance(0.001)
    await prune(store)
    assert await store.idempotency(ACME, KEY) is None


async def test_an_open_turn_never_goes(store: Store, player: Player, clock: ManualClock) -> None:
    """However long ago its node died: somebody has to end it, or resume it."""
    turn = await player.open(None)
    await in_use(store, clock, limits.anonymous_keep_s * 2)
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
    await in_use(store, clock, limits.anonymous_keep_s - 0.001)
    await prune(store)
    assert await store.snapshot(ACME, first.session_id)

    clock.advance(0.001)
    await prune(store)
    row = await store.session(ACME, first.session_id)
    assert row is not None and row.state == "deleted", "it says that it was there"
    assert await store.snapshot(ACME, named.session_id)
    assert (await store.stats()).items == 2


async def test_a_line_that_cannot_be_read_does_not_delay_what_goes(
    store: Store, player: Player, clock: ManualClock, damage: Damage
) -> None:
    lines = [(await player.play(None)).session_id for _ in range(3)]
    deleted = await player.play("trip")
    await store.remove(ACME, deleted.session_id)
    await damage.settings(ACME, lines[0], b"{")
    await in_use(store, clock, limits.anonymous_keep_s)
    await prune(store)
    for session_id in lines[1:]:
        row = await store.session(ACME, session_id)
        assert row is not None and row.state == "deleted"
    assert (await store.stats()).items == 2, "of the damaged one"


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
    await in_use(store, clock, limits.idempotency_keep_s - 0.001)
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
    await in_use(store, clock, expires_in_s + limits.dead_node_keep_s - 0.001)
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
    await in_use(store, clock, limits.idempotency_keep_s - 1)
    assert await prune(store) == 0
    clock.advance(2)
    assert await prune(store) == 1
    assert await store.blob(ACME, came, digest) == b"picture"


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


async def _picture(store: Store, player: Player, owner: SessionId, data: bytes) -> UserMessage:
    digest = await store.put_blob(ACME, owner, data)
    source = Blob(media_type="image/png", digest=digest, size_bytes=len(data))
    return UserMessage(id=player.mint(MessageId), content=(Image(source=source),))


async def _has(store: Store, owner: SessionId, data: bytes) -> bool:
    return await store.blob(ACME, owner, digest_of(data)) is not None


async def test_the_bytes_of_a_discarded_turn_go_after_its_week(
    store: Store, player: Player, clock: ManualClock
) -> None:
    """Somebody who sends a picture with every attempt that fails would fill the disk for ever."""
    first = await player.play("trip")
    owner = first.session_id
    kept = await _picture(store, player, owner, b"kept")
    await player.play("trip", kept)
    turn = await player.open("trip", await _picture(store, player, owner, b"discarded"))
    await turn.end("model_error")
    await store.put_blob(ACME, owner, b"of a request that was refused")
    await prune(store)
    await in_use(store, clock, limits.discarded_keep_s - 60)
    await prune(store)
    assert await _has(store, owner, b"discarded"), "the turn can still be read"

    before = await player.snapshot("trip")
    await in_use(store, clock, 60)
    await prune(store)
    assert not await _has(store, owner, b"discarded")
    assert not await _has(store, owner, b"of a request that was refused")
    assert await _has(store, owner, b"kept")
    assert await player.snapshot("trip") == before
    assert await prune(store) == 0, "each is looked at once"


async def test_bytes_that_are_put_again_begin_their_week_again(
    store: Store, player: Player, clock: ManualClock
) -> None:
    """Else a turn would lose them between the moment it brought them and its commit."""
    owner = (await player.play("trip")).session_id
    await store.put_blob(ACME, owner, b"picture")
    await prune(store)
    await in_use(store, clock, limits.discarded_keep_s)
    await player.renew()
    again = await _picture(store, player, owner, b"picture")
    await prune(store)
    await player.play("trip", again)
    await in_use(store, clock, limits.discarded_keep_s)
    await prune(store)
    assert await _has(store, owner, b"picture")


async def test_bytes_that_only_a_fork_or_a_turn_without_an_end_names_stay(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    owner, fork = (await player.play("trip")).session_id, mint(SessionId)
    await store.fork(ACME, owner, version=Version(1), fresh=fork)
    await player.play(fork, await _picture(store, player, owner, b"forked"))
    await player.open("trip", await _picture(store, player, owner, b"open"))
    await player.wait("trip", await _picture(store, player, owner, b"queued"))
    await prune(store)
    await in_use(store, clock, limits.discarded_keep_s)
    await prune(store)
    for data in (b"forked", b"open", b"queued"):
        assert await _has(store, owner, data), data


# ── clocks ───────────────────────────────────────────────────────────────────────────────────


async def test_a_clock_that_leaps_removes_and_expires_nothing(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    """Forty days ahead for one look: an anonymous line that was acknowledged five minutes before would be gone."""
    line = await player.play(None, key="k", request_hash=b"same", replayable=True)
    await player.discard("trip")
    await store.put_blob(ACME, line.session_id, b"picture")
    await store.put_blob(ACME, mint(SessionId), b"of a session that never came to be")
    steered = await player.open("steered")
    await store.signal(ACME, steered.turn_id, kind="cancel")
    await steered.answer()
    await steered.commit()
    await player.play("expiring")
    await prune(store)
    clock.advance(300)
    await prune(store)

    clock.advance(40 * 24 * 3600)
    async with changes_nothing(store, claims=["k"], nodes=[player.node]):
        assert (await store.prune()).behind_ms == 40 * 24 * 3600 * 1000
        assert await prune(store) == 0
    assert await store.journal(ACME, line.turn_id)
    assert await store.find_signal(ACME, steered.turn_id, 1) is not None
    assert await _has(store, line.session_id, b"picture")
    attempt = Attempt(request_hash=b"same", key=KEY)
    replay = Replay(turn_id=line.turn_id, session_id=line.session_id)
    assert await store.find_attempt(ACME, attempt) == replay, "a retry would run its tools again"
    await player.renew()
    await player.play("expiring", expire_after_ms=600_000)

    # If it is still so after a day of use, it may have been a long pause: what is old goes then, and not later.
    await in_use(store, clock, limits.clock_trust_s)
    assert await prune(store) > 0
    row = await store.session(ACME, line.session_id)
    assert row is not None and row.state == "deleted"
    assert await store.idempotency(ACME, KEY) is None


async def test_an_operator_who_trusts_the_clock_need_not_wait(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.discard("trip")
    clock.advance(limits.discarded_keep_s)
    assert (await store.prune()).rows == 0
    trusting = await store.prune(trust_clock=True)
    assert (trusting.rows > 0, trusting.behind_ms) == (True, 0)


async def test_a_session_expires_by_the_time_that_is_believed(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.play("trip")
    clock.advance(limits.clock_leap_s + 1)
    await player.renew()
    assert isinstance(await player.begin("trip", expire_after_ms=60_000), Started)

    await store.prune(limit=0)
    later = await player.play("later")
    clock.advance(61)
    await player.renew()
    gone = Gone(session_id=later.session_id, why="expired")
    assert await player.begin("later", expire_after_ms=60_000) == gone, (
        "this is time that has passed"
    )


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
    await in_use(store, clock, limits.anonymous_keep_s)
    before = await player.snapshot("trip")

    assert (await store.prune(limit=limit)).more
    assert await prune(store, limit=limit) > 0
    stats = await store.stats()
    assert (stats.turns_discarded, stats.turns_committed, stats.sessions) == (0, 4, 3)
    assert stats.items == 8, "the trip's three turns, and the one that the fork reads"
    assert await player.snapshot("trip") == before
    assert (await player.snapshot(fork)).version == 1
    assert await prune(store, limit=limit) == 0
