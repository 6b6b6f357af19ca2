"""The homes that the contract is run against, and how to do damage to each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store.base import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import ManualClock


class Damage(Protocol):
    """Writes bytes past the store's back, where a bad disk would."""

    async def item(self, tenant: Tenant, session_id: SessionId, pos: int, body: bytes) -> None: ...

    async def record(self, tenant: Tenant, turn_id: TurnId, n: int, records: bytes) -> None: ...

    async def annotation(
        self, tenant: Tenant, session_id: SessionId, rev: int, patch: bytes
    ) -> None: ...


class Home(Protocol):
    """One implementation of the store."""

    name: str
    durable: bool
    """Whether what was written outlives the object that wrote it."""

    async def open(self, folder: Path, clock: ManualClock) -> Store:
        """A store in this folder: a new one, or what an earlier one has left there."""
        ...

    def damage(self, store: Store) -> Damage: ...


# ── memory ───────────────────────────────────────────────────────────────────────────────────


class MemoryHome:
    name = "memory"
    durable = False

    async def open(self, folder: Path, clock: ManualClock) -> Store:
        return MemoryStore(now_ms=clock.now_ms)

    def damage(self, store: Store) -> Damage:
        assert isinstance(store, MemoryStore)
        return MemoryDamage(store)


class MemoryDamage:
    def __init__(self, store: MemoryStore) -> None:
        self._tables = store.tables

    async def item(self, tenant: Tenant, session_id: SessionId, pos: int, body: bytes) -> None:
        rows = self._tables.items[tenant, session_id]
        rows[:] = (
            msgspec.structs.replace(row, body=body) if row.pos == pos else row for row in rows
        )

    async def record(self, tenant: Tenant, turn_id: TurnId, n: int, records: bytes) -> None:
        rows = self._tables.journals[tenant, turn_id]
        rows[:] = (
            msgspec.structs.replace(row, records=records) if row.n == n else row for row in rows
        )

    async def annotation(
        self, tenant: Tenant, session_id: SessionId, rev: int, patch: bytes
    ) -> None:
        rows = self._tables.annotations[tenant, session_id]
        rows[:] = (
            msgspec.structs.replace(row, patch=patch) if row.rev == rev else row for row in rows
        )


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────


class SqliteHome:
    name = "sqlite"
    durable = True

    async def open(self, folder: Path, clock: ManualClock) -> Store:
        return await SqliteStore.open(folder / "holdfast.db", now_ms=clock.now_ms)

    def damage(self, store: Store) -> Damage:
        assert isinstance(store, SqliteStore)
        return SqliteDamage(store)


class SqliteDamage:
    def __init__(self, store: SqliteStore) -> None:
        self._engine = store.engine

    async def _write(self, statement: str, *values: str | int | bytes) -> None:
        await self._engine.write(lambda db: db.execute(statement, values).fetchall())

    async def item(self, tenant: Tenant, session_id: SessionId, pos: int, body: bytes) -> None:
        where = "where tenant = ? and session_id = ? and pos = ?"
        await self._write(f"update item set body = ? {where}", body, tenant, session_id, pos)

    async def record(self, tenant: Tenant, turn_id: TurnId, n: int, records: bytes) -> None:
        where = "where tenant = ? and turn_id = ? and n = ?"
        await self._write(f"update journal set records = ? {where}", records, tenant, turn_id, n)

    async def annotation(
        self, tenant: Tenant, session_id: SessionId, rev: int, patch: bytes
    ) -> None:
        where = "where tenant = ? and session_id = ? and rev = ?"
        await self._write(
            f"update annotation set patch = ? {where}", patch, tenant, session_id, rev
        )


HOMES: tuple[Home, ...] = (MemoryHome(), SqliteHome())
"""A new home is one more of these."""
