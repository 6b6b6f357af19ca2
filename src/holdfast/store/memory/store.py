"""The memory home: SQLite's, on an engine that keeps no file. For tests, and for the simulation, whose main home it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from apsw import Connection

from holdfast.store.memory.engine import MemoryEngine
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.store import SqliteStore, wall_clock_ms
from holdfast.store.steps import Operation, Pausing, Start

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

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        if not one_moment:
            return await super()._read(start)
        operation = start()
        async with self._memory.unchanged:
            while True:
                found = await super()._read(lambda: _piece(operation))
                if not isinstance(found, Pausing):
                    return found
                await asyncio.sleep(0)


def _piece(operation: Operation[T]) -> Operation[T | Pausing]:
    """An operation up to where it gives way, or to its end."""
    came: object = None
    try:
        while True:
            step = operation.send(came)
            if type(step) is Pausing:
                return step
            came = yield step
    except StopIteration as end:
        done: T = end.value
        return done
