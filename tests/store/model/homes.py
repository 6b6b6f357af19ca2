"""Every home of the store, driven without threads, all of them at once and by the same clock."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from apsw import Connection

from holdfast.errors import HoldfastError
from holdfast.ids import NodeId
from holdfast.store.base import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.migrate import load_migrations, migrate
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.tables import node_rows
from holdfast.store.sqlite.writer import InlineWriter
from holdfast.testing.clock import ManualClock

T = TypeVar("T")

MEMORY, SQLITE = "memory", "sqlite"


class Homes:
    """A memory store and a SQLite store that are told the same things. Obtained by `open_homes`."""

    def __init__(self, engine: Engine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner
        self.renew()

    def renew(self) -> None:
        """Begin anew: empty, at noon."""
        self.clock = ManualClock()
        self.run(self._engine.write(_wipe))
        self._sqlite = SqliteStore(self._engine, now_ms=self.clock.now_ms)
        self._memory = MemoryStore(now_ms=self.clock.now_ms)
        self.stores: dict[str, Store] = {MEMORY: self._memory, SQLITE: self._sqlite}

    def run(self, asked: Awaitable[T]) -> T:
        return self._runner.get_loop().run_until_complete(asked)

    def each(self, ask: Callable[[Store], Awaitable[T]]) -> dict[str, T]:
        """The same question to every home."""
        return {name: self.run(ask(store)) for name, store in self.stores.items()}

    def tried(self, ask: Callable[[Store], Awaitable[object]]) -> dict[str, object]:
        """What every home answers, or the kind of error that it raises."""
        return {name: self.run(_tried(ask(store))) for name, store in self.stores.items()}

    def kill(self, node: NodeId) -> None:
        """The process of this node dies. The kernel says so to SQLite; memory dies with its process."""
        self.run(self._memory.resign(node))
        row = self.run(self._engine.read(lambda db: node_rows.one(db, "node", node_id=node)))
        if row is not None:
            self._engine.liveness.release(row.slot)


async def _tried(asked: Awaitable[object]) -> object:
    try:
        return await asked
    except HoldfastError as error:
        return type(error)


def _wipe(db: Connection) -> None:
    """No row is left. Quicker than another file, and node slots are never handed out twice."""
    tables = "select name from pragma_table_list where type in ('table', 'virtual')"
    for (name,) in db.execute(f"{tables} and name not like 'sqlite_%'").fetchall():
        db.execute(f'delete from "{name}"')


@contextmanager
def open_homes() -> Iterator[Homes]:
    # Nothing is checked here that a sync could help, so the fastest place will do.
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as directory, asyncio.Runner() as runner:
        engine = Engine.open(Path(directory) / "store.db", writer=InlineWriter, readers=0)
        loop = runner.get_loop()
        try:
            loop.run_until_complete(engine.write(partial(migrate, migrations=load_migrations())))
            yield Homes(engine, runner)
        finally:
            loop.run_until_complete(engine.close())
