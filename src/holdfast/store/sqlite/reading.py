"""Plain reads, as functions of a connection: each sees one moment, and none reads more than it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from apsw import Connection

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import listing
from holdfast.store.base import Page, SessionFilter, SessionInfo, StoreStats
from holdfast.store.operations.reading import info
from holdfast.store.operations.sessions import KEYS_OF
from holdfast.store.rows import (
    MemoryRow,
    SessionRow,
    TurnRow,
)
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.steps import find

# ── one session ──────────────────────────────────────────────────────────────────────────────


def own_turns(
    db: Connection, tenant: Tenant, session_id: SessionId, *, before: TurnId | None, limit: int
) -> tuple[TurnRow, ...]:
    return tables.turn_rows.all(
        db,
        "turns",
        tenant=tenant,
        session_id=session_id,
        before=before,
        limit=limit,
    )


# ── many sessions ────────────────────────────────────────────────────────────────────────────


def _with_keys(db: Connection, session: SessionRow) -> SessionInfo:
    found = DRIVER.run(db, find(KEYS_OF, tenant=session.tenant, session_id=session.id))
    return SessionInfo(session=session, keys=tuple(row.key for row in found))


def page(
    db: Connection, tenant: Tenant, *, where: SessionFilter, cursor: str | None, limit: int
) -> Page:
    """One page of a listing. One session more than asked for is read, to know whether there is more."""
    before_ms, before_id = listing.start(cursor)
    ids = _keyed(db, tenant, where.key_prefix)
    if ids is not None:
        few = islice(named(db, tenant, ids, where=where, before=(before_ms, before_id)), limit + 1)
        return listing.page_of(tuple(few), limit=limit)
    found = tables.session_rows.all(
        db,
        "listed_sessions",
        tenant=tenant,
        agent=where.agent,
        key_prefix=where.key_prefix,
        attributes=encode(where.attributes).decode(),
        active_from_ms=where.active_from_ms,
        active_before_ms=where.active_before_ms,
        busy=where.busy,
        anonymous=where.anonymous,
        before_ms=before_ms,
        before_id=before_id,
        limit=limit + 1,
    )
    shown = found[:limit]
    return Page(
        sessions=tuple(_with_keys(db, each) for each in shown),
        cursor=listing.cursor_after(shown[-1]) if len(found) > limit else None,
    )


def _keyed(db: Connection, tenant: Tenant, prefix: str | None) -> set[SessionId] | None:
    """The sessions whose keys begin so, if they are few; else it is quicker to look at one after the other."""
    if not prefix:
        return None
    most = limits.listed_by_key_max
    found = tables.texts(db, "keyed_sessions", tenant=tenant, prefix=prefix, limit=most + 1)
    return None if len(found) > most else {SessionId(each) for (each,) in found}


def named(
    db: Connection,
    tenant: Tenant,
    ids: Iterable[SessionId],
    *,
    where: SessionFilter,
    before: listing.Place,
) -> Iterator[SessionInfo]:
    """These sessions as a list with this filter would show them, each read when it is asked for."""
    before_ms, before_id = before
    names = encode(sorted(ids)).decode()
    places = tables.texts(
        db, "named_places", tenant=tenant, ids=names, before_ms=before_ms, before_id=before_id
    )
    for (session_id,) in places:
        found = DRIVER.run(db, info(tenant, SessionId(session_id)))
        assert found is not None, "it was there a moment ago, in the same one"
        if listing.is_listed(found.session, found.keys, where):
            yield found


def all_memories(
    db: Connection, tenant: Tenant, *, after: MemoryRow | None, limit: int
) -> tuple[MemoryRow, ...]:
    """Every memory of a tenant, by agent and id."""
    return tables.memory_rows.all(
        db,
        "all_memories",
        tenant=tenant,
        agent=after.agent if after else "",
        after=after.memory_id if after else "",
        limit=limit,
    )


def tenants(db: Connection) -> tuple[Tenant, ...]:
    found: list[Tenant] = []
    while (name := tables.scalar(db, "next_tenant", after=found[-1] if found else "")) is not None:
        assert isinstance(name, str)
        found.append(Tenant(name))
    return tuple(found)


def stats(db: Connection, *, size_bytes: int) -> StoreStats:
    live, opened, queued, committed, discarded, items = tables.numbers(db, "counts")
    return StoreStats(
        sessions=live,
        turns_open=opened,
        turns_queued=queued,
        turns_committed=committed,
        turns_discarded=discarded,
        items=items,
        bytes=size_bytes,
    )
