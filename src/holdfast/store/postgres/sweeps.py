"""What a node looks for in all sessions, as work on the database."""

from __future__ import annotations

from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import Orphan, Waiting
from holdfast.store.postgres.engine import Db


async def orphans(db: Db, *, node: NodeId, limit: int) -> tuple[Orphan, ...]:
    """Open turns without a live holder, oldest first."""
    return tuple(
        Orphan(
            tenant=Tenant(tenant),
            session_id=SessionId(session_id),
            turn_id=TurnId(turn_id),
            holder=NodeId(holder) if holder else None,
        )
        for tenant, session_id, turn_id, holder in await db.rows("orphans", node=node, limit=limit)
    )


async def queued(db: Db, *, limit: int) -> tuple[Waiting, ...]:
    rows = await db.rows("queued_turns", limit=limit)
    found = (
        (Tenant(tenant), SessionId(session_id), TurnId(turn_id), bool(is_free))
        for tenant, session_id, turn_id, is_free in rows
    )
    return tuple(decisions.in_order(found))
