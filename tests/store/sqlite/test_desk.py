"""Batches are bounded, and deadlines hold; shown without a thread, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import pytest
from apsw import Connection

from holdfast.errors import StorePoisoned, StoreUnavailable
from holdfast.store.sqlite.connection import ensure_log, open_writer
from holdfast.store.sqlite.desk import Bounds, Desk
from holdfast.store.sqlite.health import Health
from holdfast.store.sqlite.jobs import AnyJob, Job, Work
from holdfast.store.sqlite.locks import WriteTurn

MakeDesk = Callable[..., Desk]


class Ticking:
    """A clock that moves by a step each time somebody looks."""

    def __init__(self, step_s: float = 0) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


@pytest.fixture
def make_desk(path: Path) -> Iterator[MakeDesk]:
    desks: list[Desk] = []

    def make(bounds: Bounds | None = None, clock: Ticking | None = None) -> Desk:
        turn = WriteTurn(path.with_name("turn"))
        connection = open_writer(path)
        ensure_log(connection)
        desk = Desk(
            path,
            connection,
            turn,
            Health("test"),
            bounds=bounds or Bounds(),
            clock=clock or Ticking(),
        )
        desks.append(desk)
        return desk

    yield make
    for desk in desks:
        desk.leave()


def ask(
    desk: Desk, work: Work = lambda _: None, *, asked: float = 0, deadline: float = 1e9
) -> Future[object]:
    future: Future[object] = Future()
    desk.accept(cast("AnyJob", Job(work, future, loop=None, asked=asked, deadline=deadline)))
    return future


def test_a_batch_takes_no_more_than_its_number(make_desk: MakeDesk) -> None:
    desk = make_desk(Bounds(batch_jobs=3))
    futures = [ask(desk) for _ in range(7)]
    desk.run()
    assert [future.done() for future in futures] == [True] * 3 + [False] * 4
    desk.run()
    desk.run()
    assert all(future.done() for future in futures)
    assert (desk.tally.batches, desk.tally.largest_batch) == (3, 3)


def test_a_batch_begins_nothing_after_its_time(make_desk: MakeDesk) -> None:
    """Another process may be waiting for its turn."""
    clock = Ticking()
    desk = make_desk(Bounds(batch_s=10), clock)

    def slow(_: object) -> None:
        clock.now += 4

    futures = [ask(desk, slow) for _ in range(5)]
    desk.run()
    assert sum(future.done() for future in futures) == 3
    assert len(desk.inbox) == 2


def test_a_job_whose_time_is_up_is_not_run(make_desk: MakeDesk) -> None:
    """The event loop, which has a timer for it, may have been held up itself."""
    clock = Ticking()
    desk = make_desk(clock=clock)
    ran: list[str] = []
    late = ask(desk, lambda _: ran.append("late"), deadline=5)
    good = ask(desk, lambda _: ran.append("good"), deadline=6)
    clock.now = 5
    desk.run()
    assert isinstance(late.exception(), StoreUnavailable)
    assert good.exception() is None
    assert ran == ["good"]


def test_a_failure_has_work_repeated_once_in_a_while_and_not_in_every_batch(
    make_desk: MakeDesk,
) -> None:
    """Somebody may cause failures all the time."""
    clock = Ticking()
    desk = make_desk(Bounds(guard_s=10), clock)
    runs: list[float] = []

    def fail(_: object) -> None:
        raise LookupError

    for clock.now in (0, 1, 9, 18, 30):
        ask(desk, lambda _: runs.append(clock.now))
        ask(desk, fail)
        desk.run()
    assert runs == [0, 0, 1, 9, 18, 30, 30]


def test_a_strangers_lock_fails_those_who_have_waited_and_not_those_who_have_just_come(
    make_desk: MakeDesk, path: Path
) -> None:
    """Else the patience of the oldest is everybody's, and under overload those who retry fail at once."""
    clock = Ticking()
    desk = make_desk(Bounds(busy_s=5), clock)
    stranger = Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    old, young = ask(desk, asked=0), ask(desk, asked=4)
    clock.now = 5
    desk.run()
    assert isinstance(old.exception(timeout=0), StoreUnavailable)
    assert not young.done()
    stranger.execute("ROLLBACK")
    stranger.close()
    desk.run()
    assert young.exception(timeout=0) is None


def test_a_job_is_either_withdrawn_or_run(make_desk: MakeDesk) -> None:
    desk = make_desk()
    taken_back: list[bool] = []
    future: Future[object] = Future()

    def work(_: object) -> None:
        taken_back.append(desk.inbox.withdraw(job))

    job = cast("AnyJob", Job(work, future, loop=None, asked=0, deadline=1e9))
    desk.accept(job)
    assert desk.inbox.withdraw(job)
    assert not desk.inbox.withdraw(job)
    desk.run()
    assert not future.done()

    desk.accept(job)
    desk.run()
    assert future.done()
    assert taken_back == [False]


def test_a_job_that_arrives_at_a_poisoned_desk_is_refused_at_once(make_desk: MakeDesk) -> None:
    desk = make_desk()
    waiting = ask(desk)
    desk.health.poison("EIO")
    late = ask(desk)
    for future in (waiting, late):
        assert isinstance(future.exception(timeout=0), StorePoisoned)


def test_a_turn_without_jobs_begins_no_transaction(make_desk: MakeDesk) -> None:
    """All of them may have been withdrawn while another process had the turn."""
    desk = make_desk()
    desk.run()
    assert desk.tally.jobs == 0
    assert desk.log.pages == 0


def test_the_alarm_is_raised_once_and_for_the_first_reason() -> None:
    told: list[str] = []
    health = Health("test", on_poison=lambda error: told.append(str(error)))
    health.poison("EIO at the commit")
    health.poison("whatever that led to")
    health.close()
    assert len(told) == 1
    assert "EIO at the commit" in told[0]
    with pytest.raises(StorePoisoned, match="EIO at the commit"):
        health.check()
