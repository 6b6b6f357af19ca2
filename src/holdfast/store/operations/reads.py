"""Plain reads: of one session, of one turn's journal, and of an agent's memories."""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.core.history import chain
from holdfast.core.history.conversation import Lineage, Snapshot
from holdfast.errors import SessionDamaged, StoreDamaged
from holdfast.ids import SessionId, Tenant, TurnId, Version
from holdfast.store import decisions, row_changes
from holdfast.store.operations.finders import session_of, turn_at
from holdfast.store.operations.lines import ANNOTATIONS_OF, KEYS_OF, annotations_of, find_place
from holdfast.store.outcomes import SessionDump, SessionInfo
from holdfast.store.rows import (
    AnnotationRow,
    BlobRow,
    ItemBody,
    JournalRow,
    MemoryRow,
    SessionName,
    SessionRow,
    StateRow,
    TurnRow,
)
from holdfast.store.snapshots import Later, empty_snapshot, later
from holdfast.store.sql.tables import (
    BLOBS,
    CLAIMS,
    ITEM_BODIES,
    ITEMS,
    JOURNAL,
    MEMORIES,
    PASTS,
    SESSION_NAMES,
    SESSIONS,
    STATE,
    TURNS,
    R,
)
from holdfast.store.steps import Facts, Finder, Operation, Question, ask, find, look, one

OF_TURN = ("tenant", "turn_id")


def info(tenant: Tenant, session_id: SessionId) -> Operation[SessionInfo | None]:
    """A session with the keys that name it."""
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    keys = yield from _own(KEYS_OF, tenant, session_id)
    return SessionInfo(session=session, keys=tuple(row.key for row in keys))


# ── snapshots ────────────────────────────────────────────────────────────────────────────────

VERSIONS_OF = Finder(TURNS, tenant=":tenant", session_id=":session_id", order=("seq",), over="seq")
BODIES_OF = Finder(
    ITEM_BODIES, tenant=":tenant", session_id=":session_id", order=("pos",), over="pos"
)


def snapshot(
    tenant: Tenant, session_id: SessionId, *, version: Version | None, known: Snapshot | None
) -> Operation[Later | None]:
    """The rows by which a known snapshot is extended to a version.

    The steps need not see one moment. The rows that a session's row counts never change, and are removed only with
    their session. So either all of them exist, or the session is gone by now.
    """
    session = yield from session_of(tenant, session_id)
    if session is None or session.state == "deleted":
        return None
    wanted = session.head if version is None else version
    lineage = yield from _lineage_at(session, wanted)
    if lineage is None:
        return None
    if known is None or known.session_id != session_id or known.version > wanted:
        known = empty_snapshot(session_id)
    past = decisions.after(known, decisions.stretches(lineage))
    notes = yield from annotations_of(tenant, past)
    turns: list[TurnRow] = []
    state: list[StateRow] = []
    items: list[ItemBody] = []
    for each in past:
        if each.from_version < each.upto_version:
            versions = {"above": each.from_version, "upto": each.upto_version}
            turns += yield from _own(VERSIONS_OF, tenant, each.session_id, **versions)
            state += yield from _own(STATE_OF, tenant, each.session_id, **versions)
    # Items are read last, because retention removes them first: if all items exist, so did everything else.
    for each in past:
        if each.from_pos < each.upto_pos:
            places = {"above": each.from_pos - 1, "upto": each.upto_pos - 1}
            items += yield from _own(BODIES_OF, tenant, each.session_id, **places)
    if _is_short(past, items=len(items), versions=len(turns), annotations=len(notes)):
        again = yield from session_of(tenant, session_id)
        if again is None or again.state == "deleted":
            return None
        raise SessionDamaged(session_id, "rows of its history are missing")
    bodies = [each.body for each in items]
    return later(known, session, turns=turns, items=bodies, state=state, annotations=notes)


def _lineage_at(session: SessionRow, version: Version) -> Operation[Lineage | None]:
    """The lineage to read for a version. For the head, which nearly every caller wants, the session's row has it."""
    if version != session.head:
        place = yield from find_place(session, version)
        return place.lineage if place else None
    point = decisions.fork_point(session, version)
    assert point is not None, "a session has its head"
    return decisions.lineage_at(session, point, length=session.length, rev=session.meta_rev)


