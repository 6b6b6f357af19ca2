"""The memory home: SQLite's, on an engine that keeps no file. For tests, and for the simulation, whose main home it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from apsw import Connection

from holdfast.store.memory.engine import MemoryEngine
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.store import SqliteStore, wall_clock_ms
from holdfast.store.steps import Operation

T = TypeVar("T")


class MemoryStore(SqliteStore):
    """Conversations in this process, for as long as it lives."""

    def __init__(self, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._memory = MemoryEngine()
        super().__init__(cast(Engine, self._memory), now_ms=now_ms)

    @property
    def db(self) -> Connection:
        """The tables themselves. Tests that need damage reach for them; nothing else should."""
        return self._memory.db

    def run(self, operation: Operation[T]) -> T:
        """Take the steps of an operation at once."""
        return DRIVER.run(self.db, operation, now_ms=self._now_ms())
