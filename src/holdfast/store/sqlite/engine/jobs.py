"""Jobs for the engine's threads: how they wait in a queue, and how their results come back to the callers.

A job is a function and a future. It waits in a queue until a worker takes it, or until its caller or its deadline
withdraws it, and exactly one of these succeeds:

1. A job that was withdrawn never runs; a job that was taken has an outcome, and its caller gets it.
2. Taking and withdrawing are each one operation on a deque, which Python makes atomic; there is no lock to
   take per job, and a thread is woken only if it sleeps.
3. A job whose deadline has passed is not begun: workers check the deadline of each job that they take. If the workers
   are stuck, a timer withdraws the job; there is one timer for each event loop. It is set for the earliest deadline,
   stays set when that job is done, and checks all deadlines when it fires. A timer for each job would cost more than
   all the rest of handing the job over.
4. When the store is poisoned, every waiting caller gets the error, and the workers end.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

from apsw import Connection
from msgspec import Struct

from holdfast.errors import StoreUnavailable
from holdfast.observe.supervisor import start_thread
from holdfast.store.sqlite.engine.health import EngineHealth
from holdfast.store.sqlite.faults import described, poisoned

T = TypeVar("T")

Clock = Callable[[], float]

Work = Callable[[Connection], object]
"""A whole function: it reads, decides and writes on the connection, and returns.

It may be run again if the transaction around it is lost, so it changes nothing but the database
and takes clocks, ids and randomness as values. It neither begins, commits nor rolls back, and
leaves no cursor behind.
"""

TIMER_S = 0.001
"""The resolution of event loops' timers."""


class Job(Struct, eq=False):
    """A function to run on a connection, and its outcome.

    `asked` is the time of the call; the job is not begun after `deadline`, by the engine's clock. Once it has run,
    `value` is what the function returned, unless there is an `error`: then nothing that it wrote remains.
    """

    work: Work
    future: Future[Any]
    asked: float
    deadline: float
    error: Exception | None = None
    value: object = None


class JobThread(Protocol):
    """Takes jobs from a queue. It is run by one thread at a time."""

    @property
    def idle_s(self) -> float | None:
        """After how long without a job `rest` is called; None if it is not needed."""

    def run(self) -> None:
        """Take some jobs, run them, and give their callers the outcomes."""

    def rest(self) -> None:
        """No job has come for `idle_s`."""

    def leave(self) -> None:
        """Close the connection. Leaving again does nothing."""


