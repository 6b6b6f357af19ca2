"""The writer: a queue of jobs, one connection, and one sync for all jobs that have queued.

While one batch syncs, the jobs of the next one queue; so there is no timer, and the busier the store is,
the larger its batches are. A lone write costs one sync.

1. A caller gets its result only after the COMMIT of its batch has returned.
2. Jobs can be withdrawn while the writer waits for the write turn; then they begin one by one.
3. Batches are bounded in number of jobs and in time, so that other processes get their turn.
4. Check-points, which copy the log into the database so that it can start over, are made between batches:
   *passive* whenever the log has grown by a step: it waits for no reader and blocks none;
   *truncate* when no job comes and the log has grown large;
   *truncate*, too, when the log has passed a hard bound although passive ones were made: some
   reader or other process always had a page in use. This one waits a moment for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.store.sqlite.connection import BUSY_BACKSTOP_S, identity
from holdfast.store.sqlite.engine.batch import Batch, Transactions
from holdfast.store.sqlite.engine.jobs import Job, JobQueue, too_late
from holdfast.store.sqlite.engine.log_guard import LogGuard
from holdfast.store.sqlite.faults import demand_room, described, is_damage, is_failed_read
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.protection import Protection

PASSIVE: Final = apsw.SQLITE_CHECKPOINT_PASSIVE
TRUNCATE: Final = apsw.SQLITE_CHECKPOINT_TRUNCATE


class Bounds(Struct, frozen=True, kw_only=True):
    """The bounds of a writer's batches, waits and log. Pages are those of the log, of 4 KiB."""

    batch_jobs: int = 512
    """More would hardly share the sync better, and makes the first ones wait."""
    batch_s: float = 0.05
    """No further job is begun in a batch after this, because other processes wait for the write turn."""
    guard_s: float = 1.0
    """For how long after a failed job batches are guarded: failures come in groups, and a client that causes
    many must not make the writer repeat the work of all others."""
    busy_s: float = 5.0
    """How long a job waits for another program to release SQLite's lock before its caller gets an error."""
    close_s: float = 30.0
    """How long closing waits for the write turn if another process keeps it."""
    step_pages: int = 1_000
    """4 MiB: copying it takes milliseconds, and recovery after a crash reads no more than that."""
    idle_pages: int = 4_000
    """16 MiB. A smaller file stays: writing over existing blocks syncs faster than growing."""
    idle_s: float = 1.0
    """After how long without a job the log is cut."""
    hard_pages: int = 16_000
    """64 MiB: from here on readers get slower, and we would rather make writers wait once."""


class Stats(Struct, kw_only=True):
    """The writer at one moment, for gauges."""

    batches: int = 0
    queue_length: int = 0
    checkpoints: int = 0
    log_pages: int = 0


