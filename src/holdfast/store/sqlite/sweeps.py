"""What a node looks for in all sessions, as functions of a connection."""

from __future__ import annotations

from apsw import Connection

from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import Orphan, Waiting
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.driver import IsHeld
from holdfast.store.sqlite.tables import queries


def orphans(
    db: Connection, *, node: NodeId, limit: int, is_held: IsHeld, now_ms: int
) -> tuple[Orphan, ...]:
    """Open turns without a live holder, oldest first."""
    found: list[Orphan] = []
    for tenant, session_id, turn_id, lease_node, *holder in db.execute(queries["held_sessions"]):
        row = tables.node_rows.made(holder) if holder[0] is not None else None
        if row is not None and not is_held(row.slot):
            row = None  # its process is dead, whatever the clock says
        lease = NodeId(lease_node) if lease_node else None
        state = decisions.judge_holder(lease, row, asking=node, now_ms=now_ms)
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


def queued(db: Connection, *, limit: int) -> tuple[Waiting, ...]:
    rows = db.execute(queries["queued_turns"], {"limit": limit})
    found = (
        (Tenant(tenant), SessionId(session_id), TurnId(turn_id), bool(is_free))
        for tenant, session_id, turn_id, is_free in rows
    )
    return tuple(decisions.in_order(found))
