"""Retention, one small step at a time, as functions of a connection. `store/retention.py` says what may go."""

from __future__ import annotations

from apsw import Connection

from holdfast import limits
from holdfast.ids import SessionId, Tenant, mint
from holdfast.store.base import Pruned
from holdfast.store.retention import before_ms
from holdfast.store.sqlite import operations, search, tables
from holdfast.store.sqlite.tables import run


def prune(db: Connection, *, limit: int, now_ms: int) -> Pruned:
    """Remove up to `limit` rows of what may go. Each kind gets what the ones before it left over."""
    gone = 0
    for step in (
        _discarded_turns,
        _replays,
        _signals,
        _idempotency,
        _anonymous_lines,
        _deleted_sessions,
        _stray_blobs,
        _nodes,
    ):
        if gone < limit:
            gone += step(db, limit=limit - gone, now_ms=now_ms)
    return Pruned(rows=gone, more=gone >= limit)


def _discarded_turns(db: Connection, *, limit: int, now_ms: int) -> int:
    since = before_ms(now_ms, limits.discarded_keep_s)
    found = tables.texts(db, "stale_discarded", before_ms=since, limit=limit)
    for tenant, turn_id in found:
        _drop_turn(db, tenant, turn_id)
    return len(found)


def _replays(db: Connection, *, limit: int, now_ms: int) -> int:
    since = before_ms(now_ms, limits.idempotency_keep_s)
    found = tables.texts(db, "stale_replays", before_ms=since, limit=limit)
    for tenant, turn_id in found:
        for query in ("delete_journal", "forget_replay"):
            run(db, query, tenant=tenant, turn_id=turn_id)
    return len(found)


def _signals(db: Connection, *, limit: int, now_ms: int) -> int:
    since = before_ms(now_ms, limits.idempotency_keep_s)
    return _changed(db, "prune_signals", before_ms=since, limit=limit)


def _idempotency(db: Connection, *, limit: int, now_ms: int) -> int:
    return _changed(db, "prune_idempotency", now_ms=now_ms, limit=limit)


def _nodes(db: Connection, *, limit: int, now_ms: int) -> int:
    return _changed(
        db, "prune_nodes", before_ms=before_ms(now_ms, limits.dead_node_keep_s), limit=limit
    )


def _stray_blobs(db: Connection, *, limit: int, now_ms: int) -> int:
    return _changed(
        db,
        "prune_stray_blobs",
        before_id=mint(
            SessionId, at_ms=max(0, before_ms(now_ms, limits.idempotency_keep_s)) + 1, entropy=0
        ),
        limit=limit,
    )


def _anonymous_lines(db: Connection, *, limit: int, now_ms: int) -> int:
    since = before_ms(now_ms, limits.anonymous_keep_s)
    found = tables.texts(db, "stale_anonymous", before_ms=since, limit=limit)
    for tenant, session_id in found:
        operations.remove(db, Tenant(tenant), SessionId(session_id), now_ms=now_ms)
    return len(found)


def _deleted_sessions(db: Connection, *, limit: int, now_ms: int) -> int:
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
