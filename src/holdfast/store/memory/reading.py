"""Plain reads: each sees one moment, since nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.conversation import Snapshot
from holdfast.ids import SessionId, Tenant, TurnId, Version
from holdfast.store import decisions, listing
from holdfast.store.assemble import empty_snapshot, extended, later
from holdfast.store.base import Page, SessionFilter, SessionInfo, StoreStats
from holdfast.store.memory.tables import Tables
from holdfast.store.operations.sessions import find_place
from holdfast.store.rows import (
    AnnotationRow,
    MemoryRow,
    SessionRow,
    StateRow,
    TurnRow,
)

# ── one session ──────────────────────────────────────────────────────────────────────────────


def snapshot(
    tables: Tables,
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version | None,
    known: Snapshot | None,
) -> Snapshot | None:
    session = tables.sessions.by_key.get((tenant, session_id))
    if session is None or session.state == "deleted":
        return None
    wanted = session.head if version is None else version
    place = tables.run(find_place(session, wanted))
    if place is None:
        return None
    if known is None or known.session_id != session_id or known.version > wanted:
        known = empty_snapshot(session_id)
    past = decisions.after(known, decisions.stretches(place.lineage))
    found = later(
        known,
        session,
        turns=[turn for each in past for turn in _turns_in(tables, tenant, each)],
        items=[body for each in past for body in _bodies_in(tables, tenant, each)],
        state=[
            row
            for each in past
            for row in tables.rows_of(tables.state, tenant, each.session_id)
            if each.from_version < row.seq <= each.upto_version
        ],
        annotations=annotations_in(tables, tenant, past),
    )
    return extended(found)


def annotations_in(
    tables: Tables, tenant: Tenant, past: Iterable[decisions.Stretch]
) -> tuple[AnnotationRow, ...]:
    """The annotations of these stretches, in the order of their revisions."""
    return tuple(
        row
        for each in past
        for row in tables.rows_of(tables.annotations, tenant, each.session_id)
        if each.from_rev < row.rev <= each.upto_rev
    )


def _turns_in(tables: Tables, tenant: Tenant, past: decisions.Stretch) -> Iterable[TurnRow]:
    for version in range(past.from_version + 1, past.upto_version + 1):
        turn = tables.turn_at(tenant, past.session_id, Version(version))
        assert turn is not None, "a version has the turn that made it"
        yield turn


def _bodies_in(tables: Tables, tenant: Tenant, past: decisions.Stretch) -> Iterable[bytes]:
    places = ((tenant, past.session_id, pos) for pos in range(past.from_pos, past.upto_pos))
    return (row.body for row in map(tables.items.by_key.get, places) if row)


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


def session_ids(
    tables: Tables, tenant: Tenant, *, after: SessionId | None, limit: int
) -> tuple[SessionId, ...]:
    ids = sorted(session_id for owner, session_id in tables.sessions.by_key if owner == tenant)
    return tuple(each for each in ids if after is None or each > after)[:limit]


def forks(
    tables: Tables, tenant: Tenant, session_id: SessionId, *, limit: int
) -> tuple[SessionId, ...]:
    ids = (
        row.id
        for row in tables.sessions.by_key.values()
        if row.tenant == tenant and any(each.session_id == session_id for each in row.lineage)
    )
    return tuple(sorted(ids)[:limit])


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
