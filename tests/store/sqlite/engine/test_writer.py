"""Batches are bounded, and deadlines hold; shown without a thread, by hand."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from apsw import Connection

from holdfast.errors import StorePoisoned, StoreUnavailable
from holdfast.store.sqlite.connection import ensure_log, open_writer
from holdfast.store.sqlite.engine.health import EngineHealth
from holdfast.store.sqlite.engine.jobs import Job, JobQueue, Work
from holdfast.store.sqlite.engine.writer import Bounds, Writer
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.protection import Protection

MakeWriter = Callable[..., Writer]


class Ticking:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def make_writer(path: Path) -> AsyncIterator[MakeWriter]:
    writers: list[Writer] = []

    def make(bounds: Bounds | None = None, clock: Ticking | None = None) -> Writer:
        connection = open_writer(path)
        ensure_log(connection)
        queue = JobQueue(EngineHealth("test"), clock or Ticking(), inline=True)
        turn = WriteTurn(path.with_name("turn"))
        protection = Protection(path.with_name("damage"))
        writer = Writer(path, connection, turn, queue, bounds or Bounds(), protection)
        queue.start("writer", writer)
        writers.append(writer)
        return writer

    yield make
    for writer in writers:
        await writer.queue.close()


def ask(
    writer: Writer, work: Work = lambda _: None, *, asked: float = 0, deadline: float = 1e9
) -> Future[object]:
    loop = asyncio.get_running_loop()
    future: Future[object] = loop.create_future()
    writer.queue.put(Job(work, future, asked, deadline), loop)
    return future


async def test_a_batch_takes_no_more_than_its_number(make_writer: MakeWriter) -> None:
    writer = make_writer(Bounds(batch_jobs=3))
    futures = [ask(writer) for _ in range(7)]
    writer.run()
    assert [future.done() for future in futures] == [True] * 3 + [False] * 4
    writer.run()
    writer.run()
    assert all(future.done() for future in futures)
    assert writer.stats.batches == 3


async def test_a_batch_begins_nothing_after_its_time(make_writer: MakeWriter) -> None:
    """Another process may be waiting for its turn."""
    clock = Ticking()
    writer = make_writer(Bounds(batch_s=10), clock)

    def slow(_: object) -> None:
        clock.now += 4

    futures = [ask(writer, slow) for _ in range(5)]
    writer.run()
    assert sum(future.done() for future in futures) == 3
    assert len(writer.queue.waiting) == 2


async def test_a_job_whose_time_is_up_is_not_run(make_writer: MakeWriter) -> None:
    """The event loop, which has a timer for it, may have been held up itself."""
    clock = Ticking()
    writer = make_writer(clock=clock)
    ran: list[str] = []
    late = ask(writer, lambda _: ran.append("late"), deadline=5)
    good = ask(writer, lambda _: ran.append("good"), deadline=6)
    clock.now = 5
    writer.run()
    assert isinstance(late.exception(), StoreUnavailable)
    assert good.exception() is None
    assert ran == ["good"]


async def test_a_failure_has_work_repeated_once_in_a_while_and_not_in_every_batch(
    make_writer: MakeWriter,
) -> None:
    """Somebody may cause failures all the time."""
    clock = Ticking()
    writer = make_writer(Bounds(guard_s=10), clock)
    runs: list[float] = []

    def fail(_: object) -> None:
        raise LookupError

    for clock.now in (0, 1, 9, 18, 30):
        ask(writer, lambda _: runs.append(clock.now))
        failed = ask(writer, fail)
        writer.run()
        assert isinstance(failed.exception(), LookupError)
    assert runs == [0, 0, 1, 9, 18, 30, 30]


async def test_a_strangers_lock_fails_those_who_have_waited_and_not_those_who_have_just_come(
    make_writer: MakeWriter, path: Path
) -> None:
    """Else the patience of the oldest is everybody's, and under overload those who retry fail at once."""
    clock = Ticking()
    writer = make_writer(Bounds(busy_s=5), clock)
    stranger = Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    ran: list[str] = []
    old, young = ask(writer, asked=0), ask(writer, lambda _: ran.append("young"), asked=4)
    younger = ask(writer, lambda _: ran.append("younger"), asked=4)
    clock.now = 5
    writer.run()
    assert isinstance(old.exception(), StoreUnavailable)
    assert not young.done()
    stranger.execute("ROLLBACK")
    stranger.close()
    writer.run()
    assert young.exception() is younger.exception() is None
    assert ran == ["young", "younger"]


async def test_a_job_is_either_withdrawn_or_run(make_writer: MakeWriter) -> None:
    writer = make_writer()
    taken_back: list[bool] = []
    loop = asyncio.get_running_loop()
    future: Future[object] = loop.create_future()

    def work(_: object) -> None:
        taken_back.append(writer.queue.withdraw(job))

    job = Job(work, future, 0, 1e9)
    writer.queue.put(job, loop)
    assert writer.queue.withdraw(job)
    assert not writer.queue.withdraw(job)
    writer.run()
    assert not future.done()

    writer.queue.put(job, loop)
    writer.run()
    assert future.done()
    assert taken_back == [False]


async def test_a_job_that_arrives_at_a_poisoned_writer_is_refused_at_once(
    make_writer: MakeWriter,
) -> None:
    writer = make_writer()
    waiting = ask(writer)
    writer.queue.health.poison("EIO")
    late = ask(writer)
    for future in (waiting, late):
        assert isinstance(future.exception(), StorePoisoned)


async def test_a_turn_without_jobs_begins_no_transaction(make_writer: MakeWriter) -> None:
    """All of them may have been withdrawn while another process had the turn."""
    writer = make_writer()
    writer.run()
    assert writer.stats.log_pages == 0
