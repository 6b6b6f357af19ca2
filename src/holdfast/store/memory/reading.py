"""Plain reads: each sees one moment, since nothing here waits."""

from __future__ import annotations

from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import decisions, listing
from holdfast.store.base import Page, SessionFilter, SessionInfo, StoreStats
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import (
    MemoryRow,
    SessionRow,
    TurnRow,
)

# ── one session ──────────────────────────────────────────────────────────────────────────────


def own_turns(
    tables: Tables, tenant: Tenant, session_id: SessionId, *, before: TurnId | None, limit: int
) -> tuple[TurnRow, ...]:
    turns = sorted(tables.turns_of(tenant, session_id), key=decisions.place_of, reverse=True)
    if before is None:
        return tuple(turns[:limit])
    at = next((n + 1 for n, each in enumerate(turns) if each.turn_id == before), len(turns))
    return tuple(turns[at : at + limit])


def all_memories(
    tables: Tables, tenant: Tenant, *, after: MemoryRow | None, limit: int
) -> tuple[MemoryRow, ...]:
    """Every memory of a tenant, by agent and id."""
    start = (after.agent, after.memory_id) if after else ("", "")
    mine = tables.memories.where(("tenant",), (tenant,))
    found = sorted(
        (row for row in mine if (row.agent, row.memory_id) > start),
        key=lambda row: (row.agent, row.memory_id),
    )
    return tuple(found[:limit])


# ── many sessions ────────────────────────────────────────────────────────────────────────────


def info(tables: Tables, session: SessionRow) -> SessionInfo:
    keys = tuple(row.key for row in tables.keys_of(session))
    return SessionInfo(session=session, keys=keys)


def page(
    tables: Tables, tenant: Tenant, *, where: SessionFilter, cursor: str | None, limit: int
) -> Page:
    """One page of a listing."""
    before = listing.start(cursor)
    found = sorted(
        (
            shown
            for session in tables.sessions.by_key.values()
            if session.tenant == tenant and listing.place_of(session) < before
            for shown in (info(tables, session),)
            if listing.is_listed(session, shown.keys, where)
        ),
        key=lambda shown: listing.place_of(shown.session),
        reverse=True,
    )
    return Page(
        sessions=tuple(found[:limit]),
        cursor=listing.cursor_after(found[limit - 1].session) if len(found) > limit else None,
    )


def stats(tables: Tables) -> StoreStats:
    states = [turn.state for turn in tables.turns.by_key.values()]
    bodies = [row.body for row in tables.items.by_key.values()]
    blobs = [row.bytes for row in tables.blobs.by_key.values()]
    return StoreStats(
        sessions=sum(each.state == "live" for each in tables.sessions.by_key.values()),
        turns_open=states.count("open"),
        turns_queued=states.count("queued"),
        turns_committed=states.count("committed"),
        turns_discarded=states.count("discarded"),
        items=len(bodies),
        bytes=sum(map(len, bodies)) + sum(map(len, blobs)),
    )
