"""Connections for callers from other event loops.

A connection belongs to the loop that it was made on. A node's heart beats in a thread with a loop of its own, so that
a busy main loop does not look like a dead process; it gets an engine of its own, with one connection, for as long as
its loop lives.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task

from holdfast.store.postgres.engine import PostgresEngine


class LoopEngines:
    """An engine for each loop that calls: the one at home, or one that lives as long as its loop."""

    def __init__(self, home: PostgresEngine) -> None:
        self._home = home
        self._home_loop = asyncio.get_running_loop()
        self._guests: dict[AbstractEventLoop, tuple[PostgresEngine, Task[None]]] = {}

    def engine(self) -> PostgresEngine:
        """The engine for the running loop."""
        loop = asyncio.get_running_loop()
        if loop is self._home_loop:
            return self._home
        known = self._guests.get(loop)
        if known is None:
            engine = self._home.like(size=1)
            # A loop that is run to its end cancels what is left on it, and waits for it: that is when we leave.
            known = self._guests[loop] = engine, loop.create_task(self._until_the_loop_ends(engine))
        return known[0]

    async def _until_the_loop_ends(self, engine: PostgresEngine) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            del self._guests[asyncio.get_running_loop()]
            await engine.close()
