"""Reads that several operations share."""

from __future__ import annotations

from holdfast.ids import IdempotencyKey, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store import decisions
from holdfast.store.rows import IdempotencyRow, KeyRow, SessionRow, SignalRow, TurnRow
from holdfast.store.sql.tables import CLAIMS, KEYS, SESSIONS, SIGNALS, TURNS
from holdfast.store.steps import Facts, Finder, Operation, find, get, look, one

# ── one row ──────────────────────────────────────────────────────────────────────────────────


class TurnFacts(Facts):
    """A turn and its session."""

    turn: TurnRow | None = one(TURNS, tenant=":tenant", turn_id=":turn_id")
    session: SessionRow | None = one(SESSIONS, tenant="turn.tenant", id="turn.session_id")


def session_of(tenant: Tenant, session_id: SessionId) -> Operation[SessionRow | None]:
    """The session's row, also of a deleted session as long as its tombstone is kept."""
    return get(SESSIONS, tenant, session_id)


def turn_of(tenant: Tenant, turn_id: TurnId) -> Operation[TurnRow | None]:
    return get(TURNS, tenant, turn_id)


def claim_of(row: IdempotencyRow | None) -> Operation[decisions.Claim | None]:
    """The claim of an idempotency row: with its turn and that turn's session."""
    if row is None:
        return None
    found = yield from look(TurnFacts, tenant=row.tenant, turn_id=row.turn_id)
    return decisions.Claim(row=row, turn=found.turn, session=found.session)


# ── several ──────────────────────────────────────────────────────────────────────────────────

QUEUED = Finder(
    TURNS,
    tenant=":tenant",
    session_id=":session_id",
    state="queued",
    order=("began_ms", "turn_id"),
    index="turn_queued",
)
CLAIMS_OF = Finder(
    CLAIMS, tenant=":tenant", turn_id=":turn_id", order=("key",), index="idempotency_by_turn"
)
SIGNALS_OF = Finder(SIGNALS, tenant=":tenant", turn_id=":turn_id", order=("n",))
TURN_AT = Finder(TURNS, tenant=":tenant", session_id=":session_id", seq=":seq")


def queued_of(session: SessionRow, *, limit: int | None = None) -> Operation[tuple[TurnRow, ...]]:
    """The turns that wait for a session, in the order in which they came."""
    return find(QUEUED, tenant=session.tenant, session_id=session.id, limit=limit)


def signals_of(turn: TurnRow) -> Operation[tuple[SignalRow, ...]]:
    """All signals of a turn, consumed or not."""
    return find(SIGNALS_OF, tenant=turn.tenant, turn_id=turn.turn_id)


def turn_at(tenant: Tenant, session_id: SessionId, version: Version) -> Operation[TurnRow | None]:
    """The session's own turn that made a version."""
    rows = yield from find(TURN_AT, tenant=tenant, session_id=session_id, seq=version)
    return rows[0] if rows else None


def key_named(tenant: Tenant, key: SessionKey) -> Operation[KeyRow | None]:
    """The row of a session key."""
    return get(KEYS, tenant, key)


def claim_under(tenant: Tenant, key: IdempotencyKey) -> Operation[IdempotencyRow | None]:
    return get(CLAIMS, tenant, key)
