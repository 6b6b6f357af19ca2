"""Search without an index: every listed session is looked through, the last active first."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.ids import Tenant
from holdfast.store import listing, searching
from holdfast.store.base import Indexed, Match, Query, Results, SessionFilter, SessionInfo
from holdfast.store.memory import reading
from holdfast.store.memory.tables import Tables


def search(
    tables: Tables,
    tenant: Tenant,
    query: Query,
    *,
    where: SessionFilter,
    cursor: str | None,
    limit: int,
) -> Results:
    """One page of what was found. One match more than asked for is looked for, to know whether there is."""
    listed = reading.page(tables, tenant, where=where, cursor=cursor, limit=len(tables.sessions))
    found: list[Match] = []
    for match in _matches(tables, query, listed.sessions):
        if len(found) == limit:
            return Results(
                matches=tuple(found), cursor=listing.cursor_after(found[-1].info.session)
            )
        found.append(match)
    return Results(matches=tuple(found), cursor=None)


def _matches(tables: Tables, query: Query, listed: tuple[SessionInfo, ...]) -> Iterator[Match]:
    for info in listed:
        match = _match(tables, query, info)
        if match is not None:
            yield match


def _match(tables: Tables, query: Query, info: SessionInfo) -> Match | None:
    session = info.session
    named = searching.find(query, searching.name_of(session))
    if named:
        return Match(info=info, excerpt=named)
    snapshot = reading.snapshot(tables, session.tenant, session.id, version=None, known=None)
    assert snapshot is not None, "a listed session can be read"
    latest_first = reversed(tuple(enumerate(snapshot.items)))
    found = searching.find_latest(query, latest_first, hidden=snapshot.notes.hidden_from_people)
    if found is None:
        return None
    position, item, excerpt = found
    return Match(info=info, excerpt=excerpt, item=item, position=position)


def index(tables: Tables) -> Indexed:
    """There is no index, so it is never behind."""
    return Indexed(sessions=0, more=False)
