"""Reading: snapshots at every version, brought forward cheaply, and what damage does to them."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import (
    Flagged,
    Snapshot,
    Titled,
    seen_by_model,
    seen_by_people,
)
from holdfast.core.items import Summary
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import decode_records, fold
from holdfast.ids import Minter, NoteId, SessionId, TurnId, Version
from holdfast.store.outcomes import Annotated, Started
from holdfast.store.store import Store
from tests.store.builders import ACME, Player
from tests.store.homes import Damage

# ── snapshots ────────────────────────────────────────────────────────────────────────────────


async def test_a_session_before_its_first_turn_is_empty(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    assert await player.snapshot("trip") == Snapshot(session_id=turn.session_id)


async def test_what_the_store_reads_is_what_the_core_says(store: Store, player: Player) -> None:
    """Committing to a snapshot in memory and reading it back give the same value, at every version."""
    turn = await player.open("trip")
    expected = [await player.snapshot("trip")]
    await turn.end()
    for n in range(4):
        turn = await player.open("trip", f"Question {n}", agent=f"agent {n % 2}")
        changes = (ev.StateSet(name=f"n{n % 2}", value="" if n == 3 else f"{n}"),)
        if n == 2:
            await turn.call("fly", finish=False)
            await turn.interrupt("deadline")
        else:
            await turn.answer(f"Answer {n}", changes=changes)
        await turn.commit()
        now = expected[-1].with_commit(turn.kept()[0])
        outcome = await store.annotate(
            ACME,
            turn.session_id,
            [(None, Titled(title=f"{n}")), (None, Flagged(name=f"{n}", value="yes"))],
        )
        assert isinstance(outcome, Annotated)
        expected.append(now.with_annotations(*outcome.annotations))

    assert await player.snapshot("trip") == expected[-1]
    for version, snapshot in enumerate(expected):
        assert await player.snapshot("trip", version=version) == snapshot, version


async def test_the_furthest_summary_of_a_turn_is_known(
    store: Store, player: Player, mint: Minter
) -> None:
    """It stands in for what it covers, whether the snapshot was read whole or brought forward."""
    await player.play("trip")
    known = await player.snapshot("trip")
    turn = await player.open("trip")
    summary = Summary(id=mint(NoteId), text="They met.", covers_to=2)
    await turn.record(ev.Compacted(summary=summary))
    await turn.answer()
    await turn.commit()
    await player.play("trip")

    for found in (await player.snapshot("trip"), await player.snapshot("trip", known=known)):
        assert found.turn_summary == summary
    assert (await player.snapshot("trip", version=1)).turn_summary is None


async def test_calls_that_wait_are_still_waiting(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    waiting = msgspec.structs.replace(turn.new_call("ask"), waits_for="client")
    await turn.answer(waiting)
    await turn.commit()
    assert (await player.snapshot("trip")).waiting == (waiting,)


async def test_there_is_no_snapshot_of_what_is_not_there(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    assert await store.snapshot(ACME, mint(SessionId)) is None
    assert await store.snapshot(ACME, turn.session_id, version=Version(2)) is None


async def test_an_open_turn_is_not_in_a_snapshot(store: Store, player: Player) -> None:
    await player.play("trip")
    before = await player.snapshot("trip")
    turn = await player.open("trip")
    await turn.answer(changes=(ev.StateSet(name="todo", value="[]"),))
    assert await player.snapshot("trip") == before


# ── bringing one forward ─────────────────────────────────────────────────────────────────────


async def test_a_known_snapshot_is_brought_forward(store: Store, player: Player) -> None:
    seen = []
    for n in range(4):
        changes = (ev.StateSet(name=f"n{n}", value="1"),)
        turn = await player.play("trip", changes=changes)
        seen.append(await player.snapshot("trip"))
        await store.annotate(ACME, turn.session_id, [(None, Titled(title=f"{n}"))])
        seen.append(await player.snapshot("trip"))

    for known in seen:
        assert await player.snapshot("trip", known=known) == seen[-1]
        for version in range(known.version, 5):
            expected = await player.snapshot("trip", version=version)
            assert await player.snapshot("trip", version=version, known=known) == expected


async def test_bringing_forward_costs_what_is_new(store: Store, player: Player) -> None:
    """What is known is shared, not read again: damage below it is not even seen."""
    await player.play("trip")
    known = await player.snapshot("trip")
    await player.play("trip")
    after = await player.snapshot("trip", known=known)
    assert all(mine is theirs for mine, theirs in zip(known.items, after.items, strict=False))


async def test_damage_below_a_known_snapshot_is_not_read(
    store: Store, player: Player, damage: Damage
) -> None:
    turn = await player.play("trip")
    known = await player.snapshot("trip")
    await player.play("trip")
    await damage.item(ACME, turn.session_id, 0, b"broken")
    after = await player.snapshot("trip", known=known)
    assert not any(isinstance(each, Unreadable) for each in after.items)


async def test_a_later_snapshot_does_not_help_with_an_earlier_version(
    store: Store, player: Player
) -> None:
    await player.play("trip")
    at_one = await player.snapshot("trip")
    await player.play("trip")
    known = await player.snapshot("trip")
    assert await player.snapshot("trip", version=1, known=known) == at_one


async def test_a_forks_first_snapshot_may_be_made_from_its_parents(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    parent, fresh = await player.snapshot("trip"), mint(SessionId)
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=fresh)
    known = parent.forked(fresh)
    assert await player.snapshot(fresh, known=known) == known
    await player.play(fresh)
    assert await player.snapshot(fresh, known=known) == await player.snapshot(fresh)


async def test_two_readers_of_one_known_snapshot_do_not_disturb_each_other(
    store: Store, player: Player
) -> None:
    await player.play("trip")
    known = await player.snapshot("trip")
    before = tuple(known.items)
    await player.play("trip")
    first = await player.snapshot("trip", known=known)
    second = await player.snapshot("trip", known=known)
    assert first == second
    assert tuple(known.items) == before


# ── turns ────────────────────────────────────────────────────────────────────────────────────


async def test_turns_are_read_newest_first_in_every_state(store: Store, player: Player) -> None:
    made = [
        await player.play("trip"),
        await player.discard("trip"),
        await player.play("trip"),
        await player.open("trip"),
    ]
    await player.play("holiday")
    session_id, ids = made[0].session_id, [turn.turn_id for turn in made[::-1]]

    async def found(before: TurnId | None = None, limit: int = 100) -> list[TurnId]:
        rows = await store.turns(ACME, session_id, before=before, limit=limit)
        return [row.turn_id for row in rows]

    assert await found() == ids
    assert await found(limit=2) == ids[:2]
    assert await found(before=ids[1], limit=2) == ids[2:]
    assert await found(before=ids[3]) == []
    states = [row.state for row in await store.turns(ACME, session_id)]
    assert states == ["open", "committed", "discarded", "committed"]


async def test_turns_stand_by_their_versions_and_not_by_the_clock_that_named_them(
    store: Store, player: Player
) -> None:
    """Ids are minted by nodes, and a turn that waits is named long before it begins."""
    late = Minter(now_ms=lambda: 9_000_000_000_000, random_bits=lambda bits: 1)
    early = Minter(now_ms=lambda: 1_000, random_bits=lambda bits: 2)
    first = await player.play("trip", turn_id=late(TurnId))
    running = await player.open("trip", turn_id=early(TurnId))
    waits = await player.wait("trip", turn_id=early(TurnId))
    behind = await player.wait("trip", turn_id=late(TurnId))
    session_id = first.session_id

    async def found(before: TurnId | None = None) -> list[TurnId]:
        rows = await store.turns(ACME, session_id, before=before)
        return [row.turn_id for row in rows]

    ids = [each.turn_id for each in (behind, waits, running, first)]
    assert await found() == ids
    for n, turn_id in enumerate(ids):
        assert await found(turn_id) == ids[n + 1 :]
    await running.answer()
    await running.commit()
    opened = await store.open_queued(await player.opening(waits.turn_id))
    assert isinstance(opened, Started)
    assert await found() == [each.turn_id for each in (behind, opened.fence, running, first)]
    elsewhere = await player.play("holiday")
    assert await found(elsewhere.turn_id) == []


async def test_a_fork_has_only_its_own_turns(store: Store, player: Player, mint: Minter) -> None:
    turn = await player.play("trip")
    fork = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    assert await store.turns(ACME, fork.id) == ()
    own = await player.play(fork.id)
    assert [row.turn_id for row in await store.turns(ACME, fork.id)] == [own.turn_id]


async def test_what_is_not_there_is_absent(store: Store, player: Player, mint: Minter) -> None:
    assert await store.turn(ACME, mint(TurnId)) is None
    assert await store.turns(ACME, mint(SessionId)) == ()
    assert await store.journal(ACME, mint(TurnId)) == ()
    assert await store.session(ACME, mint(SessionId)) is None
    await store.acknowledge(ACME, mint(TurnId))


async def test_an_acknowledged_turn_is_remembered_as_such(store: Store, player: Player) -> None:
    kept, lost = await player.play("trip"), await player.discard("trip")
    assert not (await kept.row()).acked
    for turn in (kept, lost):
        for _ in range(2):
            await store.acknowledge(ACME, turn.turn_id)
        assert (await turn.row()).acked


# ── damage ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'{"type":"unheard of"}', b"[1]"])
async def test_an_item_that_cannot_be_read_is_quarantined_by_itself(
    store: Store, player: Player, damage: Damage, body: bytes
) -> None:
    turn = await player.play("trip", "Question", "Answer")
    await player.play("trip", "Another", "Answer")
    whole = await player.snapshot("trip")
    await damage.item(ACME, turn.session_id, 1, body)

    found = await player.snapshot("trip")
    broken = found.items[1]
    assert isinstance(broken, Unreadable) and broken.raw == body
    assert [found.items[n] for n in (0, 2, 3)] == [whole.items[n] for n in (0, 2, 3)]
    assert len(list(seen_by_people(found))) == 4
    assert len(list(seen_by_model(found))) == 3
    await player.play("trip", "And now?")
    assert (await player.snapshot("trip")).version == 3


async def test_a_record_that_cannot_be_read_stops_the_fold_there(
    store: Store, player: Player, damage: Damage
) -> None:
    turn = await player.open("trip")
    await turn.call("look")
    before = turn.n
    await turn.answer()
    await damage.record(ACME, turn.turn_id, before, b"broken\nrecords")

    rows = await store.journal(ACME, turn.turn_id)
    folded = fold(record for row in rows for record in decode_records(row.records))
    assert folded.turn is not None and folded.damage is not None
    assert folded.next_n == before
    assert folded.may_have_acted
    await turn.end("crash")


@pytest.mark.parametrize(
    "patch", [b"", b"\xff", b'{"type":"unheard of"}', b'{"type":"visibility"}']
)
async def test_an_annotation_that_cannot_be_read_says_nothing(
    store: Store, player: Player, damage: Damage, patch: bytes
) -> None:
    turn = await player.play("trip")
    await store.annotate(
        ACME,
        turn.session_id,
        [(None, Titled(title="one")), (None, Titled(title="two")), (None, Flagged(name="x"))],
    )
    await damage.annotation(ACME, turn.session_id, 2, patch)

    found = await player.snapshot("trip")
    assert (found.notes.title, found.notes.rev) == ("one", 3)
    outcome = await store.annotate(ACME, turn.session_id, [(None, Titled(title="four"))])
    assert isinstance(outcome, Annotated) and outcome.annotations[0].rev == 4
    await player.play("trip")
    assert (await player.snapshot("trip")).notes.title == "four"
