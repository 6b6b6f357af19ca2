"""Rows that several operations look for."""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.ids import IdempotencyKey, NodeId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store import decisions
from holdfast.store.rows import (
    IdempotencyRow,
    KeyRow,
    NodeRow,
    SessionRow,
    SignalRow,
    TurnRow,
)
from holdfast.store.steps import Finder, Look, One, Operation, find, look
from holdfast.store.tables import CLAIMS, KEYS, NODES, SESSIONS, SIGNALS, TURNS

# ── one row ──────────────────────────────────────────────────────────────────────────────────


class NodeFacts(Value):
    """A node."""

    now_ms: int
    node: NodeRow | None


NODE = Look(NodeFacts, node=One(NODES, node_id=":node"))


class SessionFacts(Value):
    """A session."""

    now_ms: int
    session: SessionRow | None


SESSION = Look(SessionFacts, session=One(SESSIONS, tenant=":tenant", id=":session_id"))


class OneTurn(Value):
    """A turn."""

    now_ms: int
    turn: TurnRow | None


ONE_TURN = Look(OneTurn, turn=One(TURNS, tenant=":tenant", turn_id=":turn_id"))


class TurnFacts(Value):
    """A turn and its session."""

    now_ms: int
    turn: TurnRow | None
    session: SessionRow | None


TURN = Look(
    TurnFacts,
    turn=One(TURNS, tenant=":tenant", turn_id=":turn_id"),
    session=One(SESSIONS, tenant="turn.tenant", id="turn.session_id"),
)


class KeyFacts(Value):
    """What a name means."""

    now_ms: int
    key: KeyRow | None


KEY = Look(KeyFacts, key=One(KEYS, tenant=":tenant", key=":key"))


class ClaimFacts(Value):
    """What is known under an idempotency key."""

    now_ms: int
    claim: IdempotencyRow | None


CLAIM = Look(ClaimFacts, claim=One(CLAIMS, tenant=":tenant", key=":key"))


def node_of(node: NodeId) -> Operation[NodeRow | None]:
    return (yield from look(NODE, node=node)).node


def session_of(tenant: Tenant, session_id: SessionId) -> Operation[SessionRow | None]:
    """The row, also of a deleted session as long as its tombstone is kept."""
    found = yield from look(SESSION, tenant=tenant, session_id=session_id)
    return found.session


def turn_of(tenant: Tenant, turn_id: TurnId) -> Operation[TurnRow | None]:
    found = yield from look(ONE_TURN, tenant=tenant, turn_id=turn_id)
    return found.turn


def claim_of(row: IdempotencyRow | None) -> Operation[decisions.Claim | None]:
    """What there is behind an idempotency key."""
    if row is None:
        return None
    found = yield from look(TURN, tenant=row.tenant, turn_id=row.turn_id)
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
    return (yield from find(QUEUED, tenant=session.tenant, session_id=session.id, limit=limit))


def signals_of(turn: TurnRow) -> Operation[tuple[SignalRow, ...]]:
    """All that a turn was told, heard or not."""
    return (yield from find(SIGNALS_OF, tenant=turn.tenant, turn_id=turn.turn_id))


def turn_at(tenant: Tenant, session_id: SessionId, version: Version) -> Operation[TurnRow | None]:
    """The turn that made a version of this very session."""
    rows = yield from find(TURN_AT, tenant=tenant, session_id=session_id, seq=version)
    return rows[0] if rows else None


def key_named(tenant: Tenant, key: SessionKey) -> Operation[KeyRow | None]:
    """What a name means."""
    return (yield from look(KEY, tenant=tenant, key=key)).key


def claim_under(tenant: Tenant, key: IdempotencyKey) -> Operation[IdempotencyRow | None]:
    return (yield from look(CLAIM, tenant=tenant, key=key)).claim
