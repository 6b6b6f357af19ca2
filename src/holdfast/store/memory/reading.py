"""Plain reads: each sees one moment, since nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from holdfast.core.codec import Value
from holdfast.core.conversation import Lineage, Snapshot
from holdfast.ids import GrantId, KeyId, SessionId, Tenant, TurnId, Version
from holdfast.store import decisions, listing, shaping
from holdfast.store.assemble import empty_snapshot, extended, later
from holdfast.store.base import Page, SessionDump, SessionFilter, SessionInfo, StoreStats
from holdfast.store.granting import GrantFilter
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import (
    AnnotationRow,
    ApiKeyRow,
    GrantRow,
    JournalRow,
    MemoryRow,
    SessionRow,
    TurnRow,
)

# ── one session ──────────────────────────────────────────────────────────────────────────────


class Place(Value):
    """A version of a session: everything that has to be read for it, and the turn that made it."""

    lineage: Lineage
    turn: TurnRow | None


def find_place(tables: Tables, session: SessionRow, version: Version) -> Place | None:
    """Where a version lies, or None if the session has no such version."""
    tenant = session.tenant
    point = decisions.fork_point(session, version)
    if point is None:
        return None
    turn = tables.turn_at(tenant, decisions.owner_of(session, version), version)
    rev = point.rev
    if rev is None:
        following = tables.turn_at(tenant, point.holder, version.next)
        assert following is not None, "before the head there is a next turn"
        rev = following.rev
    length = turn.end if turn else 0
    return Place(lineage=decisions.lineage_at(session, point, length=length, rev=rev), turn=turn)


def snapshot(
    tables: Tables,
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version | None,
    known: Snapshot | None,
) -> Snapshot | None:
    session = tables.sessions.get((tenant, session_id))
    if session is None or session.state == "deleted":
        return None
    wanted = session.head if version is None else version
    place = find_place(tables, session, wanted)
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
            for row in tables.state.get((tenant, each.session_id), ())
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
        for row in tables.annotations.get((tenant, each.session_id), ())
        if each.from_rev < row.rev <= each.upto_rev
    )


def _turns_in(tables: Tables, tenant: Tenant, past: decisions.Stretch) -> Iterable[TurnRow]:
    for version in range(past.from_version + 1, past.upto_version + 1):
        turn = tables.turn_at(tenant, past.session_id, Version(version))
        assert turn is not None, "a version has the turn that made it"
        yield turn


def _bodies_in(tables: Tables, tenant: Tenant, past: decisions.Stretch) -> Iterable[bytes]:
    rows = tables.items.get((tenant, past.session_id), [])
    first = rows[0].pos if rows else 0
    return (row.body for row in rows[past.from_pos - first : past.upto_pos - first])


def blob(tables: Tables, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
    """Bytes by digest: the session's own, or those of its past."""
    session = tables.sessions.get((tenant, session_id))
    if session is None or session.state == "deleted":
        return None
    for owner in (session.id, *(segment.session_id for segment in session.lineage)):
        found = tables.blobs.get((tenant, owner), {}).get(digest)
        if found is not None:
            return found
    return None


def journal(
    tables: Tables, tenant: Tenant, turn_id: TurnId, *, since: int
) -> tuple[JournalRow, ...]:
    rows = tables.journals.get((tenant, turn_id), ())
    first = max((row.n for row in rows if row.n <= since), default=0)
    return tuple(row for row in rows if row.n >= first)


def own_turns(
    tables: Tables, tenant: Tenant, session_id: SessionId, *, before: TurnId | None, limit: int
) -> tuple[TurnRow, ...]:
    turns = sorted(tables.turns_of(tenant, session_id), key=decisions.place_of, reverse=True)
    if before is None:
        return tuple(turns[:limit])
    at = next((n + 1 for n, each in enumerate(turns) if each.turn_id == before), len(turns))
    return tuple(turns[at : at + limit])


def dump(tables: Tables, tenant: Tenant, session_id: SessionId) -> SessionDump | None:
    """All rows of a session as they lie; what has not ended is left out."""
    session = tables.sessions.get((tenant, session_id))
    if session is None:
        return None
    place = tenant, session_id
    turns = shaping.ended_turns(tables.turns_of(tenant, session_id))
    claims = (claim for turn in turns for claim in tables.claims_of(turn))
    return SessionDump(
        session=shaping.at_rest(session),
        keys=tuple(tables.keys_of(session)),
        turns=turns,
        items=tuple(tables.items.get(place, ())),
        state=tuple(tables.state.get(place, ())),
        annotations=tuple(tables.annotations.get(place, ())),
        blobs=tuple(sorted(tables.blobs.get(place, {}).items())),
        journals=tuple(
            row for turn in turns for row in tables.journals.get((tenant, turn.turn_id), ())
        ),
        claims=tuple(sorted(claims, key=lambda claim: claim.key)),
    )


def all_memories(
    tables: Tables, tenant: Tenant, *, after: MemoryRow | None, limit: int
) -> tuple[MemoryRow, ...]:
    """Every memory of a tenant, by agent and id."""
    start = (after.agent, after.memory_id) if after else ("", "")
    found = sorted(
        (
            row
            for (owner, _), held in tables.memories.items()
            if owner == tenant
            for row in held.values()
            if (row.agent, row.memory_id) > start
        ),
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
            for session in tables.sessions.values()
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
    ids = sorted(session_id for owner, session_id in tables.sessions if owner == tenant)
    return tuple(each for each in ids if after is None or each > after)[:limit]


def forks(
    tables: Tables, tenant: Tenant, session_id: SessionId, *, limit: int
) -> tuple[SessionId, ...]:
    ids = (
        row.id
        for row in tables.sessions.values()
        if row.tenant == tenant and any(each.session_id == session_id for each in row.lineage)
    )
    return tuple(sorted(ids)[:limit])


def stats(tables: Tables) -> StoreStats:
    states = [turn.state for turn in tables.turns.values()]
    bodies = [row.body for rows in tables.items.values() for row in rows]
    blobs = [data for held in tables.blobs.values() for data in held.values()]
    return StoreStats(
        sessions=sum(each.state == "live" for each in tables.sessions.values()),
        turns_open=states.count("open"),
        turns_queued=states.count("queued"),
        turns_committed=states.count("committed"),
        turns_discarded=states.count("discarded"),
        items=len(bodies),
        bytes=sum(map(len, bodies)) + sum(map(len, blobs)),
    )


def api_keys(
    tables: Tables, tenant: Tenant | None, *, after: KeyId | None, limit: int
) -> tuple[ApiKeyRow, ...]:
    found = (row for key_id, row in sorted(tables.api_keys.items()) if key_id > (after or ""))
    return tuple(islice((row for row in found if tenant in (None, row.tenant)), limit))


def grants(
    tables: Tables,
    tenant: Tenant,
    where: GrantFilter,
    *,
    after: GrantId | None,
    limit: int,
) -> tuple[GrantRow, ...]:
    found = (
        row
        for (whose, grant_id), row in sorted(tables.grants.items())
        if whose == tenant
        and grant_id > (after or "")
        and where.source_key in (None, row.source_key)
        and where.agent in (None, row.agent)
        and not (where.live and row.revoked_ms is not None)
    )
    return tuple(islice(found, limit))
