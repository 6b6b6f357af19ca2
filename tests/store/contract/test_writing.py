"""Append, commit, end: what they write, under which fence, and what happens when they are repeated."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.core.history.checks import StoredTurn, check_history
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import decode_records, fold
from holdfast.errors import StoreError, Superseded
from holdfast.ids import IdempotencyKey, SessionId, Version
from holdfast.store.outcomes import Committed, Fence, Started, Taken
from holdfast.store.rows import JournalRow
from holdfast.store.snapshots import mark_of
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, SOURCE, Player, Playing
from tests.store.contract.words import changes_nothing
from tests.store.state import session_state

# ── append ───────────────────────────────────────────────────────────────────────────────────


async def test_a_journal_holds_its_rows_as_they_were_appended(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.append(turn.fence, n=1, records=b"one\ntwo")
    await store.append(turn.fence, n=7, records=b"seven")

    first, *rest = await store.journal(ACME, turn.turn_id)
    token = turn.fence.token
    assert first.n == 0
    assert rest == [
        JournalRow(tenant=ACME, turn_id=turn.turn_id, n=1, token=token, records=b"one\ntwo"),
        JournalRow(tenant=ACME, turn_id=turn.turn_id, n=7, token=token, records=b"seven"),
    ]


async def test_a_turn_can_be_folded_from_its_journal(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await turn.call("look")
    await turn.answer()

    rows = await store.journal(ACME, turn.turn_id)
    folded = fold(record for row in rows for record in decode_records(row.records))
    assert (folded.turn, folded.next_n, folded.damage) == (turn.turn, turn.n, None)


async def test_the_same_append_again_changes_nothing(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.append(turn.fence, n=1, records=b"one")
    await store.append(turn.fence, n=2, records=b"two")

    async with changes_nothing(store):
        await store.append(turn.fence, n=2, records=b"two")
        await store.append(turn.fence, n=1, records=b"one")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
async def test_other_records_cannot_take_a_place_that_the_journal_has_passed(
    store: Store, player: Player, n: int
) -> None:
    turn = await player.open("trip")
    await store.append(turn.fence, n=2, records=b"two")
    await store.append(turn.fence, n=4, records=b"four")

    async with changes_nothing(store):
        with pytest.raises(StoreError):
            await store.append(turn.fence, n=n, records=b"other")


async def test_an_append_without_records_may_still_consume(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.signal(ACME, turn.turn_id, kind="steer")
    await store.append(turn.fence, n=1, records=b"", consumed=[1])

    assert len(await store.journal(ACME, turn.turn_id)) == 1
    assert await store.signals(player.node) == ()


async def test_a_refused_append_consumes_nothing(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.signal(ACME, turn.turn_id, kind="steer")
    async with changes_nothing(store, nodes=[player.node]):
        with pytest.raises(StoreError):
            await store.append(turn.fence, n=0, records=b"other", consumed=[1])


async def test_a_journal_is_read_from_the_row_that_may_hold_a_number(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    for n in (1, 5, 9):
        await store.append(turn.fence, n=n, records=f"{n}".encode())

    async def found(since: int) -> list[int]:
        return [row.n for row in await store.journal(ACME, turn.turn_id, since=since)]

    assert await found(0) == [0, 1, 5, 9]
    assert await found(1) == [1, 5, 9]
    assert await found(4) == [1, 5, 9]
    assert await found(5) == [5, 9]
    assert await found(100) == [9]


# ── commit ───────────────────────────────────────────────────────────────────────────────────


async def test_a_commit_moves_the_session_to_its_next_version(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", "When is the next train to Oslo?")
    await turn.answer()
    opened = await store.session(ACME, turn.session_id)
    now = clock.advance(1)
    commit, _, _ = turn.kept()

    assert await turn.commit() == Committed(version=Version(1), at_ms=now)
    assert opened is not None
    assert await store.session(ACME, turn.session_id) == msgspec.structs.replace(
        opened,
        head=Version(1),
        length=len(commit.items),
        link=commit.link,
        source_key=SOURCE,
        entry_agent="butler",
        agent="butler",
        opening="When is the next train to Oslo?",
        active_ms=now,
        open_turn=None,
        lease_node=None,
    )


async def test_a_committed_turn_says_where_it_lies_and_how_it_ended(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.play("trip")
    turn = await player.open("trip")
    remembered = ev.StateSet(name="todo", value="[]")
    await turn.answer(changes=(remembered,))
    opened = await turn.row()
    now = clock.advance(1)
    await turn.commit()

    commit, _, _ = turn.kept()
    assert await turn.row() == msgspec.structs.replace(
        opened,
        state="committed",
        seq=Version(2),
        ended_by="completed",
        start=2,
        end=2 + len(commit.items),
        changes=(remembered,),
        link=commit.link,
        usage=ev.Usage(output_tokens=1),
        ended_ms=now,
    )


async def test_what_was_committed_is_read_back_in_the_same_bytes(
    store: Store, player: Player
) -> None:
    turns = [await player.play("trip", f"Question {n}", f"Answer {n}") for n in range(3)]

    dump = await store.dump(ACME, turns[0].session_id)
    assert dump is not None
    bodies = tuple(body for turn in turns for body in turn.kept()[0].encoded)
    assert tuple(row.body for row in dump.items) == bodies
    assert [row.pos for row in dump.items] == list(range(len(bodies)))


async def test_committed_turns_form_a_chain_that_can_be_checked(
    store: Store, player: Player
) -> None:
    for n in range(3):
        changes = (ev.StateSet(name="todo", value=f"[{n}]"),)
        await player.play("trip", changes=changes)

    dump = await store.dump(ACME, await player.id_of("trip"))
    assert dump is not None
    stored = [
        StoredTurn(
            mark=mark_of(turn),
            encoded=tuple(row.body for row in dump.items[turn.start : turn.end]),
            changes=turn.changes,
        )
        for turn in dump.turns
    ]
    assert list(check_history(stored)) == []


async def test_a_turn_that_broke_off_can_be_kept(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await turn.call("fly", finish=False)
    await turn.interrupt("cancelled", "the user pressed stop")
    await turn.commit()

    row = await turn.row()
    ended = (row.state, row.ended_by, row.detail)
    assert ended == ("committed", "cancelled", "the user pressed stop")
    assert len((await player.snapshot("trip")).items) == row.end


async def test_the_first_commit_says_whose_session_it_is(store: Store, player: Player) -> None:
    await player.discard("trip", agent="nobody")
    await player.play("trip", agent="butler")
    await player.play("trip", agent="specialist")

    session = await store.session(ACME, await player.id_of("trip"))
    assert session is not None
    assert (session.entry_agent, session.agent) == ("butler", "specialist")


async def test_the_opening_is_the_first_words_that_were_committed(
    store: Store, player: Player
) -> None:
    await player.discard("trip", "Never mind")
    await player.play("trip", "When is the train?")
    await player.play("trip", "And the bus?")

    session = await store.session(ACME, await player.id_of("trip"))
    assert session is not None and session.opening == "When is the train?"


async def test_committing_again_says_the_same(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k")
    await turn.answer()
    first = await turn.commit()

    clock.advance(1)
    async with changes_nothing(store, claims=["k"]):
        assert await turn.commit() == first
    await player.play("trip")
    await player.open("trip")
    async with changes_nothing(store, claims=["k"]):
        assert await turn.commit() == first


async def test_another_commit_of_a_committed_turn_is_refused(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    commit, n, records = turn.kept()
    async with changes_nothing(store):
        with pytest.raises(Superseded):
            await store.commit(
                turn.fence, msgspec.structs.replace(commit, link=b"x" * 32), n=n, records=records
            )


async def test_the_last_records_may_be_empty(store: Store, player: Player) -> None:
    turn = await player.open("trip", replayable=True)
    await turn.answer()
    before = await store.journal(ACME, turn.turn_id)
    commit, n, _ = turn.kept()
    await store.commit(turn.fence, commit, n=n, records=b"")
    assert await store.journal(ACME, turn.turn_id) == before


async def test_a_replayable_turn_keeps_its_events_to_the_last(store: Store, player: Player) -> None:
    turn = await player.play("trip", replayable=True)

    rows = await store.journal(ACME, turn.turn_id)
    folded = fold(record for row in rows for record in decode_records(row.records))
    assert folded.turn is not None
    assert folded.turn.ended == ev.Ended(by="completed", kept=True)


async def test_nobody_comes_back_for_the_events_of_a_plain_turn(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip")
    assert await store.journal(ACME, turn.turn_id) == ()


# ── session state and memories ───────────────────────────────────────────────────────────────


async def test_session_state_is_what_the_last_commit_said(store: Store, player: Player) -> None:
    await player.play("trip", changes=(state("todo", "[1]"), state("mood", "good")))
    await player.play("trip", changes=(state("todo", "[1]"), state("todo", "[2]")))
    assert (await player.snapshot("trip")).state == (("mood", "good"), ("todo", "[2]"))

    await player.play("trip", changes=(state("mood", ""),))
    assert (await player.snapshot("trip")).state == (("todo", "[2]"),)


async def test_memories_are_shared_by_an_agents_sessions(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip", changes=(added("m1", "likes trains"),))
    clock.advance(1)
    await player.play("holiday", changes=(added("m2", "hates rain"), added("m3", "x", agent="b")))

    first, second = await store.memories(ACME, "butler")
    assert (first.memory_id, first.text, first.turn_id) == ("m1", "likes trains", turn.turn_id)
    assert (second.memory_id, second.at_ms) == ("m2", clock.now_ms())
    assert [row.memory_id for row in await store.memories(ACME, "b")] == ["m3"]
    assert await store.memories(ACME, "nobody") == ()


async def test_remembering_twice_and_forgetting_twice_are_fine(
    store: Store, player: Player, clock: ManualClock
) -> None:
    """Sessions commute: what another one did in between must not break a commit."""
    await player.play("trip", changes=(added("m1", "likes trains"),))
    before = await store.memories(ACME, "butler")
    clock.advance(1)
    await player.play("holiday", changes=(added("m1", "likes planes"),))
    assert await store.memories(ACME, "butler") == before

    await player.play("trip", changes=(forgotten("m1"), forgotten("m2")))
    assert await store.memories(ACME, "butler") == ()
    await player.play("holiday", changes=(forgotten("m1"),))
    await player.play("holiday", changes=(added("m1", "again"), forgotten("m1")))
    assert await store.memories(ACME, "butler") == ()


# ── end ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_discarded_turn_leaves_everything_as_it_was(
    store: Store, player: Player, clock: ManualClock
) -> None:
    """Promise 1. Only the turn itself can still be read, as a discarded turn."""
    turn = await player.play("trip", changes=(state("todo", "[1]"), added("m1", "likes trains")))
    before = await session_state(store, ACME, turn.session_id)
    memories = await store.memories(ACME, "butler")
    clock.advance(1)

    lost = await player.open("trip", "Forget all that")
    await lost.answer(changes=(state("todo", ""), forgotten("m1"), added("m2", "x")))
    row = await lost.end("model_error", detail="the model failed")

    after = await session_state(store, ACME, turn.session_id)
    assert after.snapshots == before.snapshots
    assert await store.memories(ACME, "butler") == memories
    assert after.turns == (row, *before.turns)
    assert after.dump is not None and before.dump is not None
    assert after.dump == msgspec.structs.replace(
        before.dump,
        turns=(*before.dump.turns, row),
        journals=await store.journal(ACME, row.turn_id),
    )
    session = before.session
    assert after.session == msgspec.structs.replace(
        session, lease_token=lost.fence.token, lease_nonce=lost.fence.nonce
    )


async def test_a_discarded_turn_stays_readable(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", "Hello")
    await turn.call("look")
    opened = await turn.row()
    now = clock.advance(1)
    row = await turn.end("deadline", detail="it took too long")

    assert await turn.row() == row
    assert row == msgspec.structs.replace(
        opened,
        state="discarded",
        ended_by="deadline",
        detail="it took too long",
        ended_ms=now,
    )
    rows = await store.journal(ACME, turn.turn_id)
    folded = fold(record for each in rows for record in decode_records(each.records))
    assert folded.turn is not None and folded.turn.ended == ev.Ended(by="deadline", kept=False)
    assert len(folded.turn.items) == len(turn.turn.items)


async def test_ending_again_returns_the_same_row(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k")
    first = await turn.end("cancelled")

    clock.advance(1)
    async with changes_nothing(store, claims=["k"]):
        assert await turn.end("cancelled") == first
        assert await turn.end("model_error", settlement="done") == first
    await player.play("trip")
    assert await turn.end("cancelled") == first


async def test_an_ended_turn_may_leave_its_last_words_out(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    before = await store.journal(ACME, turn.turn_id)
    await store.end(turn.fence, ended_by="crash", detail="", n=1, records=b"", settlement="failed")
    assert await store.journal(ACME, turn.turn_id) == before


async def test_after_an_end_the_session_is_free(store: Store, player: Player) -> None:
    await player.discard("trip")
    await player.play("trip")
    assert (await player.snapshot("trip")).version == 1


# ── fences ───────────────────────────────────────────────────────────────────────────────────

WRITES = ["append", "commit", "end", "release"]


async def write(turn: Playing, how: str, fence: Fence) -> None:
    """One of the writes that need a fence, with everything else as it should be."""
    commit, n, records = turn.kept()
    store = turn.store
    match how:
        case "append":
            await store.append(fence, n=n, records=b"more", consumed=[1])
        case "commit":
            await store.commit(fence, commit, n=n, records=records)
        case "end":
            await store.end(
                fence, ended_by="cancelled", detail="", n=n, records=records, settlement="done"
            )
        case "release":
            await store.release(fence)


@pytest.mark.parametrize("how", WRITES)
async def test_a_fence_holds_only_if_all_of_it_does(store: Store, player: Player, how: str) -> None:
    turn = await player.open("trip", key="k")
    await store.signal(ACME, turn.turn_id, kind="steer")
    await turn.answer()
    other = await player.open("holiday")
    fence = turn.fence
    wrong = [
        msgspec.structs.replace(fence, token=fence.token + 1),
        msgspec.structs.replace(fence, token=fence.token - 1),
        msgspec.structs.replace(fence, nonce="another holder's"),
        msgspec.structs.replace(fence, session_id=other.session_id),
        msgspec.structs.replace(fence, session_id=player.mint(SessionId)),
        msgspec.structs.replace(fence, turn_id=other.turn_id),
    ]
    async with changes_nothing(store, claims=["k"], nodes=[player.node]):
        for each in wrong:
            with pytest.raises(Superseded):
                await write(turn, how, each)


@pytest.mark.parametrize("how", WRITES)
async def test_after_a_takeover_the_old_holder_writes_no_more(
    store: Store, player: Player, how: str
) -> None:
    turn = await player.open("trip")
    await turn.answer()
    taken = await store.takeover(ACME, turn.session_id, node=player.node, nonce="theirs")
    assert isinstance(taken, Taken)

    async with changes_nothing(store):
        with pytest.raises(Superseded):
            await write(turn, how, turn.fence)
    await write(turn, how, taken.fence)


@pytest.mark.parametrize("how", WRITES)
async def test_after_its_end_a_turn_is_written_no_more(
    store: Store, player: Player, how: str
) -> None:
    """But for repeating what has been done: see above."""
    kept, lost = await player.play("trip"), await player.open("holiday")
    await lost.answer()
    await lost.end()
    async with changes_nothing(store):
        if how != "commit":
            with pytest.raises(Superseded):
                await write(kept, how, kept.fence)
        if how != "end":
            with pytest.raises(Superseded):
                await write(lost, how, lost.fence)


async def test_a_commit_that_skips_a_version_is_refused(store: Store, player: Player) -> None:
    """The session has moved past the turn's base: only a restored backup or a bug comes here."""
    await player.play("trip")
    turn = await player.open("trip")
    await turn.answer()
    commit, n, records = turn.kept()
    async with changes_nothing(store):
        for version in (1, 3):
            astray = msgspec.structs.replace(commit, version=Version(version))
            with pytest.raises(Superseded):
                await store.commit(turn.fence, astray, n=n, records=records)


