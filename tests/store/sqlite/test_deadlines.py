"""One timer, and every job that nobody begins is given up at its own time."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.deadlines import Deadlines
from holdfast.store.sqlite.jobs import AnyJob, Inbox, Job


class Timer:
    def __init__(self, at: float, ring: Callable[[], object]) -> None:
        self.at = at
        self.ring = ring
        self.cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """As much of an event loop as timers need; its time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.closed = False

    def time(self) -> float:
        return self.now

    def is_closed(self) -> bool:
        return self.closed

    def call_at(self, when: float, callback: Callable[..., object], *arguments: object) -> Timer:
        self.timers.append(Timer(when, lambda: callback(*arguments)))
        return self.timers[-1]

    @property
    def pending(self) -> list[float]:
        return [timer.at for timer in self.timers if not timer.cancelled]

    def pass_time(self, until: float) -> None:
        self.now = until
        due = [timer for timer in self.timers if timer.at <= until]
        self.timers = [timer for timer in self.timers if timer.at > until]
        for timer in due:
            if not timer.cancelled:
                timer.ring()


class Desk:
    """An inbox that nobody empties."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.deadlines = Deadlines(self.inbox)

    def wait(self, loop: Loop, *, expires: float) -> AnyJob:
        its_loop = cast("AbstractEventLoop", loop)
        future: Future[object] = Future()
        job = Job[object](
            lambda _: None, future, loop=its_loop, asked=0, deadline=1e9, expires=expires
        )
        self.inbox.put(job)
        self.deadlines.watch(its_loop, expires, loop.now)
        return job


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def given_up(job: AnyJob) -> bool:
    return job.future.done() and isinstance(job.future.exception(), StoreUnavailable)


def test_each_is_given_up_at_its_own_time(desk: Desk, loop: Loop) -> None:
    jobs = [desk.wait(loop, expires=expires) for expires in (5, 9, 1, 60)]
    seen = []
    for moment in (0.5, 1, 4.9, 5, 8, 9, 59):
        loop.pass_time(moment)
        seen.append([given_up(job) for job in jobs].count(True))
    assert seen == [0, 1, 1, 2, 2, 3, 3]
    assert list(desk.inbox.waiting()) == jobs[3:]


def test_many_jobs_need_one_timer(desk: Desk, loop: Loop) -> None:
    for number in range(100):
        desk.wait(loop, expires=10 + number)
    assert loop.pending == [10]


def test_one_that_has_been_begun_is_left_alone(desk: Desk, loop: Loop) -> None:
    job = desk.wait(loop, expires=1)
    assert desk.inbox.take_nowait() is job
    loop.pass_time(2)
    assert not job.future.done()
    assert loop.pending == []


def test_a_timer_that_was_lost_is_not_relied_upon(desk: Desk, loop: Loop) -> None:
    """A loop that is stopped and goes on later, or a simulated process that was killed."""
    desk.wait(loop, expires=1)
    loop.timers.clear()
    loop.now = 2
    job = desk.wait(loop, expires=3)
    loop.pass_time(3)
    assert given_up(job)


def test_loops_do_not_answer_for_each_other(desk: Desk, loop: Loop) -> None:
    other = Loop()
    mine, theirs = desk.wait(loop, expires=1), desk.wait(other, expires=1)
    loop.pass_time(1)
    assert given_up(mine)
    assert not theirs.future.done()
    other.pass_time(1)
    assert given_up(theirs)


def test_a_loop_that_was_closed_is_forgotten(desk: Desk, loop: Loop) -> None:
    old = Loop()
    desk.wait(old, expires=5)
    old.closed = True
    desk.wait(loop, expires=5)
    assert old.pending == []
    desk.deadlines.close(cast("AbstractEventLoop", loop))
    assert loop.pending == []
