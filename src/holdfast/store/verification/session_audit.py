"""The promises, as far as the rows of one session can show them. Pure, for every home; `verification/verification.py` reads the rows.

What `core/history/checks.py` says about a history comes first. On top of it, for a session:
  head_off          the head is not the number of its versions
  length_off        the length is not the number of its positions
  link_off          its link is not that of its last turn
  agent_off         its agent is not the one that has spoken last
  active_off        it was not last active when its last turn ended, or it was made
  unfinished_off    it can be continued at a version whose turn did not break off, or is not there
  discarded_full    a discarded turn says that it has changed something
  turn_unmarked     an ended turn does not say how it ended, or a committed one which version it made
  continues_off     a turn goes on with another one than the last before it, or with one that was whole
  item_astray       an item lies in no committed turn, or says that it belongs to another one, or to another branch
  state_astray      session state that no committed turn has set, or not to this value
  revision_gap      annotations are not numbered without a gap up to the session's revision
  notes_off         title, settings or summary are not what the annotations say
  past_missing      a fork goes on from a session that does not exist
  past_off          a fork goes on from a version, position or revision that is not there
  blob_damaged      bytes are not what their digest says
  blob_missing      an item names bytes that are not there
  open_off          more than one turn is open, or the session says otherwise than its turns (`pairings.py`)
  queued_off        a turn waits for a session that is deleted, or says that it has begun or ended (`pairings.py`)
  journal_cut       the journal of an open, queued, replayable or discarded turn does not begin with its request, or
                    events are missing in one that can be replayed
  journal_off       a journal is not its turn's: another request, time or order, or one that was to be gone
  signal_off        a signal of an open turn was read, and its journal does not say so; or the reverse
  key_off           a key means another session than the one that has it
  tombstone_full    a deleted session holds what it must not
  index_off         the search index lacks words that it should know
  unreadable        a row that cannot be read

A fork is judged on top of its past: on that link, version, position, revision, and the calls that waited there.
Bytes of a deleted session go in small steps, so what is left of it is judged only while it is all there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from holdfast.core.codec import Unreadable, Value
from holdfast.core.history import chain
from holdfast.core.history.checks import StoredTurn, Violation, check_history
from holdfast.core.history.conversation import Notes, patch_decoder, waiting_calls
from holdfast.core.items import (
    SessionSettings,
    ToolCall,
    item_decoder,
)
from holdfast.core.turns.events import Began, Ended, Event, StateSet, Steered
from holdfast.core.turns.journal import Record, decode_records
from holdfast.ids import TurnId, Version
from holdfast.store.decisions import owner_of
from holdfast.store.outcomes import SessionDump
from holdfast.store.overwritten import is_overwritten
from holdfast.store.rows import AnnotationRow, ItemRow, JournalRow, SessionRow, SignalRow, TurnRow
from holdfast.store.snapshots import mark_of, notes_of
from holdfast.store.transfer.import_checks import blobs_named, digest_of, path_of

Past = Sequence[SessionDump | None]
"""The sessions of a lineage, in its order; None for a session that does not exist."""


class Base(Value):
    """What a session's own turns go on from: nothing, or the end of a fork's past."""

    version: Version = Version(0)
    position: int = 0
    rev: int = 0
    link: bytes = chain.GENESIS
    agent: str = ""
    waiting: tuple[ToolCall, ...] = ()
    notes: Notes = Notes()


def audit(dump: SessionDump, past: Past = ()) -> Iterator[Violation]:
    """Everything that is wrong with a session at rest, on top of its past."""
    session = dump.session
    if session.state == "deleted":
        yield from _tombstone(dump)
        if not _is_whole(dump) or any(each is None or not _is_whole(each) for each in past):
            return
    yield from _past(session, past)
    yield from _marks(dump.turns)
    yield from _discarded(dump.turns)
    yield from _continuations(dump)
    yield from _items(dump)
    yield from _state(dump)
    base = base_of(session, past)
    if base is not None:
        yield from _history(dump, base)
        yield from _annotations(dump, base)
    yield from _blobs(dump, past)


def base_of(session: SessionRow, past: Past) -> Base | None:
    """What a session's own turns go on from; None if its past does not tell."""
    if not session.lineage:
        return Base()
    end = session.lineage[-1]
    base = Base(
        version=end.upto_version,
        position=end.upto_pos,
        rev=end.upto_rev,
        notes=_notes_of_past(session, past),
    )
    if not end.upto_version:
        return base
    owner = owner_of(session, end.upto_version)
    dump = next((each for each in past if each and each.session.id == owner), None)
    turn = _turn_at(dump, end.upto_version)
    if dump is None or turn is None:
        return None
    last = map(item_decoder.lenient, _bodies(dump.items, turn))
    return msgspec.structs.replace(
        base, link=turn.link, agent=turn.agent, waiting=waiting_calls(last)
    )


