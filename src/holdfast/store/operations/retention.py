"""What goes with time, and when. `Store.prune` runs these operations one after the other; each is small.

Every age is judged by `expiry.py`, and never by the clock alone: a clock that leaps removes nothing at once.

- A discarded turn stays readable for a week; then its row, journal and signals go.
- A committed turn's journal and signals, and idempotency rows, go a day after their end.
- An anonymous line goes a month after its last turn, as if a client had removed it.
- Everything of a deleted session but its tombstone goes, once no live session reads it as its past; a turn that
  an idempotency key leads to stays as long as the key, so that a retry is told `Gone` and does not begin anew.
- A blob that no item names goes a week after it was put, or was last put: its turn was discarded, or never began.
- The row of a dead node goes after a day, if it holds nothing; blobs of a session that never came to be, too.

Each operation finds some rows, and removes them if they are as it has read them. Several nodes may prune at once: rows
are locked in the order of their keys, and a node whose rows were removed meanwhile looks for others.

A row that cannot be read stays and delays no other: then an index tells what there is, and rows are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.errors import StoreDamaged
from holdfast.ids import SessionId, Tenant, mint
from holdfast.store.expiry import Horizon, believed, looked
from holdfast.store.operations import lists
from holdfast.store.operations.sessions import remove_if
from holdfast.store.rows import SessionRow
from holdfast.store.sql import tables
from holdfast.store.steps import (
    AsRead,
    Change,
    Delete,
    Operation,
    Question,
    Update,
    ask,
    become,
    get,
    insert,
    look_up,
    write,
)

# ── the clock ────────────────────────────────────────────────────────────────────────────────


def look_at_clock(*, trust_clock: bool) -> Operation[Horizon]:
    """What is known of the clock, now that it was looked at. `trust_clock`: an operator says that it is right."""
    clock = yield from look_up(tables.HORIZON, 1)
    before = clock.row
    horizon = (believed if trust_clock else looked)(before, clock.now_ms)
    if before is None:
        yield from write(insert(tables.HORIZON, horizon))
    else:
        seen = become(tables.HORIZON, horizon)
        yield from write(seen, as_read=(AsRead(tables.HORIZON, before, ("seen_ms",)),))
    return horizon


# ── turns, claims, signals, nodes ────────────────────────────────────────────────────────────


# Names are plain text here, and rows are not read as a whole: a row that is damaged does not delay the others.


class TurnName(Value):
    """A turn by its key."""

    tenant: str
    turn_id: str


class SignalName(Value):
    """A signal by its key."""

    tenant: str
    turn_id: str
    n: int


class ClaimName(Value):
    """An idempotency row by its key, and what may change in it."""

    tenant: str
    key: str
    state: str
    expires_ms: int


class NodeName(Value):
    """A node by its key, and until when it lives."""

    node_id: str
    expires_ms: int


class NextMoment(Value):
    """When the next row of a kind ended."""

    at_ms: int | None


STALE_DISCARDED = Question("stale_discarded", TurnName)
STALE_REPLAYS = Question("stale_replays", TurnName)
STALE_CLAIMS = Question("stale_claims", ClaimName)
NEXT_DISCARDED = Question("next_discarded", NextMoment)
NEXT_REPLAY = Question("next_replay", NextMoment)
NEXT_CLAIM = Question("next_claim", NextMoment)
STALE_SIGNALS = Question("stale_signals", SignalName)
STALE_NODES = Question("stale_nodes", NodeName)


def _stale(
    which: Question[tables.R], following: Question[NextMoment], before_ms: int, limit: int
) -> Operation[tuple[tables.R, ...]]:
    """Rows whose time is over, the oldest first. If some cannot be read, the rows of each moment are read by themselves."""
    try:
        return (yield from ask(which, after_ms=EVER_MS, before_ms=before_ms, limit=limit))
    except StoreDamaged:
        found: list[tables.R] = []
    after_ms = EVER_MS
    for _ in range(MOMENTS_MAX):
        moment = (yield from ask(following, after_ms=after_ms))[0].at_ms
        if moment is None or moment > before_ms or len(found) >= limit:
            break
        left = limit - len(found)
        try:
            found += yield from ask(which, after_ms=moment - 1, before_ms=moment, limit=left)
        except StoreDamaged:
            pass  # it stays; `verify` names it
        after_ms = moment
    return tuple(found)


EVER_MS = -1
"""Before any time that a row has."""

MOMENTS_MAX = 10_000
"""So many rows that cannot be read may come before a row that can; looking at each of them takes microseconds."""


def discarded_turns(horizon: Horizon, *, limit: int) -> Operation[int]:
    before_ms = horizon.before_ms(limits.discarded_keep_s)
    turns = yield from _stale(STALE_DISCARDED, NEXT_DISCARDED, before_ms, limit)
    said = [each for turn in turns for each in _events(turn.tenant, turn.turn_id)]
    return (yield from _removed(tables.TURNS, turns, also=said))


def claims(horizon: Horizon, *, limit: int) -> Operation[int]:
    """Before what the answers under them are made of."""
    # A claim says when it expires: a day after its end.
    day_s = limits.idempotency_keep_s
    before_ms = horizon.before_ms(day_s) + int(day_s * 1000)
    found = yield from _stale(STALE_CLAIMS, NEXT_CLAIM, before_ms, limit)
    return (yield from _removed(tables.CLAIMS, found, "state", "expires_ms"))


def replays(horizon: Horizon, *, limit: int) -> Operation[int]:
    before_ms = horizon.before_ms(limits.idempotency_keep_s)
    turns = yield from _stale(STALE_REPLAYS, NEXT_REPLAY, before_ms, limit)
    forgotten: list[Change] = []
    for turn in turns:
        key = turn.tenant, turn.turn_id
        forgotten += (Delete(tables.JOURNAL, key), Update(tables.TURNS, key, {"replayable": False}))
    return (yield from _changed(tables.TURNS, turns, (), forgotten))


def signals(horizon: Horizon, *, limit: int) -> Operation[int]:
    before_ms = horizon.before_ms(limits.idempotency_keep_s)
    found = yield from ask(STALE_SIGNALS, before_ms=before_ms, limit=limit)
    # Their turns are locked before them, as where a deleted session's turns go.
    turns = dict.fromkeys(TurnName(tenant=each.tenant, turn_id=each.turn_id) for each in found)
    locked = tuple(AsRead(tables.TURNS, each, ()) for each in turns)
    return (yield from _removed(tables.SIGNALS, found, after=locked))


def nodes(horizon: Horizon, *, limit: int) -> Operation[int]:
    before_ms = horizon.before_ms(limits.dead_node_keep_s)
    found = yield from ask(STALE_NODES, before_ms=before_ms, limit=limit)
    return (yield from _removed(tables.NODES, found, "expires_ms"))


def _events(tenant: str, turn_id: str) -> Iterator[Change]:
    """What a turn has said, and was told."""
    yield Delete(tables.JOURNAL, (tenant, turn_id))
    yield Delete(tables.SIGNALS, (tenant, turn_id))


def _removed(
    table: tables.Table[Any],
    rows: Sequence[Value],
    *columns: str,
    also: Iterable[Change] = (),
    after: tuple[AsRead, ...] = (),
) -> Operation[int]:
    """Remove rows that are as they were read in these columns, and what belongs to them; how many. They are locked
    after the rows of `after`."""
    going = [Delete(table, table.key_of(each)) for each in rows]
    return _changed(table, rows, columns, (*also, *going), after=after)


def _changed(
    table: tables.Table[Any],
    rows: Sequence[Value],
    columns: tuple[str, ...],
    changes: Iterable[Change],
    *,
    after: tuple[AsRead, ...] = (),
) -> Operation[int]:
    """Write these changes if the rows are as they were read in these columns; how many rows they are about."""
    if rows:
        as_read = tuple(AsRead(table, each, columns) for each in rows)
        yield from write(*changes, as_read=(*after, *as_read))
    return len(rows)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class BlobPlace(Value):
    """A blob by its key, and since when it is known."""

    tenant: str
    session_id: str
    digest: str
    noticed_ms: int | None


class DueBlob(BlobPlace):
    """A blob whose time it is."""

    is_named: bool


STRAY_BLOBS = Question("stray_blobs", BlobPlace)
DUE_BLOBS = Question("due_blobs", DueBlob)
FRESH_BLOBS = Question("fresh_blobs", BlobPlace)


def stray_blobs(horizon: Horizon, *, limit: int) -> Operation[int]:
    """Blobs that were put for a session that has no row a day later: its turn never began."""
    since_ms = max(0, horizon.before_ms(limits.idempotency_keep_s))
    before_id = mint(SessionId, at_ms=since_ms + 1, entropy=0)
    found = yield from ask(STRAY_BLOBS, before_id=before_id, limit=limit)
    return (yield from _removed(tables.BLOB_NAMES, found, "noticed_ms"))


def unnamed_blobs(horizon: Horizon, *, limit: int) -> Operation[int]:
    """How many blobs were judged: a blob that an item or a journal names stays for good, any other goes.

    Blobs that were put since the last time are noticed: their week begins.
    """
    fresh = yield from ask(FRESH_BLOBS, limit=limit)
    due = yield from ask(
        DUE_BLOBS,
        before_ms=horizon.before_ms(limits.discarded_keep_s),
        limit=min(limit, limits.blobs_judged_max),
    )
    changes: list[Change] = [_noticed(each, horizon.seen_ms) for each in fresh]
    for each in due:
        named = _noticed(each, 0)
        changes.append(named if each.is_named else Delete(tables.BLOB_NAMES, named.key))
    yield from _changed(tables.BLOB_NAMES, (*fresh, *due), ("noticed_ms",), changes)
    return len(due)


def _noticed(blob: BlobPlace, at_ms: int) -> Update:
    return Update(
        tables.BLOB_NAMES, (blob.tenant, blob.session_id, blob.digest), {"noticed_ms": at_ms}
    )


STEPS = (discarded_turns, claims, replays, signals, stray_blobs, unnamed_blobs, nodes)
"""What goes by itself, in this order; each finds what may go, and removes up to `limit` rows of it."""

# ── sessions ─────────────────────────────────────────────────────────────────────────────────


class SessionPlace(Value):
    """A session by its key."""

    tenant: str
    session_id: str


_KEPT = "and not exists (select 1 from @idempotency i where i.tenant = r.tenant and i.turn_id = r.turn_id)"
"""A turn that an idempotency key leads to stays."""


class SessionPart(Value):
    """A row that belongs to a session: its table, and what tells it apart there."""

    table: Literal["item", "state", "annotation", "search_chunk", "blob", "turn", "kept"]
    number: int
    name: str


STALE_LINES = Question("stale_lines", SessionPlace, which="", most="limit :limit")
CLEARABLE_SESSIONS = Question("clearable_sessions", SessionPlace)
LINES_AMONG = Question("stale_lines", SessionPlace, which=f"{lists.AMONG} and", most="")
TO_CLEAR_AMONG = Question("to_clear_among", SessionPlace)
LIVE_READER = Question("live_reader", SessionPlace)
CLEARABLE_ROWS = Question("clearable_rows", SessionPart)


def _parts_of(
    table: tables.Table[Any], *, number: str = "0", named: str = "''", unless: str = ""
) -> Question[SessionPart]:
    return Question(
        "parts_of", SessionPart, rows=table.name, number=number, named=named, unless=unless
    )


PARTS = (
    _parts_of(tables.ITEMS, number="pos"),
    _parts_of(tables.STATE, number="seq"),
    _parts_of(tables.ANNOTATIONS, number="rev"),
    _parts_of(tables.CHUNKS, number="from_pos"),
    _parts_of(tables.BLOB_NAMES, named="digest"),
    _parts_of(tables.TURNS, named="turn_id", unless=_KEPT),
)


def stale_lines(horizon: Horizon, *, limit: int) -> Operation[tuple[SessionPlace, ...]]:
    before_ms = horizon.before_ms(limits.anonymous_keep_s)
    return _places(STALE_LINES, LINES_AMONG, limit=limit, before_ms=before_ms)


def _places(
    which: Question[SessionPlace], among: Question[SessionPlace], *, limit: int, **given: object
) -> Operation[tuple[SessionPlace, ...]]:
    """The sessions that a question finds; if it meets damage, those that `among` finds in all that can be read."""
    try:
        return (yield from ask(which, limit=limit, **given))
    except StoreDamaged:
        found = yield from lists.among_all(among, **given)
        return tuple(found[: limit + MOMENTS_MAX])


def remove_line(place: SessionPlace, horizon: Horizon, *, limit: int) -> Operation[int]:
    """Remove a line, unless a turn has begun in it meanwhile."""

    def may_go(session: SessionRow) -> bool:
        idle = session.active_ms <= horizon.before_ms(limits.anonymous_keep_s)
        alone = session.anonymous and session.family is None
        return alone and session.open_turn is None and idle

    yield from remove_if(Tenant(place.tenant), SessionId(place.session_id), may_go)
    return 1


def clearable_sessions(horizon: Horizon, *, limit: int) -> Operation[tuple[SessionPlace, ...]]:
    return _places(CLEARABLE_SESSIONS, TO_CLEAR_AMONG, limit=limit)


def clear_session(place: SessionPlace, horizon: Horizon, *, limit: int) -> Operation[int]:
    """Remove some rows of a deleted session, its turns last, and mark it when nothing is left; how many, the mark
    included.

    A session that is restored may read this one. It is written on this one, too: so there is none after all, or the
    stamp has moved.
    """
    tenant, session_id = place.tenant, place.session_id
    session = yield from get(tables.TOMBSTONES, tenant, session_id)
    assert session is not None, "a tombstone stays"
    if (yield from ask(LIVE_READER, tenant=tenant, session_id=session_id)):
        return 0
    found, is_whole = yield from _clearable(place, limit)
    going = [each for each in found if each.table != "kept"]
    changes = [each for part in going for each in _part(place, part)]
    is_last = is_whole and len(found) < limit and len(going) == len(found)
    if is_last:
        # There is nothing left to index, either.
        cleared = {"bytes_gone": True, "indexed_length": session.length}
        cleared["indexed_rev"] = session.meta_rev
        changes.append(Update(tables.TOMBSTONES, (tenant, session_id), cleared))
    if changes:
        locked = tuple(guard for part in going for guard in _guard(place, part))
        yield from write(*changes, on=(session,), as_read=locked)
    return len(going) + is_last


def _clearable(place: SessionPlace, limit: int) -> Operation[tuple[Sequence[SessionPart], bool]]:
    """Some rows of a deleted session, and whether every table could be asked for them. A damaged table or index does
    not delay the rows of the others."""
    given = {"tenant": place.tenant, "session_id": place.session_id, "limit": limit}
    try:
        return (yield from ask(CLEARABLE_ROWS, **given)), True
    except StoreDamaged:
        found: list[SessionPart] = []
    for which in PARTS:
        try:
            found += yield from ask(which, **given)
        except StoreDamaged:
            pass  # they stay; `verify` names them
    return found[:limit], False


def _part(place: SessionPlace, part: SessionPart) -> Iterator[Change]:
    tenant, session_id = place.tenant, place.session_id
    match part.table:
        case "turn":
            yield from _events(tenant, part.name)
            yield Delete(tables.TURNS, (tenant, part.name))
        case "blob":
            yield Delete(tables.BLOB_NAMES, (tenant, session_id, part.name))
        case _:
            yield Delete(_NUMBERED[part.table], (tenant, session_id, part.number))


def _guard(place: SessionPlace, part: SessionPart) -> Iterator[AsRead]:
    """Turns and blobs go by themselves, too: they are locked in the same order here."""
    tenant, session_id = place.tenant, place.session_id
    if part.table == "turn":
        yield AsRead(tables.TURNS, TurnName(tenant=tenant, turn_id=part.name), ())
    if part.table == "blob":
        blob = BlobPlace(tenant=tenant, session_id=session_id, digest=part.name, noticed_ms=None)
        yield AsRead(tables.BLOB_NAMES, blob, ())


_NUMBERED: dict[str, tables.Table[Any]] = {
    each.name: each for each in (tables.ITEMS, tables.STATE, tables.ANNOTATIONS, tables.CHUNKS)
}

SESSION_STEPS = ((stale_lines, remove_line), (clearable_sessions, clear_session))
"""What goes session by session: which ones, and what is done with each."""
