"""A batch: several jobs, one transaction, one sync. No threads and no queue here.

1. A job that fails leaves nothing behind, and does not affect the others.
2. If the whole transaction is lost because of one job, the others are run again in a new one.
   Jobs are therefore pure: connection in, value out.
3. A job is without error only after the COMMIT that holds it has returned.
4. After an error that we cannot judge, every job of the batch has an error, and the batch says why:
   the engine stops then.
5. SQLite gives up the transaction when a read meets a damaged page. A job that can do without that page goes on in a new
   one, which is its own: what others had written is repeated (2), and the job is run again alone, after them.

Hardly any job fails, so a batch begins without a savepoint for each: they would cost two
statements, and a copy of every page that the job touches. The first that fails costs the
transaction (1, 2); those that had succeeded are repeated, and from there on each has a savepoint,
so that a batch is never repeated for another failure of that kind. A writer that expects failures
asks for a guarded batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.store.sqlite.engine.jobs import Job
from holdfast.store.sqlite.faults import (
    Fatal,
    demand_room,
    described,
    is_damage,
    is_fatal,
    poisoned,
    translated,
)

_REFUSALS = (apsw.FullError, apsw.ConstraintError, apsw.BusyError)
"""The errors by which SQLite refuses BEGIN or COMMIT and has certainly changed nothing.

A full disk fails while the log is written, before the frame that would make it valid; a deferred
constraint before anything is written, and so does a page of another form than its tree's, which the search
index reads in a COMMIT.
"""


class Transactions:
    """A connection that batches write by, and how often a transaction of it was given up or rolled back."""

    __slots__ = ("connection", "cursor", "lost")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.lost = 0
        connection.set_rollback_hook(self._note_rollback)

    def _note_rollback(self) -> None:
        self.lost += 1


class Batch(Struct, eq=False):
    """One transaction."""

    transactions: Transactions
    guarded: bool = False
    """Each job has a savepoint from the start."""
    jobs: list[Job] = []
    """The jobs that were begun, in their order; after `run`, each has its outcome."""
    fatal: str | None = None
    """Why the store must stop, if it must."""
    failed: bool = False
    """Whether a job has failed."""
    later: list[Job] = []
    """Jobs that are run again alone."""

    def run(self, jobs: Iterable[Job]) -> None:
        """Run `jobs` in one transaction and commit it.

        They are taken from the iterable one by one, each just before it runs and none before the
        transaction has begun. If it cannot begin, apsw's error travels and nothing was taken.
        """
        db = self.transactions.connection
        self.transactions.cursor.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                self.jobs.append(job)
                self._run(job)
                # While no job has failed, each was seen to leave the transaction open.
                if self.failed and not db.in_transaction and not self._run_again():
                    return
            self._commit()
            self._run_each_alone(self.later)
        except Fatal as fatal:
            self._abandon()
            self.stop(fatal.reason, self.jobs)
        except BaseException:
            self._abandon()
            raise

    def stop(self, reason: str, jobs: Iterable[Job]) -> None:
        """Give these jobs an unknown outcome, except those that failed before."""
        self.fatal = reason
        self.failed = True
        for job in jobs:
            job.error = job.error or poisoned(reason)

    def refuse(self, error: Exception, jobs: Iterable[Job]) -> None:
        """SQLite has refused the commit, and nothing changed: the jobs that had succeeded fail after all."""
        if is_fatal(error):
            self.fatal = described(error)
        for job in jobs:
            self.failed = True
            job.error = job.error or translated(error)

    def _run(self, job: Job) -> None:
        """Run one job. If it fails without a savepoint, the transaction is lost: it may hold half of the job's work."""
        db, guarded, rollbacks = self.transactions.connection, self.guarded, self.transactions.lost
        if guarded:
            self._control("SAVEPOINT work")
        try:
            try:
                job.value = job.work(db)
            except apsw.IOError as error:
                demand_room(error, db)
                raise
        except Exception as error:
            if is_fatal(error):
                raise Fatal(described(error)) from error
            job.error = translated(error)
            self.failed = True
            if db.in_transaction:
                is_same = guarded and rollbacks == self.transactions.lost
                self._control("ROLLBACK TO work" if is_same else "ROLLBACK")
        else:
            if not db.in_transaction:
                # Committed or rolled back, and the others with it: we cannot tell which.
                raise Fatal(f"{job.work!r} ended the transaction that it was run in")
            if rollbacks != self.transactions.lost:
                guarded = False
                if self._succeeded() != [job]:
                    self.later.append(job)
                    self.failed = True
                    self._control("ROLLBACK")
        if guarded and db.in_transaction:
            self._control("RELEASE work")

    def _succeeded(self) -> list[Job]:
        """The jobs whose work is in the transaction, or was."""
        return [job for job in self.jobs if job.error is None and job not in self.later]

    def _run_again(self) -> bool:
        """The transaction is lost: begin another and repeat what had succeeded in it.

        Ends, because each further loss turns one success into a failure, or leaves one for later.
        False if no transaction could be had; then all have failed and nothing changed.
        """
        db = self.transactions.connection
        self.guarded = True
        while not db.in_transaction:
            try:
                self._control("BEGIN IMMEDIATE", refusable=True)
            except apsw.Error as error:
                self.refuse(error, self.jobs)
                return False
            for job in self._succeeded():
                self._run(job)
                if not db.in_transaction:
                    break
        return True

    def _commit(self) -> None:
        """Make the batch durable. If the commit is refused, each job is tried alone."""
        try:
            self._control("COMMIT", refusable=True)
        except apsw.Error as error:
            if self.transactions.connection.in_transaction:
                self._control("ROLLBACK")
            succeeded = self._succeeded()
            if len(succeeded) > 1:
                self._run_each_alone(succeeded)
            else:
                self.refuse(error, succeeded)

    def _run_each_alone(self, jobs: list[Job]) -> None:
        """One of them asks for too much, or has lost the transaction. Alone, each gets its own answer."""
        for index, job in enumerate(jobs):
            alone = Batch(self.transactions)
            try:
                alone.run([job])
            except apsw.Error as error:
                alone.refuse(error, [job])
            self.failed |= alone.failed
            if alone.fatal is not None:
                # What was committed alone before this is durable, and stays so.
                self.stop(alone.fatal, jobs[index:])
                return

    def _control(self, statement: str, *, refusable: bool = False) -> None:
        """Run a statement of our own. An error that is no plain refusal leaves the state unknown, and raises Fatal."""
        try:
            try:
                self.transactions.cursor.execute(statement)
            except apsw.IOError as error:
                demand_room(error, self.transactions.connection)
                raise
        except Exception as error:
            if refusable and (isinstance(error, _REFUSALS) or is_damage(error)):
                raise
            raise Fatal(f"{statement}: {described(error)}") from error

    def _abandon(self) -> None:
        """Leave the transaction if that is possible. If not, closing the connection will."""
        if self.transactions.connection.in_transaction:
            with suppress(apsw.Error):  # we are here because of an error that matters more
                self.transactions.cursor.execute("ROLLBACK")
