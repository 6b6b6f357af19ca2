"""One transaction for many functions, each of which fails alone."""

from __future__ import annotations

from asyncio import Future, new_event_loop
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StorageFull, StoreDamaged, StorePoisoned, StoreUnavailable
from holdfast.store.sqlite.connection import ensure_log, open_writer
from holdfast.store.sqlite.engine.batch import Batch, Transactions
from holdfast.store.sqlite.engine.jobs import Job, Work
from tests.store.sqlite.disk import Disk
from tests.store.sqlite.rows import add, make_table, texts

LOOP = new_event_loop()
"""A job has a future, which belongs to a loop; this one never runs."""


@pytest.fixture
def connection(path: Path, disk: Disk) -> Iterator[Connection]:
    connection = open_writer(path, vfs=disk.name)
    ensure_log(connection)
    make_table(connection)
    connection.set_busy_timeout(0)
    yield connection
    disk.mend()
    connection.close(force=True)


def run_batch(connection: Connection, works: Iterable[Work]) -> Batch:
    batch = Batch(Transactions(connection))
    batch.run(Job(work, Future(loop=LOOP), 0, 0) for work in works)
    return batch


def errors_of(batch: Batch) -> list[type[Exception] | None]:
    return [type(job.error) if job.error else None for job in batch.jobs]


def then(*works: Work) -> Work:
    """One function made of several."""

    def work(connection: Connection) -> None:
        for part in works:
            part(connection)

    return work


def fail(error: Exception) -> Work:
    def work(connection: Connection) -> None:
        raise error

    return work


def lose_the_transaction(connection: Connection) -> None:
    """What SQLite does by itself when it runs out of memory or disk in a bad place."""
    connection.execute("insert or rollback into note (id, text) values (1, 'a'), (1, 'b')")


def test_the_functions_share_one_commit(connection: Connection, disk: Disk) -> None:
    before = disk.events.count("sync")
    batch = run_batch(connection, [add("a"), add("b"), add("c")])
    assert [job.value for job in batch.jobs] == [1, 2, 3]
    assert errors_of(batch) == [None] * 3
    assert batch.fatal is None
    assert texts(connection) == ["a", "b", "c"]
    assert disk.events.count("sync") - before == 1


def test_a_function_that_fails_hurts_only_itself(connection: Connection) -> None:
    trouble = ValueError("no")
    works = [add("a"), then(add("half"), fail(trouble)), add("a"), add("b")]
    batch = run_batch(connection, works)
    assert errors_of(batch) == [None, ValueError, apsw.ConstraintError, None]
    assert batch.jobs[1].error is trouble
    assert batch.jobs[0].value == 1
    assert texts(connection) == ["a", "b"]


