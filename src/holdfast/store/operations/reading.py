"""Plain reads: of one session, of one turn's journal, and of what agents remember."""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store.found import SessionInfo
from holdfast.store.operations.finders import session_of
from holdfast.store.operations.sessions import KEYS_OF
from holdfast.store.rows import BlobRow, JournalRow, MemoryRow, SessionRow
from holdfast.store.steps import Finder, Look, One, Operation, find, look
from holdfast.store.tables import BLOBS, JOURNAL, MEMORIES, SESSIONS


def info(tenant: Tenant, session_id: SessionId) -> Operation[SessionInfo | None]:
    """A session with the keys that mean it."""
    session = yield from session_of(tenant, session_id)
    if session is None:
        return None
    keys = yield from find(KEYS_OF, tenant=tenant, session_id=session_id)
    return SessionInfo(session=session, keys=tuple(row.key for row in keys))


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class Blob(Value):
    """A session, and a blob of one that it reads."""

    now_ms: int
    session: SessionRow | None
    blob: BlobRow | None


BLOB = Look(
    Blob,
    session=One(SESSIONS, tenant=":tenant", id=":session_id"),
    blob=One(BLOBS, tenant=":tenant", session_id=":owner", digest=":digest"),
)


def blob(tenant: Tenant, session_id: SessionId, digest: str) -> Operation[bytes | None]:
    """Bytes by digest: the session's own, or those of its past."""
    own = {"tenant": tenant, "session_id": session_id, "digest": digest}
    found = yield from look(BLOB, owner=session_id, **own)
    if found.session is None or found.session.state == "deleted":
        return None
    past = [segment.session_id for segment in found.session.lineage]
    while found.blob is None and past:
        found = yield from look(BLOB, owner=past.pop(), **own)
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