class JobQueue:
    """The jobs that no worker has begun, and the threads that run them.

    `inline`: there are no threads; jobs run in the event loop's own thread, on its next pass, grouped as a thread would
    group them. With a deterministic loop this is deterministic, too.
    """

    def __init__(self, health: EngineHealth, clock: Clock, *, inline: bool = False) -> None:
        self.closed = False
        self.health = health
        self.clock = clock
        self.waiting: deque[Job] = deque()
        self._change = threading.Condition(threading.Lock())
        self._asleep = 0
        self._timers: dict[AbstractEventLoop, tuple[float, TimerHandle]] = {}
        self._threads: list[threading.Thread] = []
        self._inline = inline
        self._inline_worker: JobThread | None = None
        self._scheduled: AbstractEventLoop | None = None
        """The loop that will run the waiting jobs. If it is stopped before, the next loop runs them."""
        health.when_poisoned(self._refuse_all)

    # The callers' end

    async def ask(
        self, work: Callable[[Connection], T], timeout_s: float, *, company_s: float = 0.0
    ) -> T:
        """Run `work`; return its value, or raise its error.

        Raises StoreUnavailable if it was not begun within `timeout_s`. Cancelling withdraws it if it was not begun. A
        worker that sleeps is woken after `company_s`, unless another job wakes it before.
        """
        refusal = self.health.refusal
        if refusal is not None:
            raise refusal()
        loop = asyncio.get_running_loop()
        future: Future[T] = loop.create_future()
        asked = self.clock()
        job = Job(work, future, asked, asked + timeout_s)
        self.put(job, loop, company_s)
        try:
            return await future
        except asyncio.CancelledError:
            self.withdraw(job)
            raise
        finally:
            del future, job  # they hold the error that is raised here, and with it this frame

    def put(self, job: Job, loop: AbstractEventLoop, company_s: float = 0.0) -> None:
        """Add a job. If the store is poisoned in this moment, the job is refused, not lost."""
        self.waiting.append(job)
        if self.health.fatal is not None:
            self._refuse_all()
            return
        if self._inline:
            if self._scheduled is not loop:
                self._scheduled = loop
                loop.call_soon(self._run_inline)
        elif company_s:
            loop.call_later(company_s, self._wake)
        else:
            self._wake()
        timer = self._timers.get(loop)
        # A timer that is overdue may never fire, so a new one is set.
        if timer is None or not job.asked <= timer[0] <= job.deadline:
            self._set_timer(loop, job.deadline)

    def withdraw(self, job: Job) -> bool:
        """Take `job` back. False if a worker has taken it: then its outcome will come."""
        try:
            self.waiting.remove(job)
        except ValueError:
            return False
        return True

    def _wake(self) -> None:
        # A worker counts itself as asleep before it checks the queue, and we check that count after
        # filling the queue: one of us notices the other.
        if self._asleep and self.waiting:
            with self._change:
                self._change.notify()

    def _set_timer(self, loop: AbstractEventLoop, deadline: float) -> None:
        self._stop_timers(loop)
        handle = loop.call_later(max(0.0, deadline - self.clock()), self._give_up_late, loop)
        self._timers[loop] = deadline, handle

    def _stop_timers(self, loop: AbstractEventLoop) -> None:
        """Stop the timers of this loop, and of loops that are closed."""
        for each in tuple(self._timers):
            if each is loop or each.is_closed():
                timer = self._timers.pop(each, None)
                if timer is not None:  # the thread of another loop has not done it meanwhile
                    timer[1].cancel()

    def _give_up_late(self, loop: AbstractEventLoop) -> None:
        del self._timers[loop]
        now = self.clock() + TIMER_S
        earliest = inf
        for job in self.waiting.copy():
            if job.future.get_loop() is not loop:
                continue
            if job.deadline > now:
                earliest = min(earliest, job.deadline)
            elif not job.future.done() and self.withdraw(job):
                job.future.set_exception(too_late())
        if earliest < inf:
            self._set_timer(loop, earliest)

    # The workers' end

    def take(self) -> Job | None:
        """The job that has waited longest, which is begun by this; None if there is none."""
        try:
            return self.waiting.popleft() if self.waiting else None
        except IndexError:  # withdrawn in this moment
            return None

    def take_asked_before(self, moment: float) -> list[Job]:
        """The jobs that were asked for at `moment` or earlier."""
        taken: list[Job] = []
        while (job := self.take()) is not None:
            if job.asked > moment:
                self.waiting.appendleft(job)
                break
            taken.append(job)
        return taken

    def tell(self, jobs: Sequence[Job]) -> None:
        """Give the callers of these jobs their outcomes; each event loop is woken once."""
        if self._inline:
            _resolve(jobs)
            return
        by_loop: dict[AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
        for loop, group in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, group)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                # The loop was closed while we worked: no caller is left to get the outcome.

    def start(self, name: str, worker: JobThread) -> None:
        """Let `worker` serve the queue, in a thread of this name."""
        if self._inline:
            self._inline_worker = worker
        else:
            self._threads.append(start_thread(name, partial(self._serve, worker)))

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Finish the queued jobs, and let the workers leave. Repeating is harmless.

        It stops waiting for their threads after `timeout_s`; they leave later by themselves.
        """
        self._let_go()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, timeout_s)
        if self._inline_worker is not None:
            self._run_inline()
            self._inline_worker.leave()
        self._stop_timers(asyncio.get_running_loop())

    def _serve(self, worker: JobThread) -> None:
        try:
            while self.health.fatal is None:
                if self._wait(worker.idle_s):
                    worker.run()
                elif self.closed:
                    break
                else:
                    worker.rest()
        except BaseException as error:
            # A bug of ours. No worker would answer the callers any more, so all of them get an error.
            self.health.poison(described(error))
            raise
        finally:
            worker.leave()

    def _wait(self, timeout_s: float | None) -> bool:
        """Sleep until there is a job (True), or the queue is closed or time is up (False)."""
        if self.waiting:
            return True
        with self._change:
            self._asleep += 1
            try:
                self._change.wait_for(lambda: self.waiting or self.closed, timeout_s)
            finally:
                self._asleep -= 1
        return bool(self.waiting)

    def _run_inline(self) -> None:
        self._scheduled = None
        worker = self._inline_worker
        assert worker is not None
        while self.waiting and self.health.fatal is None:
            worker.run()

    def _refuse_all(self) -> None:
        """The store is poisoned: give all waiting callers the error, and let the workers end. From any thread."""
        waiting = self.take_asked_before(inf)
        for job in waiting:
            job.error = poisoned(self.health.fatal or "")
        self.tell(waiting)
        self._let_go()

    def _let_go(self) -> None:
        with self._change:
            self.closed = True
            self._change.notify_all()


def _resolve(jobs: Sequence[Job]) -> None:
    """Set the futures of these jobs, except those whose callers have given up."""
    for job in jobs:
        future = job.future
        if future.done():
            continue
        if job.error is None:
            future.set_result(job.value)
        else:
            future.set_exception(job.error)


def too_late() -> StoreUnavailable:
    """The error for a job that was not begun in time, and never will be."""
    return StoreUnavailable("the store did not come to it in time; nothing changed, retry later")
