"""The writer's desk: a queue of jobs, one connection, and one sync for all that have queued.

While one batch syncs, the next one gathers; so there is no timer, and the busier the store is,
the larger its batches are. A lone write costs one sync.

1. A caller is told of success only after the COMMIT of its batch has returned.
2. Jobs wait, and may be withdrawn, while we wait for the write turn; they begin one by one.
3. Batches are bounded in number and time, so that other processes get their turn.
4. Check-points are made between batches.

No thread is made here: `writer.py` decides who runs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import apsw
from apsw import Connection
from msgspec import Struct, field

from holdfast.store.sqlite import checkpoint
from holdfast.store.sqlite.batch import Batch, run_batch
from holdfast.store.sqlite.connection import BUSY_BACKSTOP_S, identity
from holdfast.store.sqlite.deadlines import too_late
from holdfast.store.sqlite.faults import described, is_fatal, poisoned, translated
from holdfast.store.sqlite.health import Health
from holdfast.store.sqlite.jobs import Answer, AnyJob, Failed, Inbox, Work, deliver
from holdfast.store.sqlite.locks import WriteTurn

Clock = Callable[[], float]


class Bounds(Struct, frozen=True, kw_only=True):
    """What keeps a writer considerate."""

    batch_jobs: int = 512
    """More would hardly share the sync better, and makes the first ones wait."""
    batch_s: float = 0.05
    """No further job is begun in a batch after this; other processes wait for their turn."""
    guard_s: float = 1.0
    """For so long after a job has failed, batches are guarded: failures come in company, and somebody who
    causes many must not have everybody's work done twice."""
    busy_s: float = 5.0
    """How long a job waits for a stranger to give SQLite's lock back before its caller is told."""
    close_s: float = 30.0
    """How long closing waits for a turn that another process does not give back."""
    checkpoint: checkpoint.Policy = checkpoint.Policy()


class InPassing(Struct, kw_only=True):
    """Work that rides along at the start of a batch when it is due, for the price of a statement.

    It never causes a batch. `settled` hears what became of it, after the commit, in the thread
    that writes; None means that it is durable. If it failed, the next batch tries again.
    """

    work: Work
    every_s: float
    settled: Callable[[Exception | None], None]
    due: float = float("-inf")


class Tally(Struct):
    """What the writer has done so far."""

    batches: int = 0
    jobs: int = 0
    failed: int = 0
    largest_batch: int = 0
    commit_s: float = 0.0
    """How long the last COMMIT took."""
    checkpoints: int = 0


class _Taken(Struct):
    """What a batch took: riders first, then jobs; and those that came too late to run."""

    riders: list[InPassing] = field(default_factory=list)
    jobs: list[AnyJob] = field(default_factory=list)
    late: list[AnyJob] = field(default_factory=list)