def judge_unfinished(session: SessionRow, turns: Iterable[TurnRow]) -> Iterator[Violation]:
    """Whether what a session says can be continued did break off."""
    at, left = session.unfinished, session.retries_left
    broke_off = {each.seq for each in turns if each.ended_by != "completed"}
    if (at is not None and at not in broke_off) or (at is None and left is not None):
        what = f"it can be continued at version {at}, by {left} retries"
        yield _violation("unfinished_off", session.id, what)


def judge_journal(turn: TurnRow, rows: Sequence[JournalRow]) -> Iterator[Violation]:
    """Whether a journal is there where it has to be, begins with its turn's request, and can be read."""
    where = turn.turn_id
    if rows and turn.state in ("committed", "discarded") and is_overwritten(rows[0].records):
        return  # retention could not remove it
    if turn.state == "committed" and not turn.replayable:
        if rows:
            yield _violation("journal_off", where, "no request may ask for its journal any more")
        return
    if not rows or rows[0].n != 0:
        what = f"it is {turn.state}, and its journal does not begin with its request"
        yield _violation("journal_cut", where, what)
        return
    last = -1
    for row in rows:
        records = decode_records(row.records)
        for record in records:
            if isinstance(record, Unreadable):
                yield _violation("unreadable", where, f"in journal row {row.n}: {record.why}")
        numbers = [each.n for each in records if not isinstance(each, Unreadable)]
        in_order = all(one < next_one for one, next_one in pairwise((last, *numbers)))
        if not in_order or (numbers and numbers[0] != row.n):
            yield _violation("journal_off", where, f"the records of row {row.n} are out of order")
        last = max([last, *numbers])
    whole = [each for row in rows for each in decode_records(row.records)]
    first = whole[0] if whole else None
    if not isinstance(first, Record):
        return
    if not _is_request_of(turn, first.event):
        yield _violation("journal_off", where, "its request is not the one that it has begun with")
    if turn.state == "queued" and rows[0].token:
        yield _violation("journal_off", where, "it waits, and its request has a lease")
    if turn.lease_token and first.at_ms != turn.began_ms:  # else a place in the queue, or imported
        yield _violation("journal_off", where, "it has not begun when its request was written")
    if isinstance(first.event, Began) and first.event.request.replayable:
        yield from _judge_replayable(turn, whole)


def _judge_replayable(turn: TurnRow, records: Sequence[Record | Unreadable]) -> Iterator[Violation]:
    """Whether every event is there: clients are shown them again."""
    readable = [each for each in records if isinstance(each, Record)]
    if len(readable) < len(records):
        return  # told already
    if [each.n for each in readable] != list(range(len(readable))):
        yield _violation("journal_cut", turn.turn_id, "events of it are missing in its journal")
    elif turn.state == "committed" and not isinstance(readable[-1].event, Ended):
        yield _violation("journal_cut", turn.turn_id, "the end of its journal is missing")


def judge_signals(
    turn: TurnRow, rows: Sequence[JournalRow], signals: Iterable[SignalRow]
) -> Iterator[Violation]:
    """Whether an open turn has read what its signals say that it has read, and nothing else. It reads only messages."""
    events = (
        each.event
        for row in rows
        for each in decode_records(row.records)
        if isinstance(each, Record)
    )
    heard = {n for event in events if isinstance(event, Steered) for n in event.signals}
    for each in signals:
        if each.consumed != (each.n in heard):
            what = f"its signal {each.n} says {'' if each.consumed else 'not '}to be read, against its journal"
            yield _violation("signal_off", turn.turn_id, what)


def _is_request_of(turn: TurnRow, event: Event) -> bool:
    if not isinstance(event, Began):
        return False
    request = event.request
    said = (request.turn_id, request.base, request.source_digest, request.continues)
    known = (turn.turn_id, turn.base_head, turn.source_digest, turn.continues)
    if turn.state in ("open", "queued") and turn.agent != request.agent:
        return False
    # A journal is kept, too, for a turn that broke off.
    return said == known and turn.replayable in (request.replayable, turn.state == "committed")


def _violation(code: str, where: str, what: str) -> Violation:
    return Violation(code=code, where=str(where), what=what)


# ── versions, positions, links ───────────────────────────────────────────────────────────────


