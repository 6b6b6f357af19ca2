"""Snapshots, made of rows. Pure functions, shared by all homes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.core.codec import Unreadable, Value
from holdfast.core.history import chain, conversation
from holdfast.core.history.log import Log
from holdfast.core.items import StoredItem, Summary, item_decoder
from holdfast.core.turns.unfinished_turns import broken_off
from holdfast.ids import ItemId, SessionId, Version
from holdfast.store.rows import AnnotationRow, SessionRow, StateRow, TurnRow

NO_NOTES = conversation.Notes()


def mark_of(turn: TurnRow) -> conversation.TurnMark:
    """The mark of a committed turn: where its items lie in the history."""
    assert turn.seq is not None and turn.ended_by is not None, "only a committed turn has a mark"
    return conversation.TurnMark(
        turn_id=turn.turn_id,
        version=turn.seq,
        start=turn.start,
        end=turn.end,
        link=turn.link,
        ended_by=turn.ended_by,
        agent=turn.agent,
        # An older server, without continuations, may have committed it: then it does not count as one.
        continues=turn.continues if turn.links is not None else None,
        is_foreign=turn.lease_token == 0,
    )


def annotation_of(row: AnnotationRow) -> conversation.Annotation | None:
    """An annotation, or None if it cannot be read: then it has no effect, and its session stays usable."""
    patch = conversation.patch_decoder.lenient(row.patch)
    if isinstance(patch, Unreadable) or (
        isinstance(patch, conversation.Visibility) and row.item is None
    ):
        return None
    return conversation.Annotation(rev=row.rev, patch=patch, item=row.item, at_ms=row.at_ms)


def notes_of(
    rows: Iterable[AnnotationRow], *, on: conversation.Notes = NO_NOTES
) -> conversation.Notes:
    """The notes that these annotations make, applied in the order of their revisions."""
    rows = tuple(rows)
    readable = (each for each in map(annotation_of, rows) if each is not None)
    notes = conversation.annotated(on, readable)
    return msgspec.structs.replace(notes, rev=rows[-1].rev) if rows else notes


def state_of(
    rows: Iterable[StateRow], *, on: tuple[tuple[str, str], ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Session state after these rows, in the order of their versions."""
    merged = dict(on)
    for row in rows:
        merged[row.name] = row.value
    return tuple(sorted((name, value) for name, value in merged.items() if value))


class Later(Value):
    """The decoded rows that come after a snapshot. `extended` joins both into a later snapshot."""

    known: conversation.Snapshot
    session: SessionRow
    items: tuple[StoredItem, ...]
    size_bytes: int
    """The size of the items, encoded."""
    marks: tuple[conversation.TurnMark, ...]
    state: tuple[tuple[str, str], ...]
    """The whole state of the later snapshot."""
    notes: conversation.Notes
    """The whole notes of the later snapshot."""


def later(
    known: conversation.Snapshot,
    session: SessionRow,
    *,
    turns: Sequence[TurnRow],
    items: Sequence[bytes],
    state: Iterable[StateRow],
    annotations: Iterable[AnnotationRow],
) -> Later:
    """Decode the rows that came after a snapshot. Any thread may call it: it extends no shared log."""
    return Later(
        known=known,
        session=session,
        items=tuple(map(item_decoder.lenient, items)),
        size_bytes=sum(map(len, items)),
        marks=tuple(map(mark_of, turns)),
        state=state_of(state, on=known.state),
        notes=notes_of(annotations, on=known.notes),
    )


def extended(found: Later) -> conversation.Snapshot:
    """The later snapshot. Costs as much as what is new.

    Only the thread that holds the earlier snapshot may call it: a log that two threads extend at once is damaged
    for both.
    """
    known, session = found.known, found.session
    log, marks = known.items.extended(found.items), known.marks.extended(found.marks)
    last = marks[-1] if marks else None
    made = (each for each in found.items if isinstance(each, Summary) and not each.path)
    return msgspec.structs.replace(
        known,
        version=last.version if last else Version(0),
        items=log,
        marks=marks,
        state=found.state,
        waiting=conversation.waiting_calls(log[last.start : last.end]) if last else (),
        turn_summary=conversation.further(known.turn_summary, *made),
        broken_off=known.broken_off.union(*_broken_off(found.marks, log, marks)),
        notes=found.notes,
        lineage=session.lineage,
        link=last.link if last else chain.GENESIS,
        # The first commit writes them, so version 0 does not have them yet.
        source_key=session.source_key if last else "",
        source_name=(session.source_name or "") if last else "",
        entry_agent=session.entry_agent if last else "",
        agent=last.agent if last else "",
        family=session.family,
        size_bytes=known.size_bytes + found.size_bytes,
    )


def _broken_off(
    news: Iterable[conversation.TurnMark], items: Log[StoredItem], marks: Log[conversation.TurnMark]
) -> Iterator[frozenset[ItemId]]:
    """For each continuation among these turns: the broken-off items of the turn that it continues."""
    for mark in news:
        if mark.continues is not None and mark.version > 1:
            before = marks[mark.version - 2]
            yield broken_off(items[before.start : before.end])


def empty_snapshot(session_id: SessionId) -> conversation.Snapshot:
    """A session before its first turn."""
    return conversation.Snapshot(session_id=session_id)
