"""A fork taken from a snapshot inside a fork's past names the session that holds it."""

from __future__ import annotations

from holdfast.core.history.conversation import Notes, Segment, Snapshot
from holdfast.core.history.log import Log
from holdfast.ids import SessionId, Version
from tests.core.builders import mint, said

OLD, MIDDLE, NEW, FORK = (mint(SessionId) for _ in range(4))


def segment(session_id: SessionId, version: int, *, rev: int) -> Segment:
    return Segment(
        session_id=session_id, upto_pos=version, upto_version=Version(version), upto_rev=rev
    )


PAST = (segment(OLD, 2, rev=1), segment(MIDDLE, 4, rev=3))


def lineage_of_a_fork_at(version: int, *, rev: int) -> tuple[Segment, ...]:
    """The past is one item a version."""
    items = Log(said(f"{n}") for n in range(version))
    notes = Notes(rev=rev)
    return (
        Snapshot(session_id=NEW, version=Version(version), items=items, lineage=PAST, notes=notes)
        .forked(FORK)
        .lineage
    )


def test_a_fork_after_its_past_has_all_of_it() -> None:
    for version in (4, 5):
        assert lineage_of_a_fork_at(version, rev=3) == (*PAST, segment(NEW, version, rev=3))


def test_a_fork_inside_its_past_ends_with_the_session_that_made_the_next_version() -> None:
    assert lineage_of_a_fork_at(0, rev=0) == (segment(OLD, 0, rev=0),)
    assert lineage_of_a_fork_at(1, rev=1) == (segment(OLD, 1, rev=1),)
    assert lineage_of_a_fork_at(2, rev=2) == (PAST[0], segment(MIDDLE, 2, rev=2))
    assert lineage_of_a_fork_at(3, rev=2) == (PAST[0], segment(MIDDLE, 3, rev=2))