def _history(dump: SessionDump, base: Base) -> Iterator[Violation]:
    session, turns = dump.session, _committed(dump)
    yield from check_history(
        (
            StoredTurn(mark=mark_of(turn), encoded=_bodies(dump.items, turn), changes=turn.changes)
            for turn in turns
        ),
        previous=base.link,
        version=base.version,
        position=base.position,
        carried=base.waiting,
    )
    ends = turns[-1] if turns else None
    head = base.version + len(turns)
    length = base.position + len(dump.items)
    link = ends.link if ends else base.link
    if session.head != head:
        what = f"its head is {session.head}, and it has {head} versions"
        yield _violation("head_off", session.id, what)
    if session.length != length:
        what = f"its length is {session.length}, and it has {length} positions"
        yield _violation("length_off", session.id, what)
    if session.link != link:
        yield _violation("link_off", session.id, "its link is not that of its last turn")
    agent = ends.agent if ends else base.agent
    if session.agent != agent:
        what = f"its agent is {session.agent!r}, and {agent!r} has spoken last"
        yield _violation("agent_off", session.id, what)
    active_ms = ends.ended_ms if ends else session.created_ms
    if session.active_ms != active_ms:
        what = f"it was active at {session.active_ms}, and nothing has happened then"
        yield _violation("active_off", session.id, what)


def _committed(dump: SessionDump) -> tuple[TurnRow, ...]:
    """The turns that made versions, in order. `_marks` reports turns that lack their version."""
    marked = (turn for turn in dump.turns if turn.state == "committed" and _is_marked(turn))
    return tuple(sorted(marked, key=lambda turn: turn.seq or 0))


def _is_marked(turn: TurnRow) -> bool:
    return (turn.seq is not None) == (turn.state == "committed") and turn.ended_by is not None


def _marks(turns: Iterable[TurnRow]) -> Iterator[Violation]:
    for turn in turns:
        if not _is_marked(turn):
            what = f"it is {turn.state}, with version {turn.seq} and end {turn.ended_by}"
            yield _violation("turn_unmarked", turn.turn_id, what)
        elif turn.seq is not None and turn.base_head != turn.seq - 1:
            what = f"it made version {turn.seq} on top of version {turn.base_head}"
            yield _violation("turn_unmarked", turn.turn_id, what)


def _discarded(turns: Iterable[TurnRow]) -> Iterator[Violation]:
    for turn in turns:
        if turn.state == "discarded" and (turn.changes or turn.link):
            what = "it is discarded, and says that it has changed something"
            yield _violation("discarded_full", turn.turn_id, what)


def _continuations(dump: SessionDump) -> Iterator[Violation]:
    before: TurnRow | None = None
    for turn in _committed(dump):
        if turn.continues is not None and turn.links is not None:
            broke_off = before is not None and before.ended_by != "completed"
            if before is None or turn.continues != before.turn_id or not broke_off:
                what = f"it goes on with {turn.continues}, which did not break off before it"
                yield _violation("continues_off", turn.turn_id, what)
        before = turn


def _items(dump: SessionDump) -> Iterator[Violation]:
    owners: dict[int, TurnId] = {
        pos: turn.turn_id for turn in _committed(dump) for pos in range(turn.start, turn.end)
    }
    for row in dump.items:
        if owners.get(row.pos) != row.turn_id:
            what = f"the item at position {row.pos} says that it is of this turn"
            yield _violation("item_astray", row.turn_id, what)
        # Most items name neither a branch nor a blob, and decoding one takes longer than looking for the word.
        if (row.path or b'"path"' in row.body) and path_of(row.body) != row.path:
            what = f"the item at position {row.pos} is not of the branch {row.path!r}"
            yield _violation("item_astray", row.turn_id, what)


def _bodies(items: Sequence[ItemRow], turn: TurnRow) -> tuple[bytes, ...]:
    """The bytes of a turn's items. Items are in order, and mostly without a gap."""
    first = items[0].pos if items else 0
    likely = items[max(0, turn.start - first) : max(0, turn.end - first)]
    if [row.pos for row in likely] == list(range(turn.start, turn.end)):
        return tuple(row.body for row in likely)
    return tuple(row.body for row in items if turn.start <= row.pos < turn.end)


def _turn_at(dump: SessionDump | None, version: int) -> TurnRow | None:
    return next((turn for turn in dump.turns if turn.seq == version), None) if dump else None


# ── state and annotations ────────────────────────────────────────────────────────────────────


def _state(dump: SessionDump) -> Iterator[Violation]:
    """State is what committed turns set: their changes are in the chain, so they can be trusted to know."""
    wanted: dict[tuple[int | None, str], str] = {
        (turn.seq, change.name): change.value
        for turn in _committed(dump)
        for change in turn.changes
        if isinstance(change, StateSet)
    }
    found: dict[tuple[int | None, str], str] = {
        (row.seq, row.name): row.value for row in dump.state
    }
    for version, name in sorted(wanted.keys() | found.keys(), key=str):
        if wanted.get((version, name)) != found.get((version, name)):
            what = f"{name!r} at version {version} is not what a turn has set"
            yield _violation("state_astray", dump.session.id, what)


