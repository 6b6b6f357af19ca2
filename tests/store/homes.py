"""The homes that the contract is run against, and how to do damage to each of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Protocol

from apsw import Connection

from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store.memory_store import MemoryStore
from holdfast.store.postgres.address import DatabaseAddress, parse_address
from holdfast.store.postgres.queries import Bound, compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_writer
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.pgbouncer import shared_port, through
from tests.postgres import shared_database, wipe
from tests.scratch import scratch_folder


class Damage(Protocol):
    """Writes bytes past the store's back, where a bad disk would."""

    async def item(self, tenant: Tenant, session_id: SessionId, pos: int, body: bytes) -> None: ...

    async def record(self, tenant: Tenant, turn_id: TurnId, n: int, records: bytes) -> None: ...

    async def annotation(
        self, tenant: Tenant, session_id: SessionId, rev: int, patch: bytes
    ) -> None: ...

    async def settings(self, tenant: Tenant, session_id: SessionId, settings: bytes) -> None: ...


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

        async def write(work: Callable[[Connection], object]) -> object:
            return work(store.db)

        return SqliteDamage(write)


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────


class SqliteHome:
    name = "sqlite"
    durable = True

    async def open(self, folder: Path, clock: ManualClock) -> Store:
        path = folder / "holdfast.db"
        _begin(path)
        return await SqliteStore.open(path, now_ms=clock.now_ms)

    def damage(self, store: Store) -> Damage:
        assert isinstance(store, SqliteStore)
        return SqliteDamage(store.engine.write)


def _begin(path: Path) -> None:
    if not path.exists():
        path.write_bytes(_empty_file())


@cache
def _empty_file() -> bytes:
    """With our tables, and nothing in them: quicker to copy than to make."""
    with scratch_folder() as folder:
        path = folder / "empty.db"
        made = open_writer(path)
        migrate(made, load_migrations())
        made.close()
        return path.read_bytes()


class SqliteDamage:
    def __init__(self, run: Callable[[Callable[[Connection], object]], Awaitable[object]]) -> None:
        self._run = run

    async def _write(self, statement: str, *values: str | int | bytes) -> None:
        await self._run(lambda db: db.execute(statement, values).fetchall())

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

    async def settings(self, tenant: Tenant, session_id: SessionId, settings: bytes) -> None:
        where = "where tenant = ? and id = ?"
        await self._write(f"update session set settings = ? {where}", settings, tenant, session_id)


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────


class PostgresHome:
    """Databases are dear to make and cheap to wipe, so they are used again by test after test."""

    name = "postgres"
    durable = True

    def __init__(self) -> None:
        self._databases: list[str] = []
        self._taken: dict[Path, str] = {}

    async def open(self, folder: Path, clock: ManualClock) -> Store:
        url = self._taken.get(folder)
        if url is None:
            url = self._taken[folder] = await self._empty_database()
        return await PostgresStore.open(await self._address(url), clock=clock.now_ms)

    async def _address(self, url: str) -> DatabaseAddress:
        return parse_address(url)

    async def _empty_database(self) -> str:
        # Folders of earlier tests are not opened again.
        here = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        if here != self._test:
            self._test = here
            self._taken.clear()
        if len(self._taken) == len(self._databases):
            self._databases.append(await asyncio.to_thread(shared_database))
        url = self._databases[len(self._taken)]
        await wipe(url)
        return url

    _test = ""

    def damage(self, store: Store) -> Damage:
        assert isinstance(store, PostgresStore)
        return PostgresDamage(store)


class PooledHome(PostgresHome):
    """PostgreSQL by way of PgBouncer in transaction mode: nothing outlives a transaction."""

    name = "pgbouncer"

    async def _address(self, url: str) -> DatabaseAddress:
        port = await asyncio.to_thread(shared_port)
        return parse_address(through(url, port) + "?pgbouncer=true")


class PostgresDamage:
    def __init__(self, store: PostgresStore) -> None:
        self._engine = store.engine

    async def settings(self, tenant: Tenant, session_id: SessionId, settings: bytes) -> None:
        values: dict[str, Bound] = {"tenant": tenant, "id": session_id, "settings": settings}
        await self._write("session", "settings", values)

    async def _write(self, table: str, what: str, values: dict[str, Bound]) -> None:
        where = " and ".join(f"{name} = :{name}" for name in values if name != what)
        query = compiled(
            f"damage_{table}", f"update holdfast.{table} set {what} = :{what} where {where}"
        )
        await self._engine.run(lambda db: db.fetch(query, values))

    async def item(self, tenant: Tenant, session_id: SessionId, pos: int, body: bytes) -> None:
        values: dict[str, Bound] = {"tenant": tenant, "session_id": session_id, "pos": pos}
        await self._write("item", "body", {**values, "body": body})

    async def record(self, tenant: Tenant, turn_id: TurnId, n: int, records: bytes) -> None:
        values: dict[str, Bound] = {"tenant": tenant, "turn_id": turn_id, "n": n}
        await self._write("journal", "records", {**values, "records": records})

    async def annotation(
        self, tenant: Tenant, session_id: SessionId, rev: int, patch: bytes
    ) -> None:
        values: dict[str, Bound] = {"tenant": tenant, "session_id": session_id, "rev": rev}
        await self._write("annotation", "patch", {**values, "patch": patch})


HOMES: tuple[Home, ...] = (MemoryHome(), SqliteHome(), PostgresHome())
"""A new home is one more of these."""

WAYS: tuple[Home, ...] = (*HOMES, PooledHome())
"""Other ways to the same homes included; for the contract."""
