"""Homes of the store, driven without threads, to be held against the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from apsw import Connection

from holdfast.errors import HoldfastError
from holdfast.ids import NodeId
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sql.tables import NODES
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.steps import get
from holdfast.store.store import Store
from holdfast.testing.clock import ManualClock
from tests.postgres import LATER_MS, shared_database, wipe
from tests.scratch import scratch_folder

T = TypeVar("T")

SQLITE, POSTGRES = "sqlite", "postgres"


class Homes:
    """A home that is told the same things as the model. Obtained by `open_homes`."""

    def __init__(self, home: ModelledHome, runner: asyncio.Runner) -> None:
        self._home = home
        self._runner = runner
        self.renew()

    def renew(self) -> None:
        """Begin anew: empty, at noon."""
        self.clock = ManualClock()
        self.stores: dict[str, Store] = {self._home.name: self.run(self._home.renewed(self.clock))}
        self.each(lambda store: store.prune(limit=0))  # it has looked at its clock

    def run(self, asked: Awaitable[T]) -> T:
        return self._runner.get_loop().run_until_complete(asked)

    def each(self, ask: Callable[[Store], Awaitable[T]]) -> dict[str, T]:
        """The same question to every home."""
        return {name: self.run(ask(store)) for name, store in self.stores.items()}

    def tried(self, ask: Callable[[Store], Awaitable[object]]) -> dict[str, object]:
        """What every home answers, or the kind of error that it raises."""
        return {name: self.run(_tried(ask(store))) for name, store in self.stores.items()}

    def kill(self, node: NodeId) -> None:
        """The process of this node dies, and everybody knows at once."""
        self.run(self._home.kill(node))


class ModelledHome(Protocol):
    """A home that is held against the model."""

    name: str

    async def renewed(self, clock: ManualClock) -> Store:
        """The store, emptied, with this clock."""
        ...

    async def kill(self, node: NodeId) -> None: ...


class SqliteHome:
    name = SQLITE

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    async def renewed(self, clock: ManualClock) -> Store:
        await self._engine.write(_wipe)
        return SqliteStore(self._engine, now_ms=clock.now_ms)

    async def kill(self, node: NodeId) -> None:
        """The kernel says so."""
        row = await self._engine.read(lambda db: DRIVER.run(db, get(NODES, node)))
        if row is not None:
            self._engine.liveness.release(row.slot)


class PostgresHome:
    name = POSTGRES

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self._store = store

    async def renewed(self, clock: ManualClock) -> Store:
        await wipe(self._url)
        self._store.engine.clock = clock.now_ms
        return self._store

    async def kill(self, node: NodeId) -> None:
        """There is no kernel that all machines share, so somebody has to say it."""
        await self._store.resign(node)


async def _tried(asked: Awaitable[object]) -> object:
    try:
        return await asked
    except HoldfastError as error:
        return type(error)


def _wipe(db: Connection) -> None:
    """No row is left. Quicker than another file, and node slots are never handed out twice."""
    tables = "select name from pragma_table_list where type in ('table', 'virtual')"
    for (name,) in db.execute(f"{tables} and name not like 'sqlite_%'").fetchall():
        if name != "horizon":
            db.execute(f'delete from "{name}"')
    # The store's clock begins where the test's does.
    db.execute(f"update horizon set seen_ms = {LATER_MS}, ran_ms = 0, leaps = cast('[]' as blob)")


@contextmanager
def open_homes(home: str = SQLITE) -> Iterator[Homes]:
    with _with_postgres() if home == POSTGRES else _with_sqlite() as homes:
        yield homes


@contextmanager
def _with_postgres() -> Iterator[Homes]:
    url = shared_database()
    with asyncio.Runner() as runner:
        # Its connections stay on one loop, and one caller at a time needs one.
        address = parse_address(f"{url}?pool_size=8&listen=off")
        store = runner.run(PostgresStore.open(address))
        try:
            yield Homes(PostgresHome(url, store), runner)
        finally:
            runner.run(store.close())


@contextmanager
def _with_sqlite() -> Iterator[Homes]:
    with scratch_folder() as directory, asyncio.Runner() as runner:
        engine = SqliteEngine.open(directory / "store.db", inline=True)
        loop = runner.get_loop()
        try:
            loop.run_until_complete(engine.write(partial(migrate, migrations=load_migrations())))
            yield Homes(SqliteHome(engine), runner)
        finally:
            loop.run_until_complete(engine.close())
