"""Signals: cancels, interrupts and steered messages for a turn that runs."""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.errors import SessionMissing
from holdfast.ids import NodeId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.operations.finders import claim_of
from holdfast.store.operations.turns import claim_as_read, claimed
from holdfast.store.outcomes import Attempt, Signalled, SignalOutcome
from holdfast.store.rows import IdempotencyRow, NodeRow, SessionRow, SignalKind, SignalRow, TurnRow
from holdfast.store.sql.tables import CLAIMS, NODES, SESSIONS, SIGNALS, TURNS
from holdfast.store.steps import Facts, Operation, get, insert, last, look, one, write


class SignalLook(Facts):
    """The rows that a signal reads: its turn, the session, the number of the turn's last signal, its claim."""

    turn: TurnRow | None = one(TURNS, tenant=":tenant", turn_id=":turn_id")
    session: SessionRow | None = one(SESSIONS, tenant="turn.tenant", id="turn.session_id")
    holder: NodeRow | None = one(NODES, node_id="session.lease_node")
    last_n: int | None = last(SIGNALS, "n", tenant=":tenant", turn_id=":turn_id")
    claim: IdempotencyRow | None = one(CLAIMS, tenant=":tenant", key=":claim")


class SignalResult(Value):
    """The outcome of a signal, and the node to wake for it."""

    outcome: SignalOutcome
    holder: NodeId | None = None
    slot: int | None = None
    """SQLite: the slot of the node that holds the turn."""


def signal(
    tenant: Tenant,
    turn_id: TurnId,
    *,
    kind: SignalKind,
    payload: bytes,
    attempt: Attempt | None,
    after: int | None,
) -> Operation[SignalResult]:
    """Store a signal from a client to a turn; see `Store.signal`."""
    key = attempt.key if attempt else None
    found = yield from look(SignalLook, tenant=tenant, turn_id=turn_id, claim=key)
    turn, session = found.turn, found.session
    if turn is None:
        raise SessionMissing("turn", turn_id)
    claim = yield from claim_of(found.claim)
    outcome = decisions.judge_signal(
        turn, session, last_n=found.last_n or 0, attempt=attempt, claim=claim, after=after
    )
    if not isinstance(outcome, Signalled):
        return SignalResult(outcome=outcome)
    assert session is not None, "judge_signal lets only open turns hear"
    row = SignalRow(
        tenant=tenant,
        turn_id=turn_id,
        n=outcome.n,
        kind=kind,
        payload=payload,
        at_ms=found.now_ms,
    )
    yield from write(
        insert(SIGNALS, row),
        *claimed(attempt, claim, tenant, turn_id, steer=outcome.n),
        on=(session,),
        as_read=claim_as_read(claim),
    )
    holder = found.holder
    return SignalResult(
        outcome=outcome, holder=session.lease_node, slot=holder.slot if holder else None
    )


def find_signal(tenant: Tenant, turn_id: TurnId, n: int) -> Operation[SignalRow | None]:
    """One signal; its `consumed` says whether the turn has read it."""
    return get(SIGNALS, tenant, turn_id, n)