def _is_short(
    past: tuple[decisions.Stretch, ...], *, items: int, versions: int, annotations: int
) -> bool:
    """Whether rows of the stretches are missing: items, versions and annotations are numbered without a gap."""
    return (
        items < sum(max(0, each.upto_pos - each.from_pos) for each in past)
        or versions < sum(max(0, each.upto_version - each.from_version) for each in past)
        or annotations < sum(max(0, each.upto_rev - each.from_rev) for each in past)
    )


# ── everything ───────────────────────────────────────────────────────────────────────────────

TURNS_OF = Finder(
    TURNS,
    tenant=":tenant",
    session_id=":session_id",
    order=("turn_id",),
    index="turn_by_session",
)
ITEMS_OF = Finder(ITEMS, tenant=":tenant", session_id=":session_id", order=("pos",))
STATE_OF = Finder(
    STATE, tenant=":tenant", session_id=":session_id", order=("seq", "name"), over="seq"
)
BLOBS_OF = Finder(BLOBS, tenant=":tenant", session_id=":session_id", order=("digest",))
JOURNALS_OF = Finder(
    JOURNAL,
    of=(TURNS, OF_TURN),
    tenant=":tenant",
    session_id=":session_id",
    order=("turn_id", "n"),
)
CLAIMS_ON = Finder(
    CLAIMS,
    of=(TURNS, OF_TURN),
    tenant=":tenant",
    session_id=":session_id",
    order=("key",),
    index="idempotency_by_turn",
)


def dump(tenant: Tenant, session_id: SessionId) -> Operation[SessionDump | None]:
    """All rows of a session but its open and queued turns; of a deleted session, the rows that are left.

    It includes rows beyond the session's own counts: `verify` looks for them.
    """
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    turns = row_changes.ended_turns((yield from _own(TURNS_OF, tenant, session_id)))
    ended = {turn.turn_id for turn in turns}
    journals = yield from _own(JOURNALS_OF, tenant, session_id)
    claims = yield from _own(CLAIMS_ON, tenant, session_id)
    blobs = yield from _own(BLOBS_OF, tenant, session_id)
    return SessionDump(
        session=row_changes.at_rest(session),
        keys=(yield from _own(KEYS_OF, tenant, session_id)),
        turns=turns,
        items=(yield from _own(ITEMS_OF, tenant, session_id)),
        state=(yield from _own(STATE_OF, tenant, session_id)),
        annotations=(yield from _own(ANNOTATIONS_OF, tenant, session_id)),
        blobs=tuple((row.digest, row.bytes) for row in blobs),
        journals=tuple(row for row in journals if row.turn_id in ended),
        claims=tuple(row for row in claims if row.turn_id in ended),
    )


def _own(
    finder: Finder[R],
    tenant: Tenant,
    session_id: SessionId,
    *,
    above: int | None = None,
    upto: int | None = None,
) -> Operation[tuple[R, ...]]:
    """Rows of a session."""
    return find(finder, tenant=tenant, session_id=session_id, above=above, upto=upto)


class ChainEnd(Value):
    """The end of a session's hash chain at a version: its link, and its annotations up to a revision."""

    session: SessionRow
    link: bytes | None
    """None if there is no such version."""
    annotations: tuple[AnnotationRow, ...]


def chain_end(
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version | None = None,
    rev: int | None = None,
) -> Operation[ChainEnd | None]:
    """The end of the chain at a version and revision, by default the last ones."""
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    at = session.head if version is None else version
    turn = yield from turn_at(tenant, decisions.owner_of(session, at), at)
    upto = session.meta_rev if rev is None else rev
    rows = yield from _own(ANNOTATIONS_OF, tenant, session_id, upto=upto)
    link = turn.link if turn else (None if at else chain.GENESIS)
    return ChainEnd(session=session, link=link, annotations=rows)


# ── ids ──────────────────────────────────────────────────────────────────────────────────────

