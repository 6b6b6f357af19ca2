"""Retention, one small step at a time, as functions of a connection. `store/retention.py` says what may go."""

from __future__ import annotations

from apsw import Connection

from holdfast import limits
from holdfast.ids import SessionId, Tenant
from holdfast.store.base import Pruned
from holdfast.store.horizon import Horizon, believed, looked
from holdfast.store.operations import sessions
from holdfast.store.retention import claims_expired_ms, stray_blobs_before
from holdfast.store.sqlite import search, tables
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.tables import run


def prune(db: Connection, *, limit: int, now_ms: int, trust_clock: bool) -> Pruned:
    """Remove up to `limit` rows of what may go. Each kind gets what the ones before it left over."""
    horizon = _look(db, now_ms, trust_clock=trust_clock)
    steps = (
        _discarded_turns,
        _idempotency,  # before what a key's answer is made of
        _replays,
        _signals,
        _anonymous_lines,
        _deleted_sessions,
        _stray_blobs,
        _unnamed_blobs,
        _nodes,
    )
    gone = 0
    for step in steps:
        if gone < limit:
            gone += step(db, horizon, limit=limit - gone)
    return Pruned(rows=gone, more=gone >= limit, behind_ms=horizon.behind_ms)


def _look(db: Connection, now_ms: int, *, trust_clock: bool) -> Horizon:
    look = believed if trust_clock else looked
    horizon = look(tables.horizon_rows.one(db, "horizon"), now_ms)
    tables.horizon_rows.put(db, "put_horizon", horizon)
    return horizon


def _discarded_turns(db: Connection, horizon: Horizon, *, limit: int) -> int:
    since = horizon.before_ms(limits.discarded_keep_s)
    found = tables.texts(db, "stale_discarded", before_ms=since, limit=limit)
    for tenant, turn_id in found:
        _drop_turn(db, tenant, turn_id)
    return len(found)


def _replays(db: Connection, horizon: Horizon, *, limit: int) -> int:
    since = horizon.before_ms(limits.idempotency_keep_s)
    found = tables.texts(db, "stale_replays", before_ms=since, limit=limit)
    for tenant, turn_id in found:
        for query in ("delete_journal", "forget_replay"):
            run(db, query, tenant=tenant, turn_id=turn_id)
    return len(found)


def _signals(db: Connection, horizon: Horizon, *, limit: int) -> int:
    since = horizon.before_ms(limits.idempotency_keep_s)
    return _changed(db, "prune_signals", before_ms=since, limit=limit)


def _idempotency(db: Connection, horizon: Horizon, *, limit: int) -> int:
    return _changed(db, "prune_idempotency", before_ms=claims_expired_ms(horizon), limit=limit)


def _nodes(db: Connection, horizon: Horizon, *, limit: int) -> int:
    since = horizon.before_ms(limits.dead_node_keep_s)
    return _changed(db, "prune_nodes", before_ms=since, limit=limit)


def _stray_blobs(db: Connection, horizon: Horizon, *, limit: int) -> int:
    before_id = stray_blobs_before(horizon)
    return _changed(db, "prune_stray_blobs", before_id=before_id, limit=limit)


def _unnamed_blobs(db: Connection, horizon: Horizon, *, limit: int) -> int:
    """How many blobs were looked at: those that an item or a journal names stay for good, the others go."""
    run(db, "notice_blobs", now_ms=horizon.seen_ms, limit=limit)
    since = horizon.before_ms(limits.discarded_keep_s)
    judged = min(limit, limits.blobs_judged_max)
    found = tables.texts(db, "due_blobs", before_ms=since, limit=judged)
    for tenant, session_id, digest in found:
        place = {"tenant": tenant, "session_id": session_id}
        named = tables.scalar(db, "names_blob", digest=digest.encode(), **place)
        run(db, "keep_blob" if named else "drop_blob", digest=digest, **place)
    return len(found)


def _anonymous_lines(db: Connection, horizon: Horizon, *, limit: int) -> int:
    since = horizon.before_ms(limits.anonymous_keep_s)
    found = tables.texts(db, "stale_anonymous", before_ms=since, limit=limit)
    for tenant, session_id in found:
        remove = sessions.remove(Tenant(tenant), SessionId(session_id))
        DRIVER.run(db, remove, now_ms=horizon.seen_ms)
    return len(found)


def _deleted_sessions(db: Connection, horizon: Horizon, *, limit: int) -> int:
    gone = 0
    # Each of them loses a row or is marked, so this ends; one that has no row alone must not end it.
    while gone < limit and (found := tables.texts(db, "clearable_sessions", limit=limit - gone)):
        for tenant, session_id in found:
            gone += _clear(db, tenant, session_id, limit=limit - gone)
    return gone


def _clear(db: Connection, tenant: str, session_id: str, *, limit: int) -> int:
    """Remove some of a deleted session's rows, its turns last; mark it when nothing is left."""
    own = {"tenant": tenant, "id": session_id}
    gone = 0
    for query in ("clear_items", "clear_state", "clear_annotations", "clear_blobs"):
        gone += _changed(db, query, limit=limit - gone, **own)
    gone += search.clear(db, tenant, session_id, limit=limit - gone)
    for (turn_id,) in tables.texts(db, "clearable_turns", limit=limit - gone, **own):
        _drop_turn(db, tenant, turn_id)
        gone += 1
    if gone < limit and not tables.scalar(db, "has_turns", **own):
        run(db, "mark_cleared", **own)
    return gone


def _drop_turn(db: Connection, tenant: str, turn_id: str) -> None:
    for query in ("delete_journal", "delete_signals", "delete_turn"):
        run(db, query, tenant=tenant, turn_id=turn_id)


def _changed(db: Connection, query: str, **bindings: str | int) -> int:
    """Run a query that removes rows; how many went."""
    run(db, query, **bindings)
    return db.changes()
