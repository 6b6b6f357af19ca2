"""The engine of the SQLite home: it runs functions on one file, and makes what they write durable.

    engine = SqliteEngine.open(path)
    turn = await engine.write(begin_turn)     # durable when it returns
    page = await engine.read(list_sessions)   # one snapshot
    await engine.close()

1. When `write` has returned, its changes survive `kill -9` and power loss.
2. When `write` has raised, it has changed nothing; only after StorePoisoned the outcome is not known.
3. A damaged page stops only the work that needs it. If all writes need it, the file is read-only until it was
   verified (`protection.py`).
4. After a failure that it cannot judge, the engine refuses everything until it is opened anew.
5. Any number of processes may have the file open; a forked child may not use what it inherited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite import location_checks
from holdfast.store.sqlite.connection import open_reader, open_with_log, told_as_ours
from holdfast.store.sqlite.engine.health import EngineHealth, OnPoison
from holdfast.store.sqlite.engine.jobs import Clock, JobQueue
from holdfast.store.sqlite.engine.readers import SqliteReader
from holdfast.store.sqlite.engine.writer import Bounds, Stats, Writer
from holdfast.store.sqlite.locks import Liveness, WriteTurn
from holdfast.store.sqlite.pages.file_length import check_whole
from holdfast.store.sqlite.protection import Protection

T = TypeVar("T")

TIMEOUT_S = 10.0
"""A request that the store has not begun by then is better served by an honest 503."""

COMPANY_S = 0.005
"""How long a write that no caller waits for waits to share another write's sync: a sync of its own costs as much."""


class SqliteEngine:
    """One SQLite file, opened. Use it from any event loop of this process."""

    def __init__(
        self,
        path: Path,
        writer: Writer,
        reads: JobQueue,
        liveness: Liveness,
        *,
        timeout_s: float,
    ) -> None:
        """Engines are made by `open`."""
        self.path = path
        self.liveness = liveness
        """Tells which nodes' processes are alive; see `locks.py`."""
        self.protection = writer.protection
        self._writer = writer
        self._writes = writer.queue
        self._reads = reads
        self._timeout_s = timeout_s

    @property
    def queue_length(self) -> int:
        return self.stats.queue_length

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        on_poison: OnPoison | None = None,
        inline: bool = False,
        readers: int = 2,
        timeout_s: float = TIMEOUT_S,
        bounds: Bounds | None = None,
        clock: Clock = time.monotonic,
        vfs: str | None = None,
    ) -> SqliteEngine:
        """Open the file, or make it; blocks for a moment, longer if a crash left a log to recover.

        Raises StoreUnusable, with the way out, where a database cannot live.
        `on_poison` is called once if the engine has to stop; see `EngineHealth`.
        `inline` is for simulations and for commands that do one thing: there are no threads, work runs in the event
        loop's own, and waiting for the write turn blocks it. `clock` is monotonic; deadlines and bounds use it.
        """
        if str(path) in ("", ":memory:"):
            raise StoreUnusable("the store needs a file; for tests there is the memory store")
        path = Path(path).resolve()
        location_checks.check_all(path)
        health = EngineHealth(str(path), on_poison=on_poison)
        with ExitStack() as undo:
            turn = WriteTurn(beside(path, "writer"))
            undo.callback(turn.close)
            liveness = Liveness(beside(path, "live"))
            undo.callback(liveness.close)
            connection = open_with_log(path, turn, timeout_s=TIMEOUT_S, vfs=vfs)
            undo.callback(connection.close, force=True)
            with told_as_ours(path):
                check_whole(connection, path)
            writes, reads = (JobQueue(health, clock, inline=inline) for _ in range(2))
            protection = Protection(beside(path, "damage"))
            writer = Writer(path, connection, turn, writes, bounds or Bounds(), protection)
            opener = partial(open_reader, path, vfs=vfs)
            crew = [SqliteReader(opener, reads, path) for _ in range(1 if inline else readers)]
            undo.pop_all()
        writes.start("holdfast-writer", writer)
        for reader in crew:
            reads.start("holdfast-reader", reader)
        return cls(path, writer, reads, liveness, timeout_s=timeout_s)

    def write(
        self, work: Callable[[Connection], T], *, timeout_s: float | None = None
    ) -> Coroutine[None, None, T]:
        """Run `work` in a transaction and return its value once that is durable.

        What `work` raises comes back, and nothing that it wrote remains. It may be run more than
        once: see `jobs.Work` for what it may do.

        Raises StoreUnavailable if it was not begun within `timeout_s`, StorageFull if there is no room, and
        StoreReadOnly if the file is damaged; all mean that nothing changed. Cancelling withdraws the work if it was not
        begun; after that the outcome stands, whether its caller waits for it or not.
        """
        if self.protection.reason is not None:
            self.protection.demand_writable()
        return self._writes.ask(work, self._timeout_s if timeout_s is None else timeout_s)

    def write_along(self, work: Callable[[Connection], T]) -> Coroutine[None, None, T]:
        """`write`, for work that no caller waits for: it shares the transaction of the next write.

        If there is none for `COMPANY_S`, it is written alone. Like every write it keeps its place in the order of
        the calls.
        """
        if self.protection.reason is not None:
            self.protection.demand_writable()
        return self._writes.ask(work, self._timeout_s, company_s=COMPANY_S)

    def read(
        self, work: Callable[[Connection], T], *, timeout_s: float | None = None
    ) -> Coroutine[None, None, T]:
        """Run `work`, which only reads and is brief, on one snapshot; return its value.

        It sees all that was durable before the call.
        """
        return self._reads.ask(work, self._timeout_s if timeout_s is None else timeout_s)

    @property
    def stats(self) -> Stats:
        """Counts of the work that is done and that waits."""
        return msgspec.structs.replace(self._writer.stats, queue_length=len(self._writes.waiting))

    async def close(self) -> None:
        """Finish the queued work, copy the log into the database, and close all files.

        New calls are refused from now on. Closing again is harmless, and in a forked child it
        does nothing. If another process keeps the write turn, the writer's thread closes its files when it gets it.
        """
        health = self._writes.health
        if health.forked:
            return
        health.close()
        await self._reads.close()  # first: a reader would keep the log from being emptied
        await self._writes.close(timeout_s=self._writer.bounds.close_s)
        self.liveness.close()

    def __repr__(self) -> str:
        return f"<Engine {self.path} queue={len(self._writes.waiting)}>"


def beside(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}-{name}")
