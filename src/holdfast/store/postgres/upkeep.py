"""Retention, one small step at a time, as work on the database. `store/retention.py` says what may go.

Each statement is a transaction of its own; of several processes that prune, each takes what the others do not hold.
"""

from __future__ import annotations

from functools import partial

from holdfast import limits
from holdfast.ids import SessionId, Tenant
from holdfast.store.base import Pruned
from holdfast.store.horizon import Horizon, believed, looked
from holdfast.store.operations import sessions
from holdfast.store.postgres import tables
from holdfast.store.postgres.driver import STEPS
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.tables import Bound
from holdfast.store.retention import claims_expired_ms, line_may_go, stray_blobs_before
from holdfast.store.rows import SessionRow


async def prune(db: Db, *, limit: int, trust_clock: bool) -> Pruned:
    """Remove up to `limit` rows of what may go. Each kind gets what the ones before it left over."""
    horizon = await _look(db, trust_clock=trust_clock)
    discarded = horizon.before_ms(limits.discarded_keep_s)
    settled = horizon.before_ms(limits.idempotency_keep_s)
    dead = horizon.before_ms(limits.dead_node_keep_s)
    steps = (
        partial(_pruned, query="prune_discarded", before_ms=discarded),
        # Before what a key's answer is made of.
        partial(_pruned, query="prune_idempotency", before_ms=claims_expired_ms(horizon)),
        partial(_pruned, query="prune_replays", before_ms=settled),
        partial(_pruned, query="prune_signals", before_ms=settled),
        partial(_anonymous_lines, horizon=horizon),
        _deleted_sessions,
        partial(_pruned, query="prune_stray_blobs", before_id=stray_blobs_before(horizon)),
        partial(_unnamed_blobs, horizon=horizon),
        partial(_pruned, query="prune_nodes", before_ms=dead),
    )
    gone = 0
    for step in steps:
        if gone < limit:
            gone += await step(db, limit=limit - gone)
    return Pruned(rows=gone, more=gone >= limit, behind_ms=horizon.behind_ms)


async def _look(db: Db, *, trust_clock: bool) -> Horizon:
    before = await db.one(tables.horizons, "horizon")
    now_ms = (await db.facts("now")).number()
    horizon = believed(before, now_ms) if trust_clock else looked(before, now_ms)
    was_ms = before.seen_ms if before else None
    await db.write("put_horizon", was_ms=was_ms, **tables.horizons.bound(horizon))
    return horizon


async def _unnamed_blobs(db: Db, *, limit: int, horizon: Horizon) -> int:
    """How many blobs were looked at: those that an item or a journal names stay for good, the others go."""
    return await _pruned(
        db,
        query="judge_blobs",
        now_ms=horizon.seen_ms,
        before_ms=horizon.before_ms(limits.discarded_keep_s),
        judged=min(limit, limits.blobs_judged_max),
        limit=limit,
    )


async def _pruned(db: Db, *, query: str, **bindings: Bound) -> int:
    """Run a query that removes rows; how many went."""
    ((count,),) = await db.write(query, **bindings)
    return int(count)


async def _anonymous_lines(db: Db, *, limit: int, horizon: Horizon) -> int:
    def is_stale(session: SessionRow) -> bool:
        return line_may_go(session, horizon)

    since = horizon.before_ms(limits.anonymous_keep_s)
    found = await db.rows("stale_anonymous", before_ms=since, limit=limit)
    for tenant, session_id in found:
        remove = sessions.remove(Tenant(tenant), SessionId(session_id), if_still=is_stale)
        await STEPS.take(db, remove)
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
