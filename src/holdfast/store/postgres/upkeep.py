"""Retention, one small step at a time, as work on the database. `store/retention.py` says what may go.

Each statement is a transaction of its own; of several processes that prune, each takes what the others do not hold.
"""

from __future__ import annotations

from functools import partial

from holdfast import limits
from holdfast.ids import SessionId, Tenant, mint
from holdfast.store.base import Pruned
from holdfast.store.postgres import operations
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.tables import Bound
from holdfast.store.retention import before_ms, line_may_go
from holdfast.store.rows import SessionRow


async def prune(db: Db, *, limit: int) -> Pruned:
    """Remove up to `limit` rows of what may go. Each kind gets what the ones before it left over."""
    now_ms = (await db.facts("now")).number()
    discarded = before_ms(now_ms, limits.discarded_keep_s)
    settled = before_ms(now_ms, limits.idempotency_keep_s)
    steps = (
        partial(_pruned, query="prune_discarded", before_ms=discarded),
        partial(_pruned, query="prune_replays", before_ms=settled),
        partial(_pruned, query="prune_signals", before_ms=settled),
        partial(_pruned, query="prune_idempotency", now_ms=now_ms),
        partial(_anonymous_lines, now_ms=now_ms),
        _deleted_sessions,
        partial(_pruned, query="prune_stray_blobs", before_id=_minted_after(settled)),
        partial(_pruned, query="prune_nodes", before_ms=before_ms(now_ms, limits.dead_node_keep_s)),
    )
    gone = 0
    for step in steps:
        if gone < limit:
            gone += await step(db, limit=limit - gone)
    return Pruned(rows=gone, more=gone >= limit)


async def _pruned(db: Db, *, query: str, **bindings: Bound) -> int:
    """Run a query that removes rows; how many went."""
    ((count,),) = await db.write(query, **bindings)
    return int(count)


def _minted_after(at_ms: int) -> SessionId:
    return mint(SessionId, at_ms=max(0, at_ms) + 1, entropy=0)


async def _anonymous_lines(db: Db, *, limit: int, now_ms: int) -> int:
    def is_stale(session: SessionRow) -> bool:
        return line_may_go(session, now_ms=now_ms)

    since = before_ms(now_ms, limits.anonymous_keep_s)
    found = await db.rows("stale_anonymous", before_ms=since, limit=limit)
    for tenant, session_id in found:
        await operations.remove(db, Tenant(tenant), SessionId(session_id), if_still=is_stale)
    return len(found)


async def _deleted_sessions(db: Db, *, limit: int) -> int:
    gone, moved = 0, True
    # Each of them loses a row, is marked, or is in somebody else's hands; one that has no row alone must not end it.
    while gone < limit and moved:
        moved = False
        for tenant, session_id in await db.rows("clearable_sessions", limit=limit - gone):
            if gone < limit:
                cleared = await _clear(db, tenant, session_id, limit=limit - gone)
                moved |= cleared is not None
                gone += cleared or 0
    return gone


async def _clear(db: Db, tenant: str, session_id: str, *, limit: int) -> int | None:
    """Remove some of a deleted session's rows, its turns last; mark it when nothing is left.

    How many went; None if it is not to be touched now.
    """
    own: dict[str, Bound] = {"tenant": tenant, "id": session_id}
    gone = 0
    async with db.transaction():
        # Somebody may be making a session that reads this one: looked at again, once it is ours.
        held = await db.row("hold_tombstone", **own)
        if held is None or (await db.facts("is_read", **own)).value():
            return None
        for query in (
            "clear_items",
            "clear_state",
            "clear_annotations",
            "clear_blobs",
            "clear_chunks",
            "clear_turns",
        ):
            gone += await _pruned(db, query=query, limit=limit - gone, **own)
        if gone < limit:
            await db.write("mark_cleared", **own)
    return gone
