"""An event loop in which time is a number and chance has a seed.

Nothing here sleeps. When nobody has anything to do, time jumps to the next timer. The same seed gives the same
run, callback by callback.

Work belongs to a *place*: one process of a simulated system, or the world around them. A place is a context
variable, so whatever a task starts runs where the task runs. Within a place callbacks run in the order in which
they were scheduled, as asyncio promises; between places the order is drawn. A place that is paused keeps its
work for later, like a process that is stopped; one that is dead does nothing any more, ever, not even clean up.
`real_time.py` has a loop with places whose time is the world's.

1. A run that cannot go on (nothing is ready, nothing is scheduled) raises `Stuck`, and so does one that takes
   too many steps or too much virtual time.
2. Code of a dead place does not run, unless it is buried at the end (`bury`), when nothing counts any more.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.events import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Literal, TypeVar

T = TypeVar("T")

STEPS_MAX = 500_000
TIME_S_MAX = 7_200.0


class Stuck(Exception):
    """The simulated system cannot go on, or does not come to an end."""


class Place:
    """One process, or the world outside: a queue of its own. In real time, of what it cannot do while it is stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Handle] = deque()
        self.state: Literal["up", "paused", "dead"] = "up"
        self.context = copy_context()
        self.context.run(here.set, self)

    def __repr__(self) -> str:
        return f"<Place {self.name} {self.state} ready={len(self.ready)}>"


here: ContextVar[Place] = ContextVar("place")


class Places(asyncio.BaseEventLoop):
    """A loop whose work belongs to places, and which keeps every task until its end: what is collected in the middle
    would run its clean-up at some odd moment."""

    def __init__(self) -> None:
        super().__init__()
        self._places: list[Place] = []
        self.outside = self.new_place("outside")
        self._tasks: dict[asyncio.Task[Any], Place] = {}
        self.set_exception_handler(lambda loop, context: None)  # `unheeded` tells

    def new_place(self, name: str) -> Place:
        place = Place(name)
        self._places.append(place)
        return place

    def start(
        self, place: Place, work: Coroutine[Any, Any, T], *, name: str = ""
    ) -> asyncio.Task[T]:
        """Run a coroutine in a place."""
        return self.create_task(work, name=name or None, context=place.context.copy())

    def call_in(
        self, place: Place, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> None:
        self.call_later(delay_s, callback, *args, context=place.context.copy())

    def kill(self, place: Place) -> None:
        """From now on nothing of this place runs, until it is buried."""
        place.state = "dead"

    def bury(self) -> None:
        """End every task that is left, so that nothing of it is reported as forgotten."""
        for place in self._places:
            place.state = "up"
        for _ in range(50):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            self.run_until_complete(_breathe())
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]

    def tasks(self, place: Place) -> list[asyncio.Task[Any]]:
        """All that were ever started in a place."""
        return [task for task, home in self._tasks.items() if home is place]

    def unheeded(self) -> list[str]:
        """What tasks have died of that nobody has asked about. In a place that is dead nobody can."""
        return [
            f"{task.get_name()}: {task.exception()!r}"
            for task, place in self._tasks.items()
            if place.state != "dead" and _is_unheeded(task)
        ]

    def create_task(  # type: ignore[override]
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = here.get(self.outside) if context is None else context[here]
        return task


class SimulatedLoop(Places):
    """Virtual time, seeded order, places."""

    def __init__(self, rng: Random, *, time_s_max: float = TIME_S_MAX) -> None:
        super().__init__()
        self._rng = rng
        self._now_s = 0.0
        self._timers: list[tuple[float, float, int, TimerHandle]] = []
        self._count = 0
        self._time_s_max = time_s_max
        self.steps = 0

    def bury(self) -> None:
        self.steps = 0
        super().bury()

    # ── what asyncio asks of a loop ──

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready_up(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        self._count += 1
        # Timers of one instant go off in any order.
        heapq.heappush(self._timers, (when, self._rng.random(), self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        pass

    def _ready_up(self, handle: Handle) -> None:
        place = handle._context.get(here, self.outside)  # type: ignore[attr-defined]
        place.ready.append(handle)

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Stuck(f"no end after {self.steps} steps, at {self._now_s:.3f} s")
        able = [each for each in self._places if each.ready and each.state == "up"]
        if not able:
            self._jump()
            return
        place = able[0] if len(able) == 1 else able[int(self._rng.random() * len(able))]
        handle = place.ready.popleft()
        if not handle._cancelled:
            handle._run()

    def _jump(self) -> None:
        """Nobody has anything to do now: go to when somebody has."""
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"deadlock at {self._now_s:.3f} s: {self._waiting()}")
        self._now_s = max(self._now_s, timers[0][0])
        if self._now_s > self._time_s_max:
            raise Stuck(f"no end after {self._now_s:.0f} s of virtual time: {self._waiting()}")
        while timers and timers[0][0] <= self._now_s:
            timer = heapq.heappop(timers)[3]
            if not timer._cancelled:
                self._ready_up(timer)

    def _waiting(self) -> str:
        return ", ".join(
            f"{task.get_name()} ({task.get_coro().__qualname__})"  # type: ignore[union-attr]
            for task in self._tasks
            if not task.done()
        )

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _is_unheeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task._log_traceback


async def _breathe() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def run(loop: Places, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in the world outside, to its end; then bury what is left."""
    try:
        return loop.run_until_complete(loop.start(loop.outside, main, name="main"))
    finally:
        loop.bury()
        loop.run_until_complete(loop.start(loop.outside, loop.shutdown_asyncgens()))
        loop.close()