async def test_a_turn_that_was_discarded_by_somebody_else_cannot_be_ended_again(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    taken = await store.takeover(ACME, turn.session_id, node=player.node, nonce="theirs")
    assert isinstance(taken, Taken)
    await turn.taken_by(player, taken).end("crash")

    with pytest.raises(Superseded):
        await turn.end("cancelled")


async def test_settling_a_turn_touches_no_other_key(store: Store, player: Player) -> None:
    first = await player.open("trip", key="k1")
    await player.open("holiday", key="k2")
    await first.end(settlement="failed")

    states = [await store.idempotency(ACME, IdempotencyKey(key)) for key in ("k1", "k2")]
    assert [row.state for row in states if row] == ["failed", "running"]


# ── words ────────────────────────────────────────────────────────────────────────────────────


def state(name: str, value: str) -> ev.StateSet:
    return ev.StateSet(name=name, value=value)


def added(memory_id: str, text: str, *, agent: str = "butler") -> ev.MemoryAdded:
    return ev.MemoryAdded(memory_id=memory_id, agent=agent, text=text)


def forgotten(memory_id: str) -> ev.MemoryDeleted:
    return ev.MemoryDeleted(memory_id=memory_id, agent="butler")


# ── at once ──────────────────────────────────────────────────────────────────────────────────


async def test_turns_of_many_sessions_begin_and_are_committed_at_once(
    store: Store, player: Player
) -> None:
    """Whatever a home writes together, each session gets what is its own."""
    names = [f"trip-{number}" for number in range(12)]
    for name in names:
        await player.play(name)
    for round_ in (2, 3):
        asks = [await player.ask(name, f"And then, {name}?") for name in names]
        started = await asyncio.gather(*map(store.begin, asks))
        turns = []
        for number, (ask, each) in enumerate(zip(asks, started, strict=True)):
            assert isinstance(each, Started), each
            turns.append(await player.playing(ask, each))
            if number % 2:
                await turns[-1].call("look")
            await turns[-1].answer(f"Home, {ask.request.turn_id}")
        done = await asyncio.gather(*(turn.try_commit() for turn in turns))
        assert all(isinstance(each, Committed) and each.version == round_ for each in done)
        for name, turn in zip(names, turns, strict=True):
            snapshot = await player.snapshot(name)
            assert snapshot.items[len(turn.base.items) :] == turn.kept()[0].items
            assert snapshot.link == turn.kept()[0].link
