"""Forks: a session that begins as another one stood, and neither sees what the other does next."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.history import chain
from holdfast.core.history.conversation import (
    Flagged,
    Patch,
    Segment,
    SettingsChanged,
    Snapshot,
    Summarized,
    Titled,
)
from holdfast.core.items import SessionSettings, Summary
from holdfast.core.turns import events as ev
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import Minter, NoteId, SessionId, Version
from holdfast.store.outcomes import Annotated
from holdfast.store.rows import SessionRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing
from tests.store.state import session_state


class Line:
    """A conversation with a turn and a remark for every version, and what it looked like each time."""

    def __init__(self, player: Player, session_id: SessionId, seen: list[Snapshot]) -> None:
        self.player = player
        self.store = player.store
        self.id = session_id
        self.seen = seen
        """By version, as it was when the next turn began."""

    async def play(self, text: str) -> None:
        """One more turn, and then some remarks about it."""
        await self.player.play(self.id, text, changes=(ev.StateSet(name="last", value=text),))
        await self.remark(Titled(title=text), Flagged(name=text, value="yes"))
        self.seen.append(await self.player.snapshot(self.id))

    async def remark(self, *patches: Patch) -> None:
        outcome = await self.store.annotate(ACME, self.id, [(None, each) for each in patches])
        assert isinstance(outcome, Annotated)

    async def fork(self, version: int) -> Line:
        fresh = self.player.mint(SessionId)
        await self.store.fork(ACME, self.id, version=Version(version), fresh=fresh)
        seen = [each.forked(fresh) for each in self.seen[: version + 1]]
        return Line(self.player, fresh, seen)

    async def check(self) -> None:
        """At every version it looks as it did then."""
        for version, expected in enumerate(self.seen):
            found = await self.player.snapshot(self.id, version=version)
            assert content(found) == content(expected), version
        assert await self.store.snapshot(ACME, self.id, version=Version(len(self.seen))) is None


def content(snapshot: Snapshot) -> Snapshot:
    """All of a snapshot but by which way it is read."""
    return msgspec.structs.replace(snapshot, lineage=())


@pytest.fixture
async def line(player: Player) -> Line:
    """Three turns: `one`, `two`, `three`."""
    turn = await player.open("trip")
    await turn.end()
    made = Line(player, turn.session_id, [await player.snapshot("trip")])
    for text in ("one", "two", "three"):
        await made.play(text)
    return made


# ── one fork ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_fork_begins_as_its_parent_stood(line: Line, version: int) -> None:
    """State and annotations included: those that were made while that version was the head."""
    fork = await line.fork(version)
    assert await line.player.snapshot(fork.id) == line.seen[version].forked(fork.id)
    await fork.check()


async def test_a_forks_row_says_where_it_comes_from(
    store: Store, line: Line, clock: ManualClock
) -> None:
    parent = await store.session(ACME, line.id)
    assert parent is not None
    now = clock.advance(1)
    at = line.seen[2]
    fork = await line.fork(2)

    assert await store.session(ACME, fork.id) == SessionRow(
        tenant=ACME,
        id=fork.id,
        head=Version(2),
        length=len(at.items),
        link=at.link,
        source_key=parent.source_key,
        entry_agent=parent.entry_agent,
        agent=at.agent,
        lineage=(
            Segment(
                session_id=line.id,
                upto_pos=len(at.items),
                upto_version=Version(2),
                upto_rev=at.notes.rev,
            ),
        ),
        meta_rev=at.notes.rev,
        title="two",
        opening="one",
        created_ms=now,
        active_ms=now,
    )
    info = await store.info(ACME, fork.id)
    assert info is not None and info.keys == ()


async def test_a_session_knows_its_forks_and_theirs(store: Store, line: Line) -> None:
    assert await store.forks(ACME, line.id, limit=10) == ()
    child = await line.fork(2)
    grandchild = await child.fork(1)
    other = await line.fork(3)
    forks = tuple(sorted((child.id, grandchild.id, other.id)))
    assert await store.forks(ACME, line.id, limit=10) == forks
    assert await store.forks(ACME, line.id, limit=2) == forks[:2]
    assert await store.forks(ACME, child.id, limit=10) == ()  # that one reads nothing of it


async def test_a_fork_at_nothing_is_an_empty_session(store: Store, line: Line) -> None:
    fork = await line.fork(0)
    row = await store.session(ACME, fork.id)
    assert row is not None
    assert (row.head, row.length, row.link, row.entry_agent) == (0, 0, chain.GENESIS, "")
    await fork.check()
    await fork.play("another")
    await fork.check()


async def test_neither_sees_what_the_other_does_next(line: Line) -> None:
    fork = await line.fork(2)
    await fork.play("three in the fork")
    await line.play("four")
    await fork.play("four in the fork")

    await line.check()
    await fork.check()


async def test_a_fork_writes_nothing_into_its_parent(store: Store, line: Line) -> None:
    before = await session_state(store, ACME, line.id)
    fork = await line.fork(2)
    await fork.play("three in the fork")
    await store.put_blob(ACME, fork.id, b"picture")
    await store.remove(ACME, fork.id)
    assert await session_state(store, ACME, line.id) == before


async def test_a_fork_leaves_an_open_turn_of_its_parent_out(
    store: Store, player: Player, line: Line
) -> None:
    turn = await player.open(line.id)
    fork = await line.fork(3)
    row = await store.session(ACME, fork.id)
    assert row is not None and row.open_turn is None and row.lease_node is None
    await fork.play("four in the fork")
    await turn.answer()
    await turn.commit()
    await fork.check()


async def test_settings_and_summary_are_those_of_that_version(
    store: Store, player: Player, mint: Minter
) -> None:
    old = SessionSettings(attributes=(("mood", "good"),))
    first = await player.play("trip")
    summary = Summary(id=mint(NoteId), text="They met.", covers_to=2)
    await store.annotate(
        ACME,
        first.session_id,
        [(None, SettingsChanged(settings=old)), (None, Summarized(summary=summary))],
        summary_rev=0,
    )
    await player.play("trip")
    await store.annotate(
        ACME,
        first.session_id,
        [(None, SettingsChanged(settings=SessionSettings())), (None, Titled(title="Oslo"))],
    )

    fork = await store.fork(ACME, first.session_id, version=Version(1), fresh=mint(SessionId))
    assert (fork.settings, fork.title, fork.meta_rev, fork.summary_rev) == (old, "", 2, 2)
    snapshot = await player.snapshot(fork.id)
    assert (snapshot.notes.settings, snapshot.notes.summary) == (old, summary)


async def test_a_forks_own_annotations_go_on_from_its_parents(line: Line) -> None:
    fork = await line.fork(2)
    rev = line.seen[2].notes.rev
    outcome = await line.store.annotate(ACME, fork.id, [(None, Titled(title="mine"))])
    assert isinstance(outcome, Annotated)
    assert [each.rev for each in outcome.annotations] == [rev + 1]


async def test_forking_again_returns_the_same_row(
    store: Store, line: Line, mint: Minter, clock: ManualClock
) -> None:
    fresh = mint(SessionId)
    row = await store.fork(ACME, line.id, version=Version(2), fresh=fresh)
    clock.advance(1)
    async with changes_nothing(store):
        assert await store.fork(ACME, line.id, version=Version(2), fresh=fresh) == row
    await store.remove(ACME, line.id)
    assert await store.fork(ACME, line.id, version=Version(2), fresh=fresh) == row


async def test_what_is_not_there_cannot_be_forked(store: Store, line: Line, mint: Minter) -> None:
    async with changes_nothing(store):
        with pytest.raises(SessionMissing):
            await store.fork(ACME, line.id, version=Version(4), fresh=mint(SessionId))
        with pytest.raises(SessionMissing):
            await store.fork(ACME, mint(SessionId), version=Version(0), fresh=mint(SessionId))
    await store.remove(ACME, line.id)
    async with changes_nothing(store):
        with pytest.raises(SessionGone):
            await store.fork(ACME, line.id, version=Version(1), fresh=mint(SessionId))


async def test_a_fork_of_a_line_that_nobody_named_is_one_too(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play(None)
    row = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    assert row.anonymous


async def test_a_fork_may_be_a_line_that_nobody_named(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    named = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    fresh = mint(SessionId)
    row = await store.fork(ACME, turn.session_id, version=Version(1), fresh=fresh, anonymous=True)
    assert (named.anonymous, row.anonymous) == (False, True)
    assert await store.session(ACME, fresh) == row


# ── forks of forks ───────────────────────────────────────────────────────────────────────────


async def test_a_fork_of_a_fork_of_a_fork_reads_them_all(line: Line) -> None:
    first = await line.fork(3)
    await first.play("four")
    second = await first.fork(4)
    await second.play("five")
    await second.play("six")
    third = await second.fork(5)
    await third.play("another six")

    for each in (line, first, second, third):
        await each.check()
    row = await line.store.session(ACME, third.id)
    assert row is not None
    assert [segment.session_id for segment in row.lineage] == [line.id, first.id, second.id]


@pytest.mark.parametrize("version", range(6))
async def test_a_fork_can_be_forked_anywhere_in_its_past(line: Line, version: int) -> None:
    """Also where the past lies in another session, and where one session ends and the next begins."""
    first = await line.fork(2)
    await first.play("another three")
    second = await first.fork(3)
    await second.play("another four")
    await second.play("another five")

    branch = await second.fork(version)
    await branch.check()
    await branch.play("something else")
    for each in (line, first, second, branch):
        await each.check()


async def test_remarks_on_a_fork_before_its_first_turn_belong_to_the_version_it_began_at(
    line: Line,
) -> None:
    """They were made while that version was the fork's head; a fork of the fork there has them too."""
    fork = await line.fork(2)
    await fork.remark(Titled(title="mine"), Flagged(name="fork", value="yes"))
    fork.seen[2] = await fork.player.snapshot(fork.id)
    await fork.play("another three")
    await fork.check()

    branch = await fork.fork(2)
    await branch.check()
    row = await line.store.session(ACME, branch.id)
    assert row is not None and row.title == "mine"


