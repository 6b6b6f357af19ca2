"""Who holds a turn: nodes, takeover. See `turns.py` for the rules, `signalling.py` for how others reach it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from apsw import Connection

from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import Fence, Orphan, Taken, TakeoverOutcome
from holdfast.store.rows import NodeRow, SessionRow, SignalKind, SignalRow, TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.tables import ordered, queries, run
from holdfast.store.sqlite.turns import find_session, find_turn, waiting_signals

IsHeld = Callable[[int], bool]
"""Whether a living process holds a slot; see `locks.Liveness`."""

_HOLD_SESSION = ordered("hold_session", "turn_id", "token", "nonce", "node", "tenant", "session_id")

# ── nodes ────────────────────────────────────────────────────────────────────────────────────


def renew(db: Connection, node: NodeId, *, ttl_ms: int, now_ms: int) -> NodeRow:
    known = tables.node_rows.one(db, "node", node_id=node)
    fresh = NodeRow(node_id=node, ttl_ms=ttl_ms, since_ms=now_ms, expires_ms=now_ms + ttl_ms)
    row = decisions.renewed(known, fresh)
    run(
        db,
        "renew_node" if known else "enrol_node",
        node_id=node,
        ttl_ms=ttl_ms,
        since_ms=row.since_ms,
        expires_ms=row.expires_ms,
    )
    slot = known.slot if known else db.last_insert_rowid()
    return msgspec.structs.replace(row, slot=slot)


def holder_of(
    db: Connection, session: SessionRow, *, asking: NodeId, is_held: IsHeld, now_ms: int
) -> decisions.Holder:
    """What is known about the node that holds a session."""
    node = session.lease_node
    row = tables.node_rows.one(db, "node", node_id=node) if node else None
    return decisions.judge_holder(
        node, row, asking=asking, lock_free=row is not None and not is_held(row.slot), now_ms=now_ms
    )


# ── holding a turn ───────────────────────────────────────────────────────────────────────────


def hold(db: Connection, fence: Fence, node: NodeId) -> None:
    """From now on only this fence may write the session."""
    db.execute(
        _HOLD_SESSION,
        (fence.turn_id, fence.token, fence.nonce, node, fence.tenant, fence.session_id),
    )


def release(db: Connection, fence: Fence) -> None:
    session = decisions.demand_fence(fence, find_session(db, fence.tenant, fence.session_id))
    run(db, "hand_over", tenant=session.tenant, session_id=session.id)


def takeover(
    db: Connection,
    tenant: Tenant,
    session_id: SessionId,
    *,
    node: NodeId,
    nonce: str,
    turn_id: TurnId | None,
    ignored_cancel: bool,
    is_held: IsHeld,
    now_ms: int,
) -> TakeoverOutcome:
    session = find_session(db, tenant, session_id)
    turn = find_turn(db, tenant, session.open_turn) if session else None
    asked = _asked_to_stop(db, turn) if turn else ()
    facts = decisions.TakeoverFacts(
        now_ms=now_ms,
        node=tables.node_rows.one(db, "node", node_id=node),
        session=session,
        turn=turn,
        holder=holder_of(db, session, asking=node, is_held=is_held, now_ms=now_ms)
        if session
        else "absent",
        cancel_since_ms=decisions.cancel_since(asked),
    )
    outcome = decisions.judge_takeover(
        facts, nonce=nonce, turn_id=turn_id, ignored_cancel=ignored_cancel
    )
    if isinstance(outcome, Taken):
        hold(db, outcome.fence, node)
        run(
            db,
            "retake_turn",
            tenant=tenant,
            turn_id=outcome.turn.turn_id,
            lease_token=outcome.turn.lease_token,
            attempt=outcome.turn.attempt,
        )
    return outcome


def _asked_to_stop(db: Connection, turn: TurnRow) -> tuple[SignalRow, ...]:
    kinds: tuple[SignalKind, ...] = ("cancel", "interrupt")
    return tuple(
        row for kind in kinds for row in waiting_signals(db, turn.tenant, turn.turn_id, kind)
    )


def orphans(
    db: Connection, *, node: NodeId, limit: int, is_held: IsHeld, now_ms: int
) -> tuple[Orphan, ...]:
    """Open turns without a live holder, oldest first."""
    found: list[Orphan] = []
    for tenant, session_id, turn_id, lease_node, *holder in db.execute(queries["held_sessions"]):
        row = tables.node_rows.made(holder) if holder[0] is not None else None
        lease = NodeId(lease_node) if lease_node else None
        state = decisions.judge_holder(
            lease,
            row,
            asking=node,
            lock_free=row is not None and not is_held(row.slot),
            now_ms=now_ms,
        )
        if state != "alive":
            found.append(
                Orphan(
                    tenant=Tenant(tenant),
                    session_id=SessionId(session_id),
                    turn_id=TurnId(turn_id),
                    holder=lease,
                )
            )
        if len(found) == limit:
            break
    return tuple(found)
