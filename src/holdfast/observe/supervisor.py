"""Starts the background tasks and threads that live as long as the process; no other module starts such work.

    supervisor = TaskSupervisor()
    sweeper = supervisor.keep("sweeper", recovery.sweep_and_wait)      # on the running loop
    heart = await supervisor.keep_in_thread("heart", lease.beat)       # on a loop and a thread of its own
    …
    await supervisor.stop(sweeper, heart)

A supervised task repeats one *round* until it is stopped.

1. No error ends it. Each is counted, the next round starts after a back-off, and until a round succeeds the task
   counts as failing: `/readyz` and the metrics show that.
2. The first error of a series is logged with its stack trace, and so is an error of another kind. Of the rest, every
   second, fourth, eighth … is logged in one line: an outage of an hour is some lines, not thousands. The end of a
   series is logged, too.
3. A task ends only when it is stopped, or with its loop or the process.

A thread that cannot continue after an error, because what it owns can no longer be trusted, is started by
`start_thread`: the error is logged with its stack trace, and the thread's owner handles its end.

Time is the running loop's, so that a simulation can control it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

from msgspec import Struct

from holdfast.errors import StoreFault, StoreUnavailable
from holdfast.observe.events import warn
from holdfast.observe.tally import Tally

log = logging.getLogger("holdfast.tasks")

Round = Callable[[], Awaitable[object]]
"""Some work, and the wait before or after it. Raises if the work fails."""


class Backoff(Struct, frozen=True, kw_only=True):
    """How long a task waits after so many errors in a row."""

    first_s: float = 0.5
    most_s: float = 5.0
    """Short: there are few supervised tasks, and the server depends on them."""

    def pause_s(self, failures: int) -> float:
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 16))


DEFAULT = Backoff()


class SupervisedTask:
    """One task and its state. Made by a supervisor."""

    def __init__(self, name: str, work: Round, tally: Tally, backoff: Backoff) -> None:
        self.name = name
        self._work = work
        self._tally = tally
        self._backoff = backoff
        self._failures = 0
        """Errors since the last successful round."""
        self._kind: type[BaseException] | None = None
        self._stop: Callable[[], object] = lambda: None
        self._ended: Callable[[], Awaitable[object]]

    @property
    def is_failing(self) -> bool:
        """Whether its last round ended in an error."""
        return self._failures > 0

    def note_success(self) -> None:
        """The work has recovered: for a round that runs for long and cannot report by ending."""
        if self._failures:
            warn("task.recovered", task=self.name, failures=self._failures)
        self._failures, self._kind = 0, None

    def note_failure(self, error: BaseException) -> float:
        """Count an error; returns how long to wait after it."""
        self._failures += 1
        self._tally.task_failures[self.name] += 1
        pause_s = self._backoff.pause_s(self._failures)
        is_news = type(error) is not self._kind
        self._kind = type(error)
        if is_news and not _is_known(error):
            log.error("%s failed unexpectedly", self.name, exc_info=error)
        if is_news or self._failures & (self._failures - 1) == 0:
            why = f"{type(error).__name__}: {error}"
            warn("task.failed", task=self.name, failures=self._failures, why=why)
        return pause_s

    async def repeat(self) -> None:
        """Run one round after the other, until this task is cancelled."""
        while True:
            try:
                await self._work()
            except asyncio.CancelledError as error:
                if _this_task().cancelling():
                    raise
                # The round itself was not cancelled, but something that it waited for.
                pause_s = self.note_failure(error)
            except Exception as error:
                pause_s = self.note_failure(error)
            else:
                self.note_success()
                continue
            await asyncio.sleep(pause_s)

    def start(self) -> None:
        """Start on the running loop."""
        task = asyncio.create_task(self.repeat(), name=f"holdfast-{self.name}")
        self._stop = task.cancel
        self._ended = lambda: asyncio.wait([task])

    async def start_in_thread(self) -> None:
        """Start on a thread and a loop of its own, so that a busy main loop does not delay it."""
        stopped, begun = threading.Event(), threading.Event()
        self._stop = stopped.set
        thread = start_thread(f"holdfast-{self.name}", lambda: self._run_loops(stopped, begun))
        self._ended = lambda: asyncio.to_thread(thread.join)
        await asyncio.to_thread(begun.wait)

    def _run_loops(self, stopped: threading.Event, begun: threading.Event) -> None:
        """Run the loop; if the loop itself fails, for example without a free file descriptor, run another."""
        while not stopped.is_set():
            try:
                asyncio.run(self._repeat_until(stopped, begun))
            except Exception as error:
                begun.set()
                stopped.wait(self.note_failure(error))

    async def _repeat_until(self, stopped: threading.Event, begun: threading.Event) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(self.repeat())

        def stop() -> None:
            stopped.set()
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # the loop has ended, and `stopped` keeps another from starting

        self._stop = stop
        begun.set()
        await asyncio.wait([task])

    async def stop(self) -> None:
        """Stop the task, and wait until it has ended."""
        self._stop()
        await self._ended()

    def __repr__(self) -> str:
        return f"<SupervisedTask {self.name} {self._failures} failures in a row>"


class TaskSupervisor:
    """Starts the tasks of one process, and knows their state."""

    def __init__(self) -> None:
        self.tally = Tally()
        """The numbers of the process; other parts of it count here as well."""
        self._tasks: list[SupervisedTask] = []

    @property
    def failing(self) -> tuple[str, ...]:
        """The names of the tasks whose last round ended in an error."""
        return tuple(sorted(each.name for each in self._tasks if each.is_failing))

    def keep(self, name: str, work: Round, backoff: Backoff = DEFAULT) -> SupervisedTask:
        """Repeat `work` on the running loop until the task is stopped."""
        task = self._new(name, work, backoff)
        task.start()
        return task

    async def keep_in_thread(
        self, name: str, work: Round, backoff: Backoff = DEFAULT
    ) -> SupervisedTask:
        """Repeat `work` on a thread with a loop of its own until the task is stopped."""
        task = self._new(name, work, backoff)
        await task.start_in_thread()
        return task

    def _new(self, name: str, work: Round, backoff: Backoff) -> SupervisedTask:
        # Here, and not at the first failure: that may happen in another thread while the counts are being read.
        self.tally.task_failures[name] += 0
        task = SupervisedTask(name, work, self.tally, backoff)
        self._tasks.append(task)
        return task

    async def stop(self, *tasks: SupervisedTask) -> None:
        """Stop these tasks, and wait until all of them have ended. A task that was stopped before stays stopped."""
        await asyncio.gather(*(each.stop() for each in tasks))
        self._tasks = [each for each in self._tasks if each not in tasks]


def start_thread(name: str, main: Callable[[], None]) -> threading.Thread:
    """Start a thread whose owner handles its end. An error that ends it is logged with its stack trace."""

    def run() -> None:
        try:
            main()
        except Exception as error:
            log.error("the thread %s has ended unexpectedly", name, exc_info=error)

    # A daemon: it may wait for something that never comes, and must not keep the process from ending.
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _is_known(error: BaseException) -> bool:
    """Whether an error needs no stack trace: the store is unavailable, which is no mistake in our code."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreFault)


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "a round runs in a task"
    return task
