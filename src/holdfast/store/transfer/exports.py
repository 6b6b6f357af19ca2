"""Exports: which sessions are written, in which order, and how much of each.

1. A fork comes after the sessions in its lineage, so that an import can store them one by one.
2. One session is in memory at a time. Besides it, only the ids of all sessions are.
3. Of a deleted session, only the part that a live session still reads as its past is exported.
4. A session that cannot be read is left out and named, and so is a fork that reads it.
5. Sessions may go on meanwhile. Each is exported as it was when it was read, and has all that its forks need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from holdfast.core.codec import Value
from holdfast.errors import SessionDamaged, StoreDamaged
from holdfast.ids import SessionId, Tenant, Version
from holdfast.store.operations.lines import EVERY_LINE
from holdfast.store.outcomes import SessionDump
from holdfast.store.rows import SessionRow
from holdfast.store.store import Store
from holdfast.store.transfer import export_lines, import_checks

PAGE = 500
"""How many ids are read at once."""


class Exported(Value):
    """An exported session: its lines, its number, and how many there are."""

    session_id: SessionId
    lines: tuple[bytes, ...]
    done: int
    of: int


class LeftOut(Value):
    """A session that is not exported, because it cannot be read."""

    session_id: SessionId
    why: str


async def export(
    store: Store, tenant: Tenant, only: SessionId | None = None
) -> AsyncIterator[Exported | LeftOut | bytes]:
    """The lines of a file with all sessions of a tenant, or with one session and its past, and with its whole family if
    it is a line of one: a block or a single line at a time, and the sessions that are left out. Raises SessionDamaged if
    that one session or its past cannot be read."""
    ids = await session_ids(store, tenant) if only is None else await _group_of(store, tenant, only)
    yield export_lines.HEADER
    done = 0
    left_out: list[str] = []
    async for dump in dumps(store, tenant, ids):
        if isinstance(dump, LeftOut):
            if dump.session_id == only:
                raise SessionDamaged(dump.session_id, dump.why)
            left_out.append(dump.session_id)
            yield dump
            continue
        done += 1
        block = await asyncio.to_thread(
            tuple[bytes, ...], export_lines.block_of(import_checks.portable(dump))
        )
        yield Exported(session_id=dump.session.id, lines=block, done=done, of=max(done, len(ids)))
    yield export_lines.to_line(export_lines.FileEnd(sessions=done, left_out=tuple(left_out)))


async def _group_of(store: Store, tenant: Tenant, only: SessionId) -> tuple[SessionId, ...]:
    """A session and the other lines of its family: a line alone would be of a family that is not there."""
    row = await store.session(tenant, only)
    if row is None or row.family is None:
        return (only,)
    lines = await store.family_lines(tenant, row.family, limit=EVERY_LINE)
    return (only, *(each.id for each in lines if each.id != only))


async def session_ids(store: Store, tenant: Tenant) -> tuple[SessionId, ...]:
    """Every session of a tenant, by id."""
    found: list[SessionId] = []
    while page := await store.session_ids(tenant, after=found[-1] if found else None, limit=PAGE):
        found += page
    return tuple(found)


async def dumps(
    store: Store,
    tenant: Tenant,
    ids: Iterable[SessionId],
    *,
    tombstones: bool = False,
    broken: Mapping[SessionId, str] = MappingProxyType({}),
) -> AsyncIterator[SessionDump | LeftOut]:
    """The dumps of these sessions and their pasts, each once, a session before its forks. Sessions that are `broken`,
    each with a reason, are left out.

    A deleted session is included only as far as a live one reads it; with `tombstones`, at least its tombstone is, and
    its idempotency keys, so that a retry learns that the session is gone.
    """
    ids = tuple(ids)
    seen: set[SessionId] = set()
    damaged: set[SessionId] = set(broken)
    needs: Needs | None = None
    for each, why in broken.items():
        yield LeftOut(session_id=each, why=why)
    for session_id in (each for each in ids if each not in broken):
        try:
            row = await store.session(tenant, session_id)
        except StoreDamaged as damage:
            damaged.add(session_id)
            yield LeftOut(session_id=session_id, why=damage.why)
            continue
        past = () if row is None else tuple(each.session_id for each in row.lineage)
        is_wanted = row is not None and (row.state == "live" or tombstones)
        for each in (*past, session_id) if is_wanted else ():
            if each in seen:
                continue
            seen.add(each)
            if lost := damaged.intersection(past):
                damaged.add(each)
                yield LeftOut(session_id=each, why=f"it goes on from {min(lost)}, which is damaged")
                continue
            try:
                dump = await store.dump(tenant, each)
            except StoreDamaged as damage:
                damaged.add(each)
                yield LeftOut(session_id=each, why=damage.why)
                continue
            if dump is not None and dump.session.state == "deleted":
                needs = needs or await Needs.of(store, tenant, ids)
                dump = needs.cut(dump, claims=tombstones)
            if dump is not None:
                yield dump


class ReadPast(Value):
    """How far live sessions read a session as their past."""

    version: Version = Version(0)
    length: int = 0
    rev: int = 0


class Needs:
    """How far the live ones among some sessions read the others."""

    def __init__(self) -> None:
        self._reach: dict[SessionId, ReadPast] = {}

    @classmethod
    async def of(cls, store: Store, tenant: Tenant, ids: Iterable[SessionId]) -> Needs:
        needs = cls()
        for each in ids:
            with suppress(StoreDamaged):  # it is not exported, so it needs nothing
                row = await store.session(tenant, each)
                if row is not None and row.state == "live":
                    needs._add(row)
        return needs

    def _add(self, row: SessionRow) -> None:
        for segment in row.lineage:
            known = self._reach.get(segment.session_id, ReadPast())
            self._reach[segment.session_id] = ReadPast(
                version=max(known.version, segment.upto_version),
                length=max(known.length, segment.upto_pos),
                rev=max(known.rev, segment.upto_rev),
            )

    def cut(self, dump: SessionDump, *, claims: bool) -> SessionDump:
        """The part of a deleted session that live sessions read."""
        reach = self._reach.get(dump.session.id, ReadPast())
        return import_checks.remains(
            dump, version=reach.version, length=reach.length, rev=reach.rev, claims=claims
        )
