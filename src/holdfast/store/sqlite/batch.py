"""A batch: several functions, one transaction, one sync. No threads and no queue here.

1. A function that fails leaves nothing behind; the others do not notice.
2. If the whole transaction is lost because of one, the others are run again in a new one.
   Functions are therefore pure: connection in, value out.
3. An outcome is Done only after the COMMIT that holds it has returned.
4. After an error that we cannot judge, nothing of the batch is Done, and the batch says why:
   the engine stops then.

Hardly any function fails, so a batch begins without a savepoint for each: they would cost two
statements, and a copy of every page that the function touches. The first that fails costs the
transaction (1, 2); those that had succeeded are repeated, and from there on each has a savepoint,
so that a batch is never repeated for another failure of that kind. Who expects failures asks
for a guarded batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.store.sqlite.faults import Fatal, described, is_fatal, poisoned, translated
from holdfast.store.sqlite.jobs import Done, Failed, Outcome, Work


class Batch(Struct, frozen=True):
    """What became of the functions, in the order they were taken."""

    outcomes: list[Outcome]
    fatal: str | None = None
    """Why the store must stop, if it must."""
    commit_s: float = 0.0
    """How long the last COMMIT took, the sync included."""

    def stopped(self, reason: str) -> Batch:
        """The same batch, if it turns out afterwards that nothing of it can be relied on."""
        return Batch(_unknown(self.outcomes, reason), reason, self.commit_s)


def run_batch(
    connection: Connection,
    works: Iterable[Work],
    *,
    guarded: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Batch:
    """Run `works` in one transaction and commit it; `guarded` gives each a savepoint from the start.

    They are taken from the iterable one by one, each just before it runs and none before the
    transaction has begun. If it cannot begin, apsw's error travels and nothing was taken.
    `clock` measures, and decides nothing.
    """
    connection.execute("BEGIN IMMEDIATE")
    taken: list[Work] = []
    outcomes: list[Outcome] = []
    run = _run_guarded if guarded else _run_freely
    try:
        for work in works:
            taken.append(work)
            outcomes.append(run(connection, work))
            if not connection.in_transaction:
                if not _run_again(connection, taken, outcomes):
                    return Batch(outcomes)
                run = _run_guarded
        return _commit(connection, taken, outcomes, clock)
    except Fatal as fatal:
        _abandon(connection)
        # The one that was running has no outcome yet.
        outcomes += [Done(None)] * (len(taken) - len(outcomes))
        return Batch(_unknown(outcomes, fatal.reason), fatal.reason)
    except BaseException:
        _abandon(connection)
        raise


def _run_freely(connection: Connection, work: Work) -> Outcome:
    """One function. If it fails, the transaction goes with it: half of its work may be in there."""
    outcome = _attempt(connection, work)
    if isinstance(outcome, Failed) and connection.in_transaction:
        _control(connection, "ROLLBACK")
    return outcome


def _run_guarded(connection: Connection, work: Work) -> Outcome:
    """One function in its savepoint. If the transaction is gone afterwards, it failed."""
    _control(connection, "SAVEPOINT work")
    outcome = _attempt(connection, work)
    if connection.in_transaction:
        if isinstance(outcome, Failed):
            _control(connection, "ROLLBACK TO work")
        _control(connection, "RELEASE work")
    return outcome


def _attempt(connection: Connection, work: Work) -> Outcome:
    """Call it. What it wrote before it failed is for the caller to take back."""
    try:
        value = work(connection)
    except Exception as error:
        if is_fatal(error):
            raise Fatal(described(error)) from error
        return Failed(translated(error))
    if not connection.in_transaction:
        # Committed or rolled back, and the others with it: we cannot tell which.
        raise Fatal(f"{work!r} ended the transaction that it was run in")
    return Done(value)


def _run_again(connection: Connection, taken: list[Work], outcomes: list[Outcome]) -> bool:
    """The transaction is lost: begin another and repeat what had succeeded in it.

    Ends, because each further loss turns one success into a failure.
    False if no transaction could be had; then all have failed and nothing changed.
    """
    while not connection.in_transaction:
        try:
            _control(connection, "BEGIN IMMEDIATE", refusable=True)
        except _REFUSALS as error:
            _refuse(outcomes, error)
            return False
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Done):
                outcomes[index] = _run_guarded(connection, taken[index])
                if not connection.in_transaction:
                    break
    return True


def _commit(
    connection: Connection,
    taken: list[Work],
    outcomes: list[Outcome],
    clock: Callable[[], float],
) -> Batch:
    """Make it durable. A commit that is refused, and certainly so, is tried one by one."""
    began = clock()
    try:
        _control(connection, "COMMIT", refusable=True)
    except _REFUSALS as error:
        if connection.in_transaction:
            _control(connection, "ROLLBACK")
        if sum(isinstance(outcome, Done) for outcome in outcomes) > 1:
            return _one_by_one(connection, taken, outcomes, clock)
        _refuse(outcomes, error)
    return Batch(outcomes, commit_s=clock() - began)


def _one_by_one(
    connection: Connection,
    taken: list[Work],
    outcomes: list[Outcome],
    clock: Callable[[], float],
) -> Batch:
    """One of them asks for too much. Alone, each gets its own answer."""
    commit_s = 0.0
    for index, outcome in enumerate(outcomes):
        if not isinstance(outcome, Done):
            continue
        try:
            alone = run_batch(connection, [taken[index]], clock=clock)
        except apsw.BusyError as error:
            outcomes[index] = Failed(translated(error))
            continue
        outcomes[index] = alone.outcomes[0]
        commit_s = alone.commit_s
        if alone.fatal is not None:
            # What was committed alone before this is durable, and stays Done.
            rest = _unknown(outcomes[index:], alone.fatal)
            return Batch(outcomes[:index] + rest, alone.fatal, commit_s)
    return Batch(outcomes, commit_s=commit_s)


_REFUSALS = (apsw.FullError, apsw.ConstraintError, apsw.BusyError)
"""How SQLite may say no to BEGIN or COMMIT and leave no doubt that nothing changed.

A full disk fails while the log is written, before the frame that would make it valid; a deferred
constraint before anything is written.
"""


def _control(connection: Connection, statement: str, *, refusable: bool = False) -> None:
    """Run a statement of our own. What is no plain refusal leaves us not knowing: Fatal."""
    try:
        connection.execute(statement)
    except Exception as error:
        if refusable and isinstance(error, _REFUSALS):
            raise
        raise Fatal(f"{statement}: {described(error)}") from error


def _abandon(connection: Connection) -> None:
    """Leave the transaction if that is possible. If not, closing the connection will."""
    if connection.in_transaction:
        with suppress(apsw.Error):  # we are here because of an error that matters more
            connection.execute("ROLLBACK")


def _refuse(outcomes: list[Outcome], error: Exception) -> None:
    """What had succeeded fails with `error` after all."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Done):
            outcomes[index] = Failed(translated(error))


def _unknown(outcomes: list[Outcome], reason: str) -> list[Outcome]:
    """Nobody knows what became of the successes; the failures stand."""
    return [Failed(poisoned(reason)) if isinstance(o, Done) else o for o in outcomes]
