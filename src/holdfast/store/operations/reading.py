"""Plain reads: of one session, of one turn's journal, and of what agents remember."""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import shaping
from holdfast.store.found import SessionDump, SessionInfo
from holdfast.store.operations.finders import session_of
from holdfast.store.operations.sessions import ANNOTATIONS_OF, KEYS_OF
from holdfast.store.rows import BlobRow, JournalRow, MemoryRow, SessionRow
from holdfast.store.steps import Finder, Look, One, Operation, find, look
from holdfast.store.tables import BLOBS, CLAIMS, ITEMS, JOURNAL, MEMORIES, SESSIONS, STATE, TURNS, R

OF_TURN = ("tenant", "turn_id")


def info(tenant: Tenant, session_id: SessionId) -> Operation[SessionInfo | None]:
    """A session with the keys that mean it."""
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    keys = yield from _own(KEYS_OF, tenant, session_id)
    return SessionInfo(session=session, keys=tuple(row.key for row in keys))


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
    """All rows of a session, as they lie; what has not ended is left out.

    Of a deleted one, what is left. Rows that the session's own numbers do not reach are there, too: `verify`
    looks for them.
    """
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    turns = shaping.ended_turns((yield from _own(TURNS_OF, tenant, session_id)))
    ended = {turn.turn_id for turn in turns}
    journals = yield from _own(JOURNALS_OF, tenant, session_id)
    claims = yield from _own(CLAIMS_ON, tenant, session_id)
    blobs = yield from _own(BLOBS_OF, tenant, session_id)
    return SessionDump(
        session=shaping.at_rest(session),
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


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class BlobFacts(Value):
    """A session, and a blob of one that it reads."""

    now_ms: int
    session: SessionRow | None
    blob: BlobRow | None


BLOB_OF = Look(
    BlobFacts,
    session=One(SESSIONS, tenant=":tenant", id=":session_id"),
    blob=One(BLOBS, tenant=":tenant", session_id=":owner", digest=":digest"),
)


def blob(tenant: Tenant, session_id: SessionId, digest: str) -> Operation[bytes | None]:
    """Bytes by digest: the session's own, or those of its past."""
    own = {"tenant": tenant, "session_id": session_id, "digest": digest}
    found = yield from look(BLOB_OF, owner=session_id, **own)
    if found.session is None or found.session.state == "deleted":
        return None
    past = [segment.session_id for segment in found.session.lineage]
    while found.blob is None and past:
        found = yield from look(BLOB_OF, owner=past.pop(), **own)
    return found.blob.bytes if found.blob else None


# ── journals ─────────────────────────────────────────────────────────────────────────────────

JOURNAL_OF = Finder(JOURNAL, tenant=":tenant", turn_id=":turn_id", order=("n",), over="n")
LAST_JOURNAL_OF = Finder(JOURNAL, tenant=":tenant", turn_id=":turn_id", order=("-n",), over="n")


def journal(tenant: Tenant, turn_id: TurnId, *, since: int) -> Operation[tuple[JournalRow, ...]]:
    """A turn's journal from the row that holds record `since`."""
    above = None
    if since:
        own = {"tenant": tenant, "turn_id": turn_id}
        first = yield from find(LAST_JOURNAL_OF, upto=since, limit=1, **own)
        above = first[0].n - 1 if first else None
    return (yield from find(JOURNAL_OF, tenant=tenant, turn_id=turn_id, above=above))


# ── memories ─────────────────────────────────────────────────────────────────────────────────

MEMORIES_OF = Finder(MEMORIES, tenant=":tenant", agent=":agent", order=("at_ms", "memory_id"))


def memories(tenant: Tenant, agent: str) -> Operation[tuple[MemoryRow, ...]]:
    """What an agent remembers."""
    return (yield from find(MEMORIES_OF, tenant=tenant, agent=agent))