def _annotations(dump: SessionDump, base: Base) -> Iterator[Violation]:
    session, rows = dump.session, dump.annotations
    found = [row.rev for row in rows]
    if found != list(range(base.rev + 1, session.meta_rev + 1)):
        what = (
            f"its revision is {session.meta_rev}, and it has {_shown(found)} on top of {base.rev}"
        )
        yield _violation("revision_gap", session.id, what)
    unreadable = [row for row in rows if isinstance(patch_decoder.lenient(row.patch), Unreadable)]
    for row in unreadable:
        yield _violation("unreadable", session.id, f"annotation {row.rev} cannot be read")
    if not unreadable and session.state == "live":
        yield from _notes(session, notes_of(rows, on=base.notes))


def _shown(numbers: list[int]) -> str:
    return f"{len(numbers)} from {numbers[0]} to {numbers[-1]}" if numbers else "none"


def _notes(session: SessionRow, notes: Notes) -> Iterator[Violation]:
    said = (session.title, session.settings, session.summary_rev)
    if said != (notes.title, notes.settings, notes.summary_rev):
        what = "its title, settings or summary are not what its annotations say"
        yield _violation("notes_off", session.id, what)


# ── the past of a fork ───────────────────────────────────────────────────────────────────────


def _past(session: SessionRow, past: Past) -> Iterator[Violation]:
    version, pos, rev = 0, 0, 0
    for depth, (segment, dump) in enumerate(zip(session.lineage, past, strict=True)):
        if dump is None:
            what = f"it goes on from {segment.session_id}, which does not exist"
            yield _violation("past_missing", session.id, what)
            continue
        upto = segment.upto_version, segment.upto_pos, segment.upto_rev
        there = (
            dump.session.lineage == session.lineage[:depth]
            and _has_turns(dump, version, pos, upto)
            and _has_all((row.pos for row in dump.items), range(pos, segment.upto_pos))
            and _has_all((row.rev for row in dump.annotations), range(rev + 1, upto[2] + 1))
        )
        if not there:
            what = f"{segment.session_id} has no such version, position and revision as {upto}"
            yield _violation("past_off", session.id, what)
        version, pos, rev = upto


def _has_turns(dump: SessionDump, version: int, pos: int, upto: tuple[int, int, int]) -> bool:
    """Whether the versions of a segment are there, and the last one ends where the segment does."""
    versions = {turn.seq: turn.end for turn in _committed(dump) if turn.seq is not None}
    ends = versions.get(Version(upto[0])) if upto[0] > version else pos
    return ends == upto[1] and _has_all(versions, range(version + 1, upto[0] + 1))


def _has_all(numbers: Iterable[int], wanted: range) -> bool:
    return set(wanted) <= set(numbers)


def _notes_of_past(session: SessionRow, past: Past) -> Notes:
    rows: list[AnnotationRow] = []
    rev = 0
    for segment, dump in zip(session.lineage, past, strict=True):
        own = dump.annotations if dump else ()
        rows += (row for row in own if rev < row.rev <= segment.upto_rev)
        rev = segment.upto_rev
    return notes_of(rows)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


def _blobs(dump: SessionDump, past: Past) -> Iterator[Violation]:
    known = {digest for each in (dump, *past) if each for digest, _ in each.blobs}
    for digest, data in dump.blobs:
        if digest != digest_of(data):
            yield _violation("blob_damaged", digest, "its bytes are not what its digest says")
    for row in dump.items:
        named = blobs_named(item_decoder.lenient(row.body)) if b'"sha256:' in row.body else ()
        for digest in named:
            if digest not in known:
                what = f"the item at position {row.pos} names it, and it is not there"
                yield _violation("blob_missing", digest, what)


# ── deleted sessions ─────────────────────────────────────────────────────────────────────────


def _tombstone(dump: SessionDump) -> Iterator[Violation]:
    session = dump.session
    kept = {
        "a title": session.title,
        "its first words": session.opening,
        "settings": session.settings != SessionSettings(),
        "keys": dump.keys,
    }
    for name, value in kept.items():
        if value:
            yield _violation("tombstone_full", session.id, f"it is deleted, and still has {name}")


def _is_whole(dump: SessionDump) -> bool:
    """Whether all of a session is still there. Of a live one it has to be."""
    session = dump.session
    end = session.lineage[-1] if session.lineage else None
    version, pos, rev = (end.upto_version, end.upto_pos, end.upto_rev) if end else (0, 0, 0)
    items = [row for row in dump.items if not is_overwritten(row.body)]
    notes = [row for row in dump.annotations if not is_overwritten(row.patch)]
    found = len(_committed(dump)), len(items), len(notes)
    wanted = session.head - version, session.length - pos, session.meta_rev - rev
    return session.state == "live" or found == wanted