IDS_ELSEWHERE = (
    Question("sessions_with_turns", SessionName),
    Question("sessions_with_items", SessionName),
    Question("sessions_with_keys", SessionName),
    Question("sessions_with_past", SessionName),
)
"""By what a session is known if the session table cannot be read: a fork need not have turns of its own."""
IDS_OF = Finder(SESSION_NAMES, tenant=":tenant", order=("id",), over="id")
FORKS_OF = Finder(PASTS, tenant=":tenant", ancestor=":ancestor", order=("session_id",))


IDS_AT_ONCE = 1_000
"""How many ids one step reads."""


def session_ids(
    tenant: Tenant, *, after: SessionId | None, limit: int
) -> Operation[tuple[SessionId, ...]]:
    """Every session, by id, deleted ones included. For operators. If the session table cannot be read, the sessions
    that other tables name, as far as these can be read."""
    try:
        rows = yield from find(IDS_OF, tenant=tenant, above=after, limit=limit)
        return tuple(row.id for row in rows)
    except StoreDamaged:
        return (yield from _ids_elsewhere(tenant, after=after or "", limit=limit))


def _ids_elsewhere(tenant: Tenant, *, after: str, limit: int) -> Operation[tuple[SessionId, ...]]:
    found: set[SessionId] = set()
    is_read = False
    for question in IDS_ELSEWHERE:
        try:
            rows = yield from ask(question, tenant=tenant, after=after, limit=limit)
            found.update(row.id for row in rows)
            is_read = True
        except StoreDamaged:
            if question is IDS_ELSEWHERE[-1] and not is_read:
                raise
    return tuple(sorted(found)[:limit])


def every_id(tenant: Tenant) -> Operation[tuple[SessionId, ...]]:
    """The ids of all sessions of a tenant, deleted ones included."""
    found: list[SessionId] = []
    while True:
        after = found[-1] if found else None
        page = yield from session_ids(tenant, after=after, limit=IDS_AT_ONCE)
        found += page
        if len(page) < IDS_AT_ONCE:
            return tuple(found)


def forks(tenant: Tenant, session_id: SessionId, *, limit: int) -> Operation[tuple[SessionId, ...]]:
    """The sessions that read items of this one, forks of forks included, by id."""
    rows = yield from find(FORKS_OF, tenant=tenant, ancestor=session_id, limit=limit)
    return tuple(row.session_id for row in rows)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class BlobFacts(Facts):
    """A session, and a blob of it or of a session in its lineage."""

    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    blob: BlobRow | None = one(BLOBS, tenant=":tenant", session_id=":owner", digest=":digest")


def blob(tenant: Tenant, session_id: SessionId, digest: str) -> Operation[bytes | None]:
    """The bytes with this digest, in the session or in its lineage; None if there are none."""
    own = {"tenant": tenant, "session_id": session_id, "digest": digest}
    found = yield from look(BlobFacts, owner=session_id, **own)
    if found.session is None or found.session.state == "deleted":
        return None
    past = [segment.session_id for segment in found.session.lineage]
    while found.blob is None and past:
        found = yield from look(BlobFacts, owner=past.pop(), **own)
    return found.blob.bytes if found.blob else None


# ── journals ─────────────────────────────────────────────────────────────────────────────────

JOURNAL_OF = Finder(JOURNAL, tenant=":tenant", turn_id=":turn_id", order=("n",), over="n")
LAST_JOURNAL_OF = Finder(JOURNAL, tenant=":tenant", turn_id=":turn_id", order=("-n",), over="n")


def journal(
    tenant: Tenant, turn_id: TurnId, *, since: int = 0
) -> Operation[tuple[JournalRow, ...]]:
    """Rows that may hold records from number `since` on, in order."""
    above = None
    if since:
        own = {"tenant": tenant, "turn_id": turn_id}
        first = yield from find(LAST_JOURNAL_OF, upto=since, limit=1, **own)
        above = first[0].n - 1 if first else None
    return (yield from find(JOURNAL_OF, tenant=tenant, turn_id=turn_id, above=above))


# ── memories ─────────────────────────────────────────────────────────────────────────────────

MEMORIES_OF = Finder(MEMORIES, tenant=":tenant", agent=":agent", order=("at_ms", "memory_id"))


def memories(tenant: Tenant, agent: str) -> Operation[tuple[MemoryRow, ...]]:
    """An agent's memories, oldest first."""
    return find(MEMORIES_OF, tenant=tenant, agent=agent)
