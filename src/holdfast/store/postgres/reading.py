"""Plain reads, as work on the database: each sees one moment, and none reads more than it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from holdfast import limits
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId
from holdfast.store import listing
from holdfast.store.base import Page, SessionFilter, SessionInfo, StoreStats
from holdfast.store.postgres import tables
from holdfast.store.postgres.engine import ONE_MOMENT, Db
from holdfast.store.postgres.tables import utf8
from holdfast.store.rows import MemoryRow, SessionRow, TurnRow

# ── one session ──────────────────────────────────────────────────────────────────────────────


async def own_turns(
    db: Db, tenant: Tenant, session_id: SessionId, *, before: TurnId | None, limit: int | None
) -> tuple[TurnRow, ...]:
    return await db.all(
        tables.turns,
        "turns",
        tenant=tenant,
        session_id=session_id,
        before=before,
        limit=limit,
    )


# ── many sessions ────────────────────────────────────────────────────────────────────────────


async def infos(
    db: Db, tenant: Tenant, sessions: tuple[SessionRow, ...]
) -> tuple[SessionInfo, ...]:
    """These sessions with their keys."""
    ids = [each.id for each in sessions]
    keys: dict[SessionId, list[SessionKey]] = {}
    for row in await db.all(tables.keys, "session_keys", tenant=tenant, session_ids=ids):
        keys.setdefault(row.session_id, []).append(row.key)
    return tuple(SessionInfo(session=each, keys=tuple(keys.get(each.id, ()))) for each in sessions)


async def page(
    db: Db, tenant: Tenant, *, where: SessionFilter, cursor: str | None, limit: int
) -> Page:
    """One page of a listing."""
    listing.start(cursor)  # a bad one is refused before anything is asked
    async with db.transaction(ONE_MOMENT):
        return await page_within(db, tenant, where=where, cursor=cursor, limit=limit)


async def page_within(
    db: Db, tenant: Tenant, *, where: SessionFilter, cursor: str | None, limit: int
) -> Page:
    """The same inside a transaction. One session more than asked for is read, to know whether there is more."""
    before_ms, before_id = listing.start(cursor)
    ids = await _keyed(db, tenant, where.key_prefix)
    if ids is not None:
        few: list[SessionInfo] = []
        async for some in named(db, tenant, ids, where=where, before=(before_ms, before_id)):
            few += some
            if len(few) > limit:
                break
        return listing.page_of(tuple(few[: limit + 1]), limit=limit)
    found = await db.all(
        tables.sessions,
        "listed_sessions",
        tenant=tenant,
        agent=None if where.agent is None else utf8(where.agent),
        key_prefix=where.key_prefix,
        names=[utf8(name) for name, _ in where.attributes],
        values=[utf8(value) for _, value in where.attributes],
        active_from_ms=where.active_from_ms,
        active_before_ms=where.active_before_ms,
        busy=where.busy,
        anonymous=where.anonymous,
        before_ms=before_ms,
        before_id=before_id,
        limit=limit + 1,
    )
    shown = await infos(db, tenant, found[:limit])
    return Page(
        sessions=shown,
        cursor=listing.cursor_after(found[limit - 1]) if len(found) > limit else None,
    )


async def _keyed(db: Db, tenant: Tenant, prefix: str | None) -> set[SessionId] | None:
    """The sessions whose keys begin so, if they are few; else it is quicker to look at one after the other."""
    if not prefix:
        return None
    most = limits.listed_by_key_max
    found = await db.rows("keyed_sessions", tenant=tenant, prefix=prefix, limit=most + 1)
    return None if len(found) > most else {SessionId(each) for (each,) in found}


async def named(
    db: Db,
    tenant: Tenant,
    ids: Iterable[SessionId],
    *,
    where: SessionFilter,
    before: listing.Place,
) -> AsyncIterator[tuple[SessionInfo, ...]]:
    """These sessions as a list with this filter would show them, some at a time, each read when it is asked for."""
    before_ms, before_id = before
    places = await db.rows(
        "named_places",
        tenant=tenant,
        ids=sorted(ids),
        before_ms=before_ms,
        before_id=before_id,
    )
    for at in range(0, len(places), NAMED_AT_ONCE):
        some = [session_id for (session_id,) in places[at : at + NAMED_AT_ONCE]]
        rows = await db.all(tables.sessions, "named_sessions", tenant=tenant, ids=some)
        shown = await infos(db, tenant, rows)
        yield tuple(each for each in shown if listing.is_listed(each.session, each.keys, where))


NAMED_AT_ONCE = 25
"""Sessions that are read together, a page of a list and a little more."""


async def all_memories(
    db: Db, tenant: Tenant, *, after: MemoryRow | None, limit: int
) -> tuple[MemoryRow, ...]:
    """Every memory of a tenant, by agent and id."""
    return await db.all(
        tables.memories,
        "all_memories",
        tenant=tenant,
        agent=utf8(after.agent if after else ""),
        after=utf8(after.memory_id if after else ""),
        limit=limit,
    )


async def tenants(db: Db) -> tuple[Tenant, ...]:
    found: list[Tenant] = []
    while row := await db.row("next_tenant", after=found[-1] if found else ""):
        found.append(Tenant(row[0]))
    return tuple(found)


async def stats(db: Db) -> StoreStats:
    facts = await db.facts("counts")
    return StoreStats(
        sessions=facts.number(),
        turns_open=facts.number(),
        turns_queued=facts.number(),
        turns_committed=facts.number(),
        turns_discarded=facts.number(),
        items=facts.number(),
        bytes=facts.number(),
    )