async def test_forks_at_the_same_version_have_the_remarks_of_those_before_them(line: Line) -> None:
    first = await line.fork(3)
    await first.remark(Titled(title="first"))
    first.seen[3] = await first.player.snapshot(first.id)
    second = await first.fork(3)
    await second.remark(Flagged(name="second", value="yes"))
    second.seen[3] = await second.player.snapshot(second.id)
    third = await second.fork(3)
    await third.play("four")

    for each in (line, first, second, third):
        await each.check()
    assert third.seen[3].notes.title == "first"


# ── forks whose parents are gone ─────────────────────────────────────────────────────────────


async def test_a_fork_outlives_its_parent(store: Store, line: Line) -> None:
    digest = await store.put_blob(ACME, line.id, b"picture")
    first = await line.fork(2)
    await first.play("another three")
    second = await first.fork(3)
    for each in (line, first):
        await store.remove(ACME, each.id)
    while (await store.prune()).more:
        pass

    await second.check()
    await second.play("another four")
    await second.check()
    assert await store.blob(ACME, second.id, digest) == b"picture"
    branch = await second.fork(1)
    await branch.check()


async def test_the_bytes_of_a_deleted_parent_go_with_its_last_fork(
    store: Store, line: Line
) -> None:
    forks = [await line.fork(2), await line.fork(3)]
    await store.remove(ACME, line.id)
    for each in forks:
        while (await store.prune()).more:
            pass
        assert (await store.stats()).items > 0
        await store.remove(ACME, each.id)
    while (await store.prune()).more:
        pass
    assert (await store.stats()).items == 0
