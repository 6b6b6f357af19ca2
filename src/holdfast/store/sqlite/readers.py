"""Readers: short functions, each in one read transaction of its own.

1. A function sees one state of the database, the latest durable one when it first reads.
2. No snapshot outlives its function; a log that is being read cannot start over.
3. Reading goes on when the disk is full, and stops when the store is poisoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

import apsw
from apsw import Connection

from holdfast.observe.supervisor import start_thread
from holdfast.store.sqlite.deadlines import too_late
from holdfast.store.sqlite.desk import Clock
from holdfast.store.sqlite.faults import described, is_fatal, poisoned, translated
from holdfast.store.sqlite.health import Health
from holdfast.store.sqlite.jobs import AnyJob, Done, Failed, Inbox, Outcome, Work, deliver, resolve

Opener = Callable[[], Connection]


class Readers(Protocol):
    """Runs functions that only read."""

    inbox: Inbox

    def submit(self, job: AnyJob) -> None:
        """Queue a job. It can be taken back from the inbox until it is begun."""

    async def close(self) -> None:
        """Finish what has queued, and close the connections. Repeating is harmless."""


class Reader:
    """One connection, and the code that is the same for all readers."""

    def __init__(self, opener: Opener, health: Health, clock: Clock) -> None:
        self._opener = opener
        self._health = health
        self._clock = clock
        self._connection = opener()

    def answer(self, job: AnyJob) -> Outcome:
        """Run one job, unless it comes too late."""
        fatal = self._health.fatal
        if fatal is not None:
            return Failed(poisoned(fatal))
        if job.deadline <= self._clock():
            return Failed(too_late())
        outcome = read(self._connection, job.work)
        if isinstance(outcome, Failed) and is_fatal(outcome.error):
            reason = described(outcome.error)
            self._health.poison(reason)
            return Failed(poisoned(reason))
        if self._connection.txn_state("main") != apsw.SQLITE_TXN_NONE:
            # Its snapshot would keep the log from starting over. A fresh connection has none.
            self.close()
            self._connection = self._opener()
            return Failed(RuntimeError(f"{job.work!r} left a cursor open"))
        return outcome if isinstance(outcome, Done) else Failed(translated(outcome.error))

    def close(self) -> None:
        self._connection.close(force=True)


def read(connection: Connection, work: Work) -> Outcome:
    """Run `work` in one read transaction; errors come back as they are."""
    outcome = _read_once(connection, work)
    if isinstance(outcome, Failed) and isinstance(outcome.error, apsw.SQLError):
        # A connection that knows the tables from before a migration looks whether they have changed.
        # If the disk fails it there, SQLite keeps that to itself and says "no such table".
        # Asked again it finds the table, or the disk's error, or there really is none.
        return _read_once(connection, work)
    return outcome


def _read_once(connection: Connection, work: Work) -> Outcome:
    try:
        connection.execute("BEGIN")
        try:
            return Done(work(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except Exception as error:
        return Failed(error)


class ReaderThreads:
    """Some threads with a connection each, around one inbox."""

    def __init__(self, opener: Opener, health: Health, *, count: int, clock: Clock) -> None:
        self.inbox = Inbox()
        self._health = health
        health.when_poisoned(self.inbox.close)
        readers = [Reader(opener, health, clock) for _ in range(count)]
        self._threads = [
            start_thread("holdfast-reader", partial(self._main, reader)) for reader in readers
        ]

    def submit(self, job: AnyJob) -> None:
        self.inbox.put(job)
        if self._health.fatal is not None:
            self._drain()

    async def close(self) -> None:
        self.inbox.close()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _main(self, reader: Reader) -> None:
        try:
            while self.inbox.wait():
                job = self.inbox.take_nowait()
                if job is not None:
                    deliver([(job, reader.answer(job))])
                    del job
        except BaseException as error:
            self._health.poison(described(error))
            self._drain()
            raise
        finally:
            reader.close()

    def _drain(self) -> None:
        reason = self._health.fatal or ""
        while (job := self.inbox.take_nowait()) is not None:
            deliver([(job, Failed(poisoned(reason)))])


class InlineReader:
    """Reads in the event loop's own thread, on its next pass."""

    def __init__(self, opener: Opener, health: Health, *, clock: Clock) -> None:
        self.inbox = Inbox()
        self._reader = Reader(opener, health, clock)

    def submit(self, job: AnyJob) -> None:
        self.inbox.put(job)
        if job.loop is None:
            self._run()
        else:
            job.loop.call_soon(self._run)

    async def close(self) -> None:
        while len(self.inbox):
            self._run()
        self._reader.close()

    def _run(self) -> None:
        if (job := self.inbox.take_nowait()) is not None:
            resolve([(job, self._reader.answer(job))])
