"""What callers hand to the engine's threads, and how the answers come back.

A job is a function and a future. It waits in an inbox until a thread takes it or its caller
withdraws it, and exactly one of the two succeeds:

1. A job that was withdrawn never runs; a job that was taken has an outcome, and its caller gets it.
2. Both ends of (1) are one operation on a deque, which Python makes atomic; there is no lock to
   take per job, and a thread is woken only if it sleeps.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from asyncio import Future as LoopFuture
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from math import inf
from typing import Generic, TypeVar

from apsw import Connection
from msgspec import Struct

T = TypeVar("T")

Work = Callable[[Connection], object]
"""A whole function: it reads, decides and writes on the connection, and returns.

It may be run again if the transaction around it is lost, so it changes nothing but the database
and takes clocks, ids and randomness as values. It neither begins, commits nor rolls back, and
leaves no cursor behind.
"""


class Done(Struct, frozen=True):
    """The work returned `value`, and what it wrote is durable."""

    value: object


class Failed(Struct, frozen=True):
    """The work, or its transaction, raised `error`; nothing that it wrote remains."""

    error: Exception


Outcome = Done | Failed


class Job(Generic[T]):
    """A function on its way to a connection. Without a loop, its future belongs to a thread."""

    __slots__ = ("asked", "deadline", "expires", "future", "loop", "work")

    def __init__(
        self,
        work: Callable[[Connection], T],
        future: LoopFuture[T] | ThreadFuture[T],
        *,
        loop: AbstractEventLoop | None,
        asked: float,
        deadline: float,
        expires: float = inf,
    ) -> None:
        """`asked` for at this time and not begun after `deadline`, by the engine's clock; given up at `expires`, by the
        loop's."""
        self.work = work
        self.future = future
        self.loop = loop
        self.asked = asked
        self.deadline = deadline
        self.expires = expires


AnyJob = Job[object]
Answer = tuple[AnyJob, Outcome]


class Inbox:
    """Jobs that nobody has begun. Threads take from the front; callers may take theirs back."""

    def __init__(self) -> None:
        self._jobs: deque[AnyJob] = deque()
        self._change = threading.Condition(threading.Lock())
        self._asleep = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, job: AnyJob, *, wake: bool = True) -> None:
        """Add a job, and wake a thread if all of them sleep. Without `wake` it is left to be found."""
        self._jobs.append(job)
        if wake:
            self.wake()

    def wake(self) -> None:
        """Wake a thread if all of them sleep and there is something to do."""
        # A sleeper counts itself before it looks at the queue, and we look at the count after
        # filling it: one of us sees the other.
        if self._asleep and self._jobs:
            with self._change:
                self._change.notify()

    def take_nowait(self) -> AnyJob | None:
        """The job that has waited longest, which is begun by this; None if there is none."""
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def take_asked_before(self, moment: float) -> list[AnyJob]:
        """Those that were asked for at `moment` or earlier, by the engine's clock."""
        taken: list[AnyJob] = []
        while (job := self.take_nowait()) is not None:
            if job.asked > moment:
                self._jobs.appendleft(job)
                break
            taken.append(job)
        return taken

    def waiting(self) -> Iterable[AnyJob]:
        """Those that nobody has begun at this moment."""
        return self._jobs.copy()

    def withdraw(self, job: AnyJob) -> bool:
        """Take `job` back. False if it has been taken: then its outcome will come."""
        try:
            self._jobs.remove(job)
        except ValueError:
            return False
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until there is a job (True), or the inbox is closed or time is up (False)."""
        if self._jobs:
            return True
        with self._change:
            self._asleep += 1
            try:
                self._change.wait_for(lambda: self._jobs or self._closed, timeout_s)
            finally:
                self._asleep -= 1
        return bool(self._jobs)

    def close(self) -> None:
        """Wake all threads; from now on `wait` does not sleep. Jobs inside can still be taken."""
        with self._change:
            self._closed = True
            self._change.notify_all()


def deliver(answers: Iterable[Answer]) -> None:
    """Tell every caller; each event loop is woken once."""
    by_loop: dict[AbstractEventLoop | None, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, group in by_loop.items():
        if loop is None:
            resolve(group)
            continue
        try:
            loop.call_soon_threadsafe(resolve, group)
        except RuntimeError:
            if not loop.is_closed():
                raise
            # The loop was closed while we worked: nobody is left to be told.


def resolve(answers: Iterable[Answer]) -> None:
    """Set the futures. Callers that have given up meanwhile are passed over."""
    for job, outcome in answers:
        future = job.future
        if future.done():
            continue
        if isinstance(outcome, Done):
            future.set_result(outcome.value)
        else:
            future.set_exception(outcome.error)