class Writer:
    """Runs the jobs of a queue in batches, makes them durable, and keeps the log short."""

    def __init__(
        self,
        path: Path,
        connection: Connection,
        turn: WriteTurn,
        queue: JobQueue,
        bounds: Bounds,
        protection: Protection,
    ) -> None:
        self.queue = queue
        self.protection = protection
        self.bounds = bounds
        self.stats = Stats()
        self._path = str(path)
        self._file = identity(path)
        self._connection = connection
        self._transactions = Transactions(connection)
        self._log = LogGuard(path, connection)
        self._turn = turn
        self._clock = queue.clock
        self._health = queue.health
        self._guarded_until = -inf
        self._pages_tried = 0
        """How long the log was when a check-point was last made."""
        self._rested = False
        """Whether an idle moment was used for a check-point since the last commit."""
        self._left = False
        connection.set_busy_timeout(round(BUSY_BACKSTOP_S * 1000))
        connection.set_wal_hook(self._note_commit)

    def run(self) -> None:
        """Run one batch of the queued jobs, then check-point the log if needed."""
        late: list[Job] = []
        with self._turn:
            batch = self._transact(late)
        self.stats.batches += 1
        if batch.failed:
            self._guarded_until = self._clock() + self.bounds.guard_s
        told = batch.jobs + late if late else batch.jobs
        if batch.fatal is not None:
            self._health.poison(batch.fatal, tell=partial(self.queue.tell, told))
            return
        self.queue.tell(told)
        if self._health.fatal is None:
            self._checkpoint(idle=False)

    def rest(self) -> None:
        self._checkpoint(idle=not self._rested)
        self._rested = True

    def leave(self) -> None:
        """Close the file; after a failure, without changing it further."""
        if self._left:
            return
        self._left = True
        if self._health.fatal is not None:
            self._connection.close(force=True)
        else:
            with self._turn:
                if self._copy_log(TRUNCATE):
                    # The log is empty: if we are the last, SQLite may remove it.
                    self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
                self._connection.close(force=True)
        self._turn.close()

    # A batch

    def _transact(self, late: list[Job]) -> Batch:
        """Begin, run, commit. It waits for other programs that hold SQLite's lock, but not for ever."""
        batch = Batch(self._transactions, guarded=self._clock() < self._guarded_until)
        try:
            if (reason := self._log.check(self.stats.log_pages)) is not None:
                batch.jobs = self.queue.take_asked_before(inf)
                batch.stop(reason, batch.jobs)
                return batch
            while self.queue.waiting and not batch.jobs and batch.fatal is None:
                try:
                    batch.run(self._take(late))
                except apsw.Error as error:
                    # No transaction, and no job was begun. SQLite has waited for BUSY_BACKSTOP_S in there, so this does
                    # not spin. A job that has just come may still get the lock: each has its own time.
                    is_busy = isinstance(error, apsw.BusyError)
                    asked = self._clock() - self.bounds.busy_s if is_busy else inf
                    batch.jobs = self.queue.take_asked_before(asked)
                    batch.refuse(error, batch.jobs)
            if batch.fatal is None and batch.jobs and not self._still_there():
                batch.stop(self._lost(), batch.jobs)
        except BaseException as error:
            batch.stop(described(error), batch.jobs)
            self.queue.tell(batch.jobs + late)
            raise
        return batch

    def _take(self, late: list[Job]) -> Iterator[Job]:
        """Jobs, one at a time, until the batch is full; jobs past their deadline are added to `late`."""
        clock, take, bounds = self._clock, self.queue.take, self.bounds
        now = clock()
        until = now + bounds.batch_s
        room = bounds.batch_jobs
        while room and now < until and (job := take()) is not None:
            if job.deadline <= now:
                job.error = too_late()
                late.append(job)
                continue
            room -= 1
            yield job
            now = clock()

    def _still_there(self) -> bool:
        """Whether the open file is still the one at its path, on the same device."""
        return identity(self._path) == self._file

    def _lost(self) -> str:
        """What happened to the file, in words. If another one took its place, the log is copied into its own file and
        emptied: else whatever opens the other file next would take the log for that file's."""
        if not os.path.exists(self._path):
            return f"{self._path} was moved or deleted while in use"
        told = f"{self._path} was replaced by another file while in use"
        try:
            self._connection.wal_checkpoint("main", TRUNCATE)
        except apsw.Error as error:
            return f"{told}, and its log could not be emptied ({error}): move {self._path}-wal away"
        return told

    # The log

    def _note_commit(self, connection: Connection, name: str, pages: int) -> int:
        self.stats.log_pages = pages
        self._rested = False
        return apsw.SQLITE_OK

    @property
    def idle_s(self) -> float | None:
        """After how long without a job the log is check-pointed; None if that is not needed."""
        worth_it = not self._rested and self.stats.log_pages >= self.bounds.idle_pages
        return self.bounds.idle_s if worth_it else None

    def _checkpoint(self, *, idle: bool) -> None:
        mode = wanted_checkpoint(
            self.bounds, pages=self.stats.log_pages, tried=self._pages_tried, idle=idle
        )
        if mode == TRUNCATE:
            # It takes SQLite's write lock. Under the write turn, no process of ours waits for that lock.
            with self._turn:
                self._copy_log(TRUNCATE)
        elif mode is not None:
            self._copy_log(mode)

    def _copy_log(self, mode: int) -> bool:
        """Make a check-point; whether all was copied. If not, a later one copies the rest."""
        stats = self.stats
        stats.checkpoints += 1
        self._pages_tried = stats.log_pages
        try:
            try:
                pages, copied = self._connection.wal_checkpoint("main", mode)
            except apsw.IOError as error:
                demand_room(error, self._connection)
                raise
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            # A reader uses the log, another process check-points, or the disk is full. The log keeps everything.
            return False
        except apsw.Error as error:
            reason = f"check-point: {described(error)}"
            if is_damage(error) and not is_failed_read(error):
                self.protection.protect(reason)
            else:
                self._health.poison(reason)
            return False
        if mode == TRUNCATE:
            stats.log_pages = self._pages_tried = 0
        return pages == copied


def wanted_checkpoint(bounds: Bounds, *, pages: int, tried: int, idle: bool) -> int | None:
    """The check-point mode for a log of `pages` that had `tried` pages at the last attempt; None if none is due.

    `idle`: no job comes, and no check-point was tried since the last commit.
    """
    grown = pages - tried if pages >= tried else pages  # fewer than then: it has started over
    if pages >= bounds.hard_pages and grown >= bounds.step_pages:
        return TRUNCATE
    if idle and pages >= bounds.idle_pages:
        return TRUNCATE
    if grown >= bounds.step_pages:
        return PASSIVE
    return None
