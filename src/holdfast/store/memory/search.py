"""Search without an index: every listed session is looked through, the last active first."""

from __future__ import annotations

import asyncio

from holdfast.ids import Tenant
from holdfast.store import listing
from holdfast.store.assemble import extended
from holdfast.store.base import Indexed, Match, Query, Results, SessionFilter, SessionInfo
from holdfast.store.effort import Effort
from holdfast.store.listing import Within, before_in, page_upto
from holdfast.store.memory import reading
from holdfast.store.memory.tables import Tables
from holdfast.store.operations.reading import snapshot as read_snapshot
from holdfast.store.searching import Sought, name_of, text_seen


async def search(
    tables: Tables,
    tenant: Tenant,
    query: Query,
    *,
    where: SessionFilter,
    cursor: str | None,
    limit: int,
) -> Results:
    """One page of what was found. One match more than asked for is looked for, to know whether there is."""
    _, within = listing.resumed(cursor)
    listed = reading.page(
        tables, tenant, where=where, cursor=cursor, limit=len(tables.sessions.by_key)
    )
    look = _Look(tables, Sought(query))
    found: list[Match] = []
    for info in listed.sessions:
        match = await look.match(info, within)
        if match is not None and len(found) == limit:
            return page_upto(found, found[-1].info)
        if match is not None:
            found.append(match)
        if look.left_at is not None or look.effort.is_spent:
            return page_upto(found, info, look.left_at)
    return Results(matches=tuple(found), cursor=None)


class _Look:
    """One page's look into sessions."""

    def __init__(self, tables: Tables, sought: Sought) -> None:
        self._tables = tables
        self._sought = sought
        self.left_at: int | None = None
        """The position down to which the last session was looked through, if not to its beginning."""
        self.effort = Effort()
        self.effort.begin()

    async def match(self, info: SessionInfo, within: Within | None) -> Match | None:
        session = info.session
        before = before_in(session, within)
        if before is None:
            self.effort.spend()
            named = self._sought.find(name_of(session))
            if named:
                return Match(info=info, excerpt=named)
        found = self._tables.run(
            read_snapshot(session.tenant, session.id, version=None, known=None)
        )
        if found is None:
            return None  # it was deleted while others went first
        snapshot = extended(found)
        hidden = snapshot.notes.hidden_from_people
        for position, item in reversed(tuple(enumerate(snapshot.items))[:before]):
            self.effort.spend(len(text_seen(item)))
            for hit in self._sought.hits([(position, item)]):
                if hit is None:
                    await asyncio.sleep(0)
                elif hit.item not in hidden:
                    return hit.match(info)
            if self.effort.is_spent:
                self.left_at = position
                return None
        return None


def index(tables: Tables) -> Indexed:
    """There is no index, so it is never behind."""
    return Indexed(sessions=0, more=False)
