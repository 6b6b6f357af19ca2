"""How others reach a turn, as a function of a connection. See `turns.py` for the rules."""

from __future__ import annotations

from apsw import Connection

from holdfast.core.codec import Value
from holdfast.errors import SessionMissing
from holdfast.ids import Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import Attempt, Signalled, SignalOutcome
from holdfast.store.rows import SignalKind
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.begin import claim_key, find_claim
from holdfast.store.sqlite.tables import run
from holdfast.store.sqlite.turns import find_session, find_turn


class Said(Value):
    """What became of a signal, and the slot of the node that is to hear it."""

    outcome: SignalOutcome
    slot: int | None = None


def signal(
    db: Connection,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    kind: SignalKind,
    payload: bytes,
    attempt: Attempt | None,
    after: int | None,
    now_ms: int,
) -> Said:
    turn = find_turn(db, tenant, turn_id)
    if turn is None:
        raise SessionMissing("turn", turn_id)
    (last,) = tables.numbers(db, "last_signal", tenant=tenant, turn_id=turn_id)
    session = find_session(db, tenant, turn.session_id)
    outcome = decisions.judge_signal(
        turn,
        session,
        last_n=last,
        attempt=attempt,
        claim=find_claim(db, tenant, attempt) if attempt else None,
        after=after,
    )
    if not isinstance(outcome, Signalled):
        return Said(outcome=outcome)
    run(
        db,
        "insert_signal",
        tenant=tenant,
        turn_id=turn_id,
        n=outcome.n,
        kind=kind,
        payload=payload,
        at_ms=now_ms,
    )
    if attempt is not None:
        claim_key(db, tenant, attempt, turn_id, steer=outcome.n)
    holder = session.lease_node if session else None
    node = tables.node_rows.one(db, "node", node_id=holder) if holder else None
    return Said(outcome=outcome, slot=node.slot if node else None)
