"""The engine under the SQLite home of the store: one file, whole functions, durable answers.

    engine = Engine.open(path)
    turn = await engine.write(begin_turn)     # durable when it returns
    page = await engine.read(list_sessions)   # one snapshot
    await engine.close()

1. What `write` returned for survives `kill -9` and power loss.
2. What it raised for left nothing behind; only StorePoisoned means that nobody knows.
3. After a failure that it cannot judge, the engine refuses everything until it is opened anew.
4. Any number of processes may have the file open; a forked child may not use what it inherited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite import gates
from holdfast.store.sqlite.connection import (
    ensure_log,
    has_log,
    open_reader,
    open_writer,
    unusable,
)
from holdfast.store.sqlite.deadlines import Deadlines, too_late
from holdfast.store.sqlite.desk import Bounds, Clock, Desk, InPassing
from holdfast.store.sqlite.health import Health, OnPoison
from holdfast.store.sqlite.jobs import AnyJob, Inbox, Job, Work
from holdfast.store.sqlite.locks import Liveness, WriteTurn
from holdfast.store.sqlite.readers import InlineReader, Readers, ReaderThreads
from holdfast.store.sqlite.writer import Writer, WriterFactory, WriterThread

T = TypeVar("T")

TIMEOUT_S = 10.0
"""A request that the store has not come to by then is better served by an honest 503."""

COMPANY_S = 0.005
"""How long a write that nobody waits for waits for others: a sync of its own costs as much as theirs."""


class Stats(Struct, frozen=True, kw_only=True):
    """The engine at one moment, for gauges."""

    batches: int
    jobs: int
    failed: int
    largest_batch: int
    queue_length: int
    commit_s: float
    """How long the last COMMIT took."""
    checkpoints: int
    log_pages: int


class Engine:
    """One SQLite file, opened. Use it from any event loop or thread of this process."""

    def __init__(
        self,
        path: Path,
        desk: Desk,
        writer: Writer,
        readers: Readers,
        liveness: Liveness,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        """Engines are made by `open`."""
        self.path = path
        self.liveness = liveness
        """Which nodes' processes live; see `locks.py`."""
        self._desk = desk
        self._health = desk.health
        self._writer = writer
        self._readers = readers
        self._write_deadlines = Deadlines(desk.inbox)
        self._read_deadlines = Deadlines(readers.inbox)
        self._clock = clock
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
        writer: WriterFactory = WriterThread,
        readers: int = 2,
        timeout_s: float = TIMEOUT_S,
        bounds: Bounds | None = None,
        clock: Clock = time.monotonic,
        vfs: str | None = None,
    ) -> Engine:
        """Open the file, or make it; blocks for a moment, longer if a crash left a log to recover.

        Raises StoreUnusable, with the way out, where a database cannot live.
        `on_poison` is called once if the engine has to stop; see `Health`.
        `readers=0` reads in the caller's thread; together with `writer=InlineWriter` there are
        no threads at all. `clock` is monotonic and decides about deadlines and bounds.
        """
        if str(path) in ("", ":memory:"):
            raise StoreUnusable("the store needs a file; for tests there is the memory store")
        path = Path(path).resolve()
        gates.check_all(path)
        health = Health(str(path), on_poison=on_poison)
        with ExitStack() as undo:
            turn = WriteTurn(beside(path, "writer"))
            undo.callback(turn.close)
            liveness = Liveness(beside(path, "live"))
            undo.callback(liveness.close)
            connection = _open_with_log(path, turn, vfs)
            undo.callback(connection.close, force=True)
            desk = Desk(path, connection, turn, health, bounds=bounds or Bounds(), clock=clock)
            opener = partial(open_reader, path, vfs=vfs)
            pool: Readers = (
                ReaderThreads(opener, health, count=readers, clock=clock)
                if readers
                else InlineReader(opener, health, clock=clock)
            )
            engine = cls(path, desk, writer(desk), pool, liveness, clock, timeout_s)
            undo.pop_all()
        return engine

    def write(
        self, work: Callable[[Connection], T], *, timeout_s: float | None = None
    ) -> Coroutine[None, None, T]:
        """Run `work` in a transaction and return its value once that is durable.

        What `work` raises comes back, and nothing that it wrote remains. It may be run more than
        once: see `jobs.Work` for what it may do.

        Raises StoreUnavailable if it was not begun within `timeout_s`, and StorageFull if there
        is no room; both mean that nothing changed. Cancelling takes it back if it was not begun;
        after that the outcome stands, whether anybody waits for it or not.
        """
        return self._ask(
            self._writer.submit, self._desk.inbox, self._write_deadlines, work, timeout_s
        )

    def write_along(self, work: Callable[[Connection], T]) -> Coroutine[None, None, T]:
        """`write`, for what nobody waits for: it goes along with whatever is written next.

        If nothing is for `COMPANY_S`, it is written alone. Like every write it comes after those
        that were asked for before it, and before those that are asked for after it.
        """
        return self._ask(
            self._submit_along, self._desk.inbox, self._write_deadlines, work, timeout_s=None
        )

    def _submit_along(self, job: AnyJob) -> None:
        self._writer.submit(job, wake=False)
        assert job.loop is not None
        job.loop.call_later(COMPANY_S, self._desk.inbox.wake)

    def read(
        self, work: Callable[[Connection], T], *, timeout_s: float | None = None
    ) -> Coroutine[None, None, T]:
        """Run `work`, which only reads and is brief, on one snapshot; return its value.

        It sees all that was durable before the call.
        """
        return self._ask(
            self._readers.submit, self._readers.inbox, self._read_deadlines, work, timeout_s
        )

    def write_wait(self, work: Callable[[Connection], T], *, timeout_s: float | None = None) -> T:
        """`write`, for a thread without an event loop: blocks until the outcome is known."""
        self._health.check()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        future: ThreadFuture[T] = ThreadFuture()
        asked = self._clock()
        job = Job(work, future, loop=None, asked=asked, deadline=asked + timeout_s)
        self._writer.submit(cast("AnyJob", job))
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if not future.done() and self._desk.inbox.withdraw(cast("AnyJob", job)):
                raise too_late() from None
        return future.result()

    def in_passing(
        self, work: Work, *, every_s: float, settled: Callable[[Exception | None], None]
    ) -> None:
        """Run `work` at the start of a batch, whenever there is one and `every_s` have passed.

        `settled` is told in the writer's thread: None if it is durable, otherwise the error.
        """
        self._health.check()
        rider = InPassing(work=work, every_s=every_s, settled=settled)
        # Replaced, not appended to: the writer may be going through the old list.
        self._desk.in_passing = [*self._desk.in_passing, rider]

    @property
    def stats(self) -> Stats:
        """What has happened so far, and how much waits."""
        tally = self._desk.tally
        return Stats(
            batches=tally.batches,
            jobs=tally.jobs,
            failed=tally.failed,
            largest_batch=tally.largest_batch,
            queue_length=len(self._desk.inbox),
            commit_s=tally.commit_s,
            checkpoints=tally.checkpoints,
            log_pages=self._desk.log.pages,
        )

    def check(self) -> None:
        """Raise what a call would get at once: StoreClosed or StorePoisoned, or nothing."""
        self._health.check()

    async def close(self) -> None:
        """Finish what has queued, copy the log into the database, and let go of everything.

        New calls are refused from now on. Closing again is harmless, and in a forked child it
        does nothing.
        """
        if self._health.forked:
            return
        self._health.close()
        await self._readers.close()  # first: a reader would keep the log from being emptied
        await self._writer.close()
        loop = asyncio.get_running_loop()
        self._write_deadlines.close(loop)
        self._read_deadlines.close(loop)
        self.liveness.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.path} queue={len(self._desk.inbox)} jobs={self._desk.tally.jobs}>"

    async def _ask(
        self,
        submit: Callable[[AnyJob], None],
        inbox: Inbox,
        deadlines: Deadlines,
        work: Callable[[Connection], T],
        timeout_s: float | None,
    ) -> T:
        self._health.check()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        now, asked = loop.time(), self._clock()
        made = Job(
            work,
            future,
            loop=loop,
            asked=asked,
            deadline=asked + timeout_s,
            expires=now + timeout_s,
        )
        job = cast("AnyJob", made)
        submit(job)
        deadlines.watch(loop, job.expires, now)
        try:
            return await future
        except asyncio.CancelledError:
            inbox.withdraw(job)
            raise
        finally:
            del future, made, job  # which hold what is raised here, and with it this frame


def beside(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}-{name}")


def _open_with_log(path: Path, turn: WriteTurn, vfs: str | None) -> Connection:
    connection = open_writer(path, vfs=vfs)
    try:
        if not has_log(connection):
            turn.wait(timeout_s=TIMEOUT_S)
            try:
                ensure_log(connection)
            finally:
                turn.release()
    except apsw.Error as error:
        connection.close(force=True)
        raise unusable(path, error) from error
    except BaseException:
        connection.close(force=True)
        raise
    return connection
