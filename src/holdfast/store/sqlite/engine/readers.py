"""Readers: they run short functions, each in one read transaction of its own.

1. A function sees one state of the database, the latest durable one when it first reads.
2. No snapshot outlives its function; a log that is being read cannot start over.
3. Reading goes on when the disk is full, and stops when the store is poisoned.
4. SQLite reads what lies behind the end of a file as noughts. So what was read counts only if the file has not been cut:
   no file of ours ever gets shorter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite.engine.jobs import Job, JobQueue, too_late
from holdfast.store.sqlite.faults import described, is_damage, is_fatal, poisoned, translated

T = TypeVar("T")


class SqliteReader:
    """One of the connections that serve a queue of jobs which only read."""

    idle_s: float | None = None

    def __init__(
        self, opener: Callable[[], Connection], queue: JobQueue, path: Path | None = None
    ) -> None:
        self._opener = opener
        self._path = path
        self._bytes = 0 if path is None else path.stat().st_size
        """How long the file was when it was last looked at."""
        self._queue = queue
        self._connection: Connection | None = opener()

    def run(self) -> None:
        """One job, if another reader has not taken it."""
        job = self._queue.take()
        if job is None:
            return
        fatal: str | None = None
        try:
            job.value = self._read(job)
        except Exception as error:
            job.error = translated(error)
            fatal = described(error) if is_fatal(error) else None
        if (cut := self._cut()) is not None:
            job.error, fatal = poisoned(cut), cut
        tell = partial(self._queue.tell, [job])
        if fatal is not None:
            self._queue.health.poison(fatal, tell=tell)
        else:
            tell()

    def _cut(self) -> str | None:
        """How the file was cut, if it was."""
        try:
            size = os.stat(self._path).st_size if self._path is not None else 0
        except FileNotFoundError:
            return None  # the writer finds out
        if size < self._bytes:
            return f"{self._path} was cut while in use"
        self._bytes = size
        return None

    def rest(self) -> None:
        """A reader has nothing to do between jobs."""

    def leave(self) -> None:
        if self._connection is not None:
            self._connection.close(force=True)
            self._connection = None

    def _read(self, job: Job) -> object:
        if job.deadline <= self._queue.clock():
            raise too_late()
        db = self._connection = self._connection or self._open_again()
        try:
            value = read(db, job.work)
        finally:
            left_open = db.txn_state("main") != apsw.SQLITE_TXN_NONE
            if left_open:
                # The job's snapshot would keep the log from starting over. The next job gets a fresh connection.
                self.leave()
        if left_open:
            raise RuntimeError(f"{job.work!r} left a cursor open")
        return value

    def _open_again(self) -> Connection:
        """The file was opened before, so that what SQLite cannot read of it has been damaged since."""
        try:
            return self._opener()
        except StoreUnusable as error:
            if error.__cause__ is not None and is_damage(error.__cause__):
                raise error.__cause__ from None
            raise


def read(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run `work` in one read transaction."""
    try:
        return _read_once(connection, work)
    except apsw.SQLError:
        # After a migration, a connection reads the schema anew. If that read fails on disk, SQLite hides the
        # disk's error and reports "no such table". A second try finds the table, or reports the disk's
        # error, or there really is no such table.
        return _read_once(connection, work)


def _read_once(connection: Connection, work: Callable[[Connection], T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