def test_functions_that_succeed_cost_no_statements_but_their_own(connection: Connection) -> None:
    statements: list[str] = []

    def note(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        statements.append(sql.split()[0].upper())
        return True

    connection.exec_trace = note
    run_batch(connection, [add("a"), add("b")])
    assert statements == ["BEGIN", "INSERT", "INSERT", "COMMIT"]


def test_several_that_fail_have_a_batch_repeated_once(connection: Connection) -> None:
    runs: list[str] = []

    def noted(text: str) -> Work:
        return then(lambda _: runs.append(text), add(text))

    half = then(add("half"), fail(ValueError()))
    batch = run_batch(connection, [noted("a"), half, noted("b"), half, noted("c")])
    assert errors_of(batch) == [None, ValueError, None, ValueError, None]
    assert runs == ["a", "a", "b", "c"]
    assert texts(connection) == ["a", "b", "c"]


def test_if_the_whole_transaction_is_lost_the_others_run_again(connection: Connection) -> None:
    runs: list[str] = []

    def noted(text: str) -> Work:
        return then(lambda _: runs.append(text), add(text))

    batch = run_batch(
        connection, [noted("a"), fail(ValueError()), noted("b"), lose_the_transaction, noted("c")]
    )
    assert errors_of(batch) == [None, ValueError, None, apsw.ConstraintError, None]
    assert runs == ["a", "a", "b", "a", "b", "c"]
    assert texts(connection) == ["a", "b", "c"]


def test_a_function_that_loses_the_transaction_each_time_it_runs_ends_the_repeating(
    connection: Connection,
) -> None:
    """The second run of something may fail where the first did not."""
    runs = 0

    def moody(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        if runs > 1:
            lose_the_transaction(connection)

    batch = run_batch(connection, [add("a"), moody, lose_the_transaction, add("b")])
    assert errors_of(batch) == [None, apsw.ConstraintError, apsw.ConstraintError, None]
    assert texts(connection) == ["a", "b"]


def test_functions_are_taken_only_once_the_transaction_has_begun(
    connection: Connection, path: Path
) -> None:
    """A job that has not been taken can still be withdrawn."""
    taken: list[str] = []

    def works() -> Iterator[Work]:
        for name in ("a", "b"):
            taken.append(name)
            yield add(name)

    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError):
        run_batch(connection, works())
    assert taken == []

    stranger.execute("ROLLBACK")
    stranger.close()
    run_batch(connection, works())
    assert texts(connection) == ["a", "b"]


def test_a_stranger_who_gets_in_between_leaves_everybody_unchanged(
    connection: Connection, path: Path
) -> None:
    stranger = apsw.Connection(str(path))

    def lose(connection: Connection) -> None:
        try:
            lose_the_transaction(connection)
        finally:
            stranger.execute("BEGIN IMMEDIATE")

    batch = run_batch(connection, [add("a"), lose, add("never taken")])
    assert errors_of(batch) == [StoreUnavailable, apsw.ConstraintError]
    stranger.close()
    assert texts(connection) == []


def test_a_full_disk_fails_those_who_ask_for_too_much(connection: Connection) -> None:
    connection.execute("pragma max_page_count = 20")

    batch = run_batch(connection, [add("a"), add("x" * 200_000), add("b")])
    assert errors_of(batch) == [None, StorageFull, None]
    assert texts(connection) == ["a", "b"]


def test_a_disk_that_is_full_at_the_commit_is_tried_one_by_one(
    connection: Connection, disk: Disk, path: Path
) -> None:
    """SQLite writes the log at the commit, so one large job would fail all of its batch."""
    log = path.with_name("store.db-wal")
    disk.log_bytes_max = log.stat().st_size + 50_000

    batch = run_batch(connection, [add("a"), add("x" * 200_000), add("b")])
    assert errors_of(batch) == [None, StorageFull, None]
    assert texts(connection) == ["a", "b"]

    disk.log_bytes_max = None
    assert errors_of(run_batch(connection, [add("x" * 200_000)])) == [None]


@pytest.mark.parametrize(
    ("error", "told"), [(apsw.IOError, StorePoisoned), (apsw.CantOpenError, StoreUnavailable)]
)
def test_when_jobs_are_tried_one_by_one_each_is_answered_whatever_happens(
    connection: Connection,
    disk: Disk,
    path: Path,
    error: Callable[[], Exception],
    told: type[Exception],
) -> None:
    """What was committed alone stands; what could not begin any more has an answer, too."""
    log = path.with_name("store.db-wal")
    disk.log_bytes_max = log.stat().st_size + 50_000
    begun: list[str] = []

    def refuse_the_second_alone(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        begun.extend([sql] if sql.startswith("BEGIN") else [])
        if len(begun) == 3:
            begun.append("refused")
            raise error()
        return True

    connection.exec_trace = refuse_the_second_alone
    batch = run_batch(connection, [add("a"), add("b"), add("x" * 200_000)])
    assert errors_of(batch)[:2] == [None, told]
    assert (batch.fatal is not None) == (told is StorePoisoned)
    assert errors_of(batch)[2] is not None
    connection.exec_trace = None
    assert texts(connection) == ["a"]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_io_error_at_the_commit_is_never_a_success(
    connection: Connection, disk: Disk, operation: str
) -> None:
    disk.break_next(operation, "-wal", apsw.IOError)
    batch = run_batch(connection, [add("a"), fail(ValueError("mine")), add("b")])
    assert batch.fatal is not None
    assert "COMMIT" in batch.fatal
    assert errors_of(batch) == [StorePoisoned, ValueError, StorePoisoned]


@pytest.mark.parametrize("error", [apsw.CorruptError, apsw.NotADBError])
def test_a_damaged_page_fails_the_job_that_needs_it(
    connection: Connection, error: Callable[[], Exception]
) -> None:
    batch = run_batch(connection, [add("a"), fail(error()), add("b")])
    assert batch.fatal is None
    assert errors_of(batch) == [None, StoreDamaged, None]
    assert texts(connection) == ["a", "b"]


def test_a_damaged_page_that_a_commit_meets_fails_the_job_that_needs_it(
    connection: Connection,
) -> None:
    """FTS5 writes its words in the COMMIT, and reads its own pages for it."""
    connection.execute("create virtual table words using fts5 (text)")
    connection.execute("insert into words values ('before')")
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)  # as by another program
    connection.execute("delete from words_data where id = 10")

    batch = run_batch(connection, [add("a"), _add_words, add("b")])
    assert errors_of(batch) == [None, StoreDamaged, None]
    assert batch.fatal is None
    assert texts(connection) == ["a", "b"]

    alone = run_batch(connection, [_add_words])
    assert errors_of(alone) == [StoreDamaged]
    assert (alone.fatal, connection.in_transaction) == (None, False)


def _add_words(connection: Connection) -> None:
    connection.execute("insert into words values ('and after')")


def test_an_error_that_nobody_can_judge_stops_the_batch(connection: Connection) -> None:
    batch = run_batch(connection, [add("a"), fail(apsw.IOError()), add("not taken")])
    assert batch.fatal is not None
    assert errors_of(batch) == [StorePoisoned] * 2
    assert texts(connection) == []


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_function_that_ends_the_transaction_stops_the_store(
    connection: Connection, statement: str
) -> None:
    """Whether the others' work is durable, nobody can tell."""
    batch = run_batch(connection, [add("a"), lambda connection: connection.execute(statement)])
    assert batch.fatal is not None
    assert "ended the transaction" in batch.fatal
    assert errors_of(batch) == [StorePoisoned] * 2


def test_a_deferred_constraint_fails_only_those_who_break_it(connection: Connection) -> None:
    connection.execute(
        "create table reply (note integer references note deferrable initially deferred)"
    )
    orphan: Work = lambda connection: connection.execute("insert into reply values (99)")  # noqa: E731
    batch = run_batch(connection, [add("a"), orphan, add("b")])
    assert errors_of(batch) == [None, apsw.ConstraintError, None]
    assert texts(connection) == ["a", "b"]


def test_a_stop_iteration_becomes_an_error_that_a_future_can_carry(connection: Connection) -> None:
    def work(connection: Connection) -> object:
        return next(connection.execute("select 1 where 0"))

    assert errors_of(run_batch(connection, [work])) == [RuntimeError]


def test_an_interrupt_rolls_back_and_travels(connection: Connection) -> None:
    def work(connection: Connection) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch(connection, [add("a"), work])
    assert not connection.in_transaction
    assert texts(connection) == []
