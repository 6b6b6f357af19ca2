"""One timer, and every job that no worker begins is given up at its own time; closing gives up none."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import cast

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.engine.health import EngineHealth
from holdfast.store.sqlite.engine.jobs import Job, JobQueue


class Timer:
    def __init__(self, at: float, ring: Callable[[], object]) -> None:
        self.at = at
        self.ring = ring
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Loop:
    """As much of an event loop as timers and futures need; it rings when it is told to."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.timers: list[Timer] = []
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def get_debug(self) -> bool:
        return False

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        self.timers.append(Timer(self.clock.now + delay, lambda: callback(*args)))
        return self.timers[-1]

    @property
    def pending(self) -> list[float]:
        return [timer.at for timer in self.timers if not timer.cancelled]

    def pass_time(self, until: float) -> None:
        self.clock.now = until
        due = [timer for timer in self.timers if timer.at <= until]
        self.timers = [timer for timer in self.timers if timer.at > until]
        for timer in due:
            if not timer.cancelled:
                timer.ring()


class Stuck:
    """A queue that no worker serves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = JobQueue(EngineHealth("test"), self.clock)

    def wait(self, loop: Loop, *, deadline: float) -> Job:
        its_loop = cast("AbstractEventLoop", loop)
        job = Job(lambda _: None, Future(loop=its_loop), self.clock.now, deadline)
        self.queue.put(job, its_loop)
        return job


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


@pytest.fixture
def loop(stuck: Stuck) -> Loop:
    return Loop(stuck.clock)


def given_up(job: Job) -> bool:
    return job.future.done() and isinstance(job.future.exception(), StoreUnavailable)


def test_each_is_given_up_at_its_own_time(stuck: Stuck, loop: Loop) -> None:
    jobs = [stuck.wait(loop, deadline=deadline) for deadline in (5, 9, 1, 60)]
    seen = []
    for moment in (0.5, 1, 4.9, 5, 8, 9, 59):
        loop.pass_time(moment)
        seen.append([given_up(job) for job in jobs].count(True))
    assert seen == [0, 1, 1, 2, 2, 3, 3]
    assert stuck.queue.take() is jobs[3]
    assert len(stuck.queue.waiting) == 0


def test_many_jobs_need_one_timer(stuck: Stuck, loop: Loop) -> None:
    for number in range(100):
        stuck.wait(loop, deadline=10 + number)
    assert loop.pending == [10]


def test_a_timer_that_rings_a_little_early_gives_up_in_time(stuck: Stuck, loop: Loop) -> None:
    """Loops round; a timer that was set anew for what is left of a moment might ring for ever."""
    job = stuck.wait(loop, deadline=10)
    stuck.clock.now = 10 - 1e-9
    loop.timers.pop().ring()
    assert given_up(job)
    assert loop.pending == []


def test_one_that_has_been_begun_is_left_alone(stuck: Stuck, loop: Loop) -> None:
    job = stuck.wait(loop, deadline=1)
    assert stuck.queue.take() is job
    loop.pass_time(2)
    assert not job.future.done()
    assert loop.pending == []


def test_a_timer_that_was_lost_is_not_relied_upon(stuck: Stuck, loop: Loop) -> None:
    """A loop that is stopped and goes on later, or a simulated process that was killed."""
    stuck.wait(loop, deadline=1)
    loop.timers.clear()
    stuck.clock.now = 2
    job = stuck.wait(loop, deadline=3)
    loop.pass_time(3)
    assert given_up(job)


def test_loops_do_not_answer_for_each_other(stuck: Stuck, loop: Loop) -> None:
    other = Loop(stuck.clock)
    mine, theirs = stuck.wait(loop, deadline=1), stuck.wait(other, deadline=1)
    loop.pass_time(1)
    assert given_up(mine)
    assert not theirs.future.done()
    other.pass_time(1)
    assert given_up(theirs)


def test_a_loop_that_was_closed_is_forgotten(stuck: Stuck, loop: Loop) -> None:
    old = Loop(stuck.clock)
    stuck.wait(old, deadline=5)
    old.closed = True
    stuck.wait(loop, deadline=5)
    assert old.pending == []
    assert loop.pending == [5]


def test_two_loops_may_forget_a_closed_one_at_once(stuck: Stuck, loop: Loop) -> None:
    old, other = Loop(stuck.clock), Loop(stuck.clock)

    def forget() -> bool:
        """In the thread of another loop, between this one's question and its answer."""
        old.is_closed = lambda: True  # type: ignore[method-assign]
        stuck.wait(other, deadline=5)
        return True

    stuck.wait(old, deadline=5)
    old.is_closed = forget  # type: ignore[method-assign]
    stuck.wait(loop, deadline=5)
    assert (old.pending, other.pending, loop.pending) == ([], [5], [5])


async def test_closing_stops_the_timer_of_the_loop_that_closes(stuck: Stuck) -> None:
    loop = Future[None]().get_loop()
    job = Job(lambda _: None, loop.create_future(), 0, 3600)
    stuck.queue.put(job, loop)
    assert list(stuck.queue._timers) == [loop]
    await stuck.queue.close()
    assert stuck.queue._timers == {}


class OneByOne:
    """A worker that takes one job at a time, and the first only when it is told to."""

    idle_s: float | None = None

    def __init__(self, queue: JobQueue) -> None:
        self.may_begin = threading.Event()
        self._queue = queue

    def run(self) -> None:
        self.may_begin.wait()
        job = self._queue.take()
        assert job is not None
        self._queue.tell([job])

    def rest(self) -> None: ...

    def leave(self) -> None: ...


async def test_closing_runs_all_that_has_queued() -> None:
    queue = JobQueue(EngineHealth("test"), time.monotonic)
    worker = OneByOne(queue)
    loop = asyncio.get_running_loop()
    futures: list[Future[object]] = [loop.create_future() for _ in range(3)]
    for future in futures:
        queue.put(Job(lambda _: None, future, queue.clock(), queue.clock() + 3600), loop)
    queue.start("worker", worker)
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    worker.may_begin.set()
    await closing
    assert all(future.done() for future in futures)
