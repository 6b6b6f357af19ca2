"""The engine under the memory home: SQLite's tables in this process's memory, and no thread.

Nothing here waits but for a long read that gives way, so each piece of work happens at one moment. The simulation's
main home runs on it.
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
from holdfast.store.sqlite.migrate import load_migrations, migrate

T = TypeVar("T")
Work = Callable[[Connection], T]


@cache
def _empty() -> bytes:
    """A database with our tables, and nothing in them."""
    made = Connection(":memory:")
    migrate(made, load_migrations())
    return made.serialize("main")


class MemoryEngine:
    """One database that ends with its process."""

    def __init__(self) -> None:
        db = Connection(":memory:", statementcachesize=STATEMENTS_CACHED)
        db.deserialize("main", _empty())
        db.execute("PRAGMA foreign_keys = ON")
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._db: Connection | None = db
        self.liveness = Liveness()
        self.queue_length = 0
        self.unchanged = asyncio.Lock()
        """Is held by what writes, and by what reads one moment, piece by piece."""

    @property
    def db(self) -> Connection:
        if self._db is None:
            raise StoreClosed("this store was closed; open another one")
        return self._db

    async def read(self, work: Work[T]) -> T:
        return work(self.db)

    async def write(self, work: Work[T]) -> T:
        async with self.unchanged:
            db = self.db
            db.execute("begin")
            try:
                done = work(db)
            except BaseException:
                db.execute("rollback")
                raise
            db.execute("commit")
            return done

    write_along = write

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


class Liveness:
    """The nodes of one process live as long as each other."""

    def is_held(self, slot: int) -> bool:
        return True

    def hold_nowait(self, slot: int) -> None:
        """It is held already."""

    def release(self, slot: int) -> None:
        """A node that has resigned is known by its row."""
