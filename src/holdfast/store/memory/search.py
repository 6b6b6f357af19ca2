"""Search without an index: every listed session is looked through, the last active first."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.ids import Tenant
from holdfast.store import listing
from holdfast.store.base import Indexed, Match, Query, Results, SessionFilter, SessionInfo
from holdfast.store.memory import reading
from holdfast.store.memory.tables import Tables
from holdfast.store.searching import Sought, name_of


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
    for match in _matches(tables, Sought(query), listed.sessions):
        if len(found) == limit:
            return Results(
                matches=tuple(found), cursor=listing.cursor_after(found[-1].info.session)
            )
        found.append(match)
    return Results(matches=tuple(found), cursor=None)


def _matches(tables: Tables, sought: Sought, listed: tuple[SessionInfo, ...]) -> Iterator[Match]:
    for info in listed:
        match = _match(tables, sought, info)
        if match is not None:
            yield match


def _match(tables: Tables, sought: Sought, info: SessionInfo) -> Match | None:
    session = info.session
    named = sought.find(name_of(session))
    if named:
        return Match(info=info, excerpt=named)
    snapshot = reading.snapshot(tables, session.tenant, session.id, version=None, known=None)
    assert snapshot is not None, "a listed session can be read"
    hidden = snapshot.notes.hidden_from_people
    hits = sought.hits(reversed(tuple(enumerate(snapshot.items))))
    found = next((hit for hit in hits if hit.item not in hidden), None)
    return found.match(info) if found else None


def index(tables: Tables) -> Indexed:
    """There is no index, so it is never behind."""
    return Indexed(sessions=0, more=False)