class Desk:
    """Everything between a queue of jobs and a durable file. Runs in one thread at a time."""

    def __init__(
        self,
        path: Path,
        connection: Connection,
        turn: WriteTurn,
        health: Health,
        *,
        bounds: Bounds,
        clock: Clock = time.monotonic,
    ) -> None:
        self.inbox = Inbox()
        self.bounds = bounds
        self.health = health
        self.tally = Tally()
        self.log = checkpoint.Log(connection)
        self.in_passing: list[InPassing] = []
        self.deliver: Callable[[list[Answer]], None] = deliver
        self._path = os.fspath(path)
        self._file = identity(path)
        self._connection = connection
        self._turn = turn
        self._clock = clock
        self._guarded_until = float("-inf")
        self._left = False
        connection.set_busy_timeout(round(BUSY_BACKSTOP_S * 1000))
        health.when_poisoned(self._refuse_waiting)

    @property
    def standing(self) -> bool:
        """False once the store is poisoned: then nothing more is written."""
        return self.health.fatal is None

    @property
    def idle_in_s(self) -> float | None:
        """How long a pause makes an idle moment that the log could use; None if it needs none."""
        policy = self.bounds.checkpoint
        worth_it = not self.log.rested and self.log.pages >= policy.idle_pages
        return policy.idle_s if worth_it else None

    def accept(self, job: AnyJob, *, wake: bool = True) -> None:
        """Queue `job`. If the store is poisoned in this moment, the job is refused, not lost."""
        self.inbox.put(job, wake=wake)
        if not self.standing:
            self._refuse_waiting()

    def run(self) -> None:
        """One batch of what has queued, and the housekeeping after it."""
        taken = _Taken()
        try:
            with self._turn:
                batch = self._transact(taken)
        except BaseException as error:
            self.deliver(_refusals(taken.jobs + taken.late, described(error)))
            raise
        if batch.fatal is not None:
            self.health.poison(batch.fatal, tell=lambda: self._settle(batch, taken))
            return
        self._settle(batch, taken)
        if self.standing:
            self._checkpoint(idle=False)

    def rest(self) -> None:
        """Nobody has written for a while."""
        self._checkpoint(idle=True)
        self.log.rested = True

    def leave(self) -> None:
        """Let go of the file; after a failure, without touching it further."""
        if self._left:
            return
        self._left = True
        if self.standing:
            with self._turn:
                if self._copy_log(checkpoint.Mode.TRUNCATE):
                    # The log is empty: if we are the last, SQLite may remove it.
                    self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
                self._connection.close(force=True)
        else:
            self._connection.close(force=True)
        self._turn.close()

    # A batch

    def _transact(self, taken: _Taken) -> Batch:
        """Begin, run, commit. Waits for strangers who hold SQLite's lock, but not for ever."""
        while len(self.inbox):
            try:
                guarded = self._clock() < self._guarded_until
                batch = run_batch(self._connection, self._take(taken), guarded=guarded)
            except apsw.BusyError as error:
                # SQLite has waited for BUSY_BACKSTOP_S in there, so this does not spin. A job that has just come
                # may still get the lock: each has its own time.
                taken.jobs = self.inbox.take_asked_before(self._clock() - self.bounds.busy_s)
                if taken.jobs:
                    return _failed(error, taken)
            except apsw.Error as error:
                taken.jobs = self.inbox.take_asked_before(inf)
                return _failed(error, taken)
            else:
                if batch.fatal is None and not self._still_there():
                    batch = batch.stopped(f"{self._path} was moved or deleted while in use")
                return batch
        return Batch([])

    def _take(self, taken: _Taken) -> Iterator[Work]:
        """Jobs, one at a time, until the batch is full; those whose time is up are set aside."""
        now = self._clock()
        until = now + self.bounds.batch_s
        for rider in self.in_passing:
            if now >= rider.due:
                taken.riders.append(rider)
                yield rider.work
        room = self.bounds.batch_jobs
        while room and now < until and (job := self.inbox.take_nowait()) is not None:
            if job.deadline <= now:
                taken.late.append(job)
                continue
            room -= 1
            taken.jobs.append(job)
            yield job.work
            now = self._clock()

    def _still_there(self) -> bool:
        """Whether the file that we write to is the one that others will find."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _settle(self, batch: Batch, taken: _Taken) -> None:
        """Tell everybody, outside the turn."""
        aboard = len(taken.riders)
        answers: list[Answer] = list(zip(taken.jobs, batch.outcomes[aboard:], strict=True))
        self._count(batch, answers)
        if any(type(outcome) is Failed for outcome in batch.outcomes):
            self._guarded_until = self._clock() + self.bounds.guard_s
        answers += [(job, Failed(too_late())) for job in taken.late]
        if answers:
            self.deliver(answers)
        for rider, outcome in zip(taken.riders, batch.outcomes[:aboard], strict=True):
            if isinstance(outcome, Failed):
                rider.settled(outcome.error)
            else:
                rider.due = self._clock() + rider.every_s
                rider.settled(None)

    def _count(self, batch: Batch, answers: list[Answer]) -> None:
        tally = self.tally
        tally.batches += 1
        tally.jobs += len(answers)
        tally.failed += sum(type(outcome) is Failed for _, outcome in answers)
        tally.largest_batch = max(tally.largest_batch, len(answers))
        tally.commit_s = batch.commit_s

    def _refuse_waiting(self) -> None:
        """The store is poisoned: tell all who wait, and let the thread end. From any thread."""
        waiting: list[AnyJob] = []
        while (job := self.inbox.take_nowait()) is not None:
            waiting.append(job)
        deliver(_refusals(waiting, self.health.fatal or ""))
        self.inbox.close()

    # The log

    def _checkpoint(self, *, idle: bool) -> None:
        log = self.log
        mode = checkpoint.wanted(
            self.bounds.checkpoint, pages=log.pages, seen=log.seen, idle=idle and not log.rested
        )
        if mode is checkpoint.Mode.TRUNCATE:
            # It takes SQLite's write lock. Under the turn, no process of ours meets that.
            with self._turn:
                self._copy_log(mode)
        elif mode is not None:
            self._copy_log(mode)

    def _copy_log(self, mode: checkpoint.Mode) -> bool:
        """Make a check-point; whether all was copied. If not, there will be a next time."""
        self.tally.checkpoints += 1
        try:
            return self.log.run(mode)
        except apsw.Error as error:
            self.health.poison(f"check-point: {described(error)}")
            return False


def _failed(error: apsw.Error, taken: _Taken) -> Batch:
    """No transaction can be had: nothing was begun, and these are told."""
    fatal = described(error) if is_fatal(error) else None
    return Batch([Failed(translated(error)) for _ in taken.riders + taken.jobs], fatal)


def _refusals(jobs: list[AnyJob], reason: str) -> list[Answer]:
    return [(job, Failed(poisoned(reason))) for job in jobs]
