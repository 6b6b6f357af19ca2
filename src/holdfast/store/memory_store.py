"""The memory home: SQLite's tables in this process, and no thread. For tests, and the main home of the simulation.

Only a long read that gives way ever waits here, so each other operation happens at one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import apsw
from apsw import Connection

from holdfast.errors import StoreClosed
from holdfast.store.sqlite.connection import STATEMENTS_CACHED
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.store import wall_clock_ms
from holdfast.store.steps import Operation, PauseStep, Start, taken_until
from holdfast.store.store import Store

T = TypeVar("T")


class MemoryStore(Store):
    """Conversations in this process, for as long as it lives."""

    def __init__(self, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        db = Connection(":memory:", statementcachesize=STATEMENTS_CACHED)
        db.deserialize("main", _empty())
        db.execute("PRAGMA foreign_keys = ON")
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._db: Connection | None = db
        self._now_ms = now_ms
        self._unchanged = asyncio.Lock()
        """Held by each write, and by a read of one snapshot that is made piece by piece."""

    @property
    def db(self) -> Connection:
        """The database connection, for tests that damage tables; no other code should use it."""
        if self._db is None:
            raise StoreClosed("this store was closed; open another one")
        return self._db

    def run(self, operation: Operation[T]) -> T:
        """Execute the steps of an operation at once."""
        return DRIVER.run(self.db, operation, now_ms=self._now_ms())

    async def _write(self, start: Start[T], *, once: bool = False) -> T:
        async with self._unchanged:
            db = self.db
            db.execute("begin")
            try:
                done = self.run(start())
            except BaseException:
                db.execute("rollback")
                raise
            db.execute("commit")
            return done

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        if not one_moment:
            return self.run(start())
        operation = start()
        async with self._unchanged:
            while True:
                found = self.run(taken_until(PauseStep, operation))
                if not isinstance(found, PauseStep):
                    return found
                await asyncio.sleep(0)

    @property
    def queue_length(self) -> int:
        return 0

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


@cache
def _empty() -> bytes:
    """A database with our tables, and nothing in them."""
    made = Connection(":memory:")
    migrate(made, load_migrations())
    return made.serialize("main")
