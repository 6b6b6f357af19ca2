"""The numbers of a server: of its one process, or of all workers together.

Each worker shows its numbers to the others, every second and whenever it is asked for all of them. The supervisor adds
those of a worker that has ended to what is past, before another one takes its place.

1. The sum of what has happened never goes back, whichever worker is asked: what somebody was told is shown.
2. A worker that is killed takes what it had not shown with it, a second's worth at most. One that ends has shown all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

import msgspec
from msgspec import Struct

from holdfast import limits
from holdfast.libraries import prometheus_client
from holdfast.observe.tally import Tally, WrittenTally, sum_of, written
from holdfast.server.processes.shared_slots import SharedSlots
from holdfast.sessions.sessions import Load, Sessions

CPU = "process_cpu_seconds_total"
_OLDEST = frozenset({"process_start_time_seconds", "process_max_fds"})
"""What is not added up: of these the least counts."""


class ProcessNumbers(Struct, frozen=True, kw_only=True):
    """The numbers of one process."""

    run: int = 1
    """The how-manieth in its place."""
    tally: WrittenTally
    load: Load
    process: dict[str, float]


class PastNumbers(Struct, frozen=True, kw_only=True):
    """What is left of workers that have ended."""

    tally: WrittenTally = WrittenTally()
    cpu_s: float = 0.0
    restarts: int = 0
    counted: dict[int, int] = {}
    """By place, the last run whose numbers are in here."""

    def with_ended(
        self, place: int, shown: ProcessNumbers | None, *, run: int, restarts: int
    ) -> PastNumbers:
        """The same, and one more that has ended. It may never have shown anything."""
        mine = shown if shown is not None and shown.run == run else None
        tallies = [self.tally, *([mine.tally] if mine else [])]
        return PastNumbers(
            tally=written(sum_of(tallies)),
            cpu_s=self.cpu_s + (mine.process.get(CPU, 0.0) if mine else 0.0),
            restarts=restarts,
            counted={**self.counted, place: run},
        )


class ServerNumbers(Struct, frozen=True, kw_only=True):
    """The numbers of a whole server."""

    tally: Tally
    load: Load
    process: Mapping[str, float]
    workers: int
    restarts: int


def gather(shown: Mapping[int, ProcessNumbers], past: PastNumbers) -> ServerNumbers:
    """All of it, by place. What is counted in the past already is not counted again."""
    there = [each for place, each in shown.items() if each.run > past.counted.get(place, 0)]
    process = _summed([each.process for each in there])
    if CPU in process:
        process[CPU] += past.cpu_s
    return ServerNumbers(
        tally=sum_of([past.tally, *(each.tally for each in there)]),
        load=_load([each.load for each in there]),
        process=process,
        workers=len(there),
        restarts=past.restarts,
    )


def _summed(processes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in processes:
        for name, value in each.items():
            before = total.get(name)
            if before is None:
                total[name] = value
            else:
                total[name] = min(before, value) if name in _OLDEST else before + value
    return total


def _load(loads: Sequence[Load]) -> Load:
    return Load(
        turns=sum(each.turns for each in loads),
        lanes=sum(each.lanes for each in loads),
        waiting=sum(each.waiting for each in loads),
        queued=max((each.queued for each in loads), default=0),  # each sees all that there are
        watchers=sum(each.watchers for each in loads),
        store_queue=sum(each.store_queue for each in loads),
        read_only=any(each.read_only for each in loads),
        damaged=max((each.damaged for each in loads), default=0),
        live=all(each.live for each in loads),
        failing=tuple(sorted({name for each in loads for name in each.failing})),
    )


# ── showing ──────────────────────────────────────────────────────────────────────────────────


class Numbers(Protocol):
    def gather(self, sessions: Sessions) -> ServerNumbers:
        """The numbers of the server whose sessions these are, or some of them."""
        ...

    def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """Let other workers see how things are inside; `refresh` is called as often as they are shown."""
        ...


class OwnNumbers:
    """Of one process that serves alone."""

    def gather(self, sessions: Sessions) -> ServerNumbers:
        return gather({0: shown_by(sessions)}, PastNumbers())

    def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class SharedNumbers:
    """Of one worker among several. The last place of the board is for what is past."""

    def __init__(self, board: SharedSlots, place: int, *, places: int, run: int) -> None:
        self._board = board
        self._place = place
        self._places = places
        self._run = run

    def gather(self, sessions: Sessions) -> ServerNumbers:
        self.show(sessions)  # first: what somebody is told now, the others must know of
        found = {place: read_shown(self._board, place) for place in range(self._places)}
        # Last: who ended meanwhile is in here, or still among those.
        past = read_past(self._board, self._places)
        return gather({place: each for place, each in found.items() if each}, past)

    def show(self, sessions: Sessions) -> None:
        shown = shown_by(sessions, run=self._run)
        self._board.write(self._place, msgspec.msgpack.encode(shown))

    @asynccontextmanager
    async def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Show them every second, and once more at the end."""

        async def show_and_wait() -> None:
            self.show(sessions)
            refresh()
            await asyncio.sleep(limits.numbers_s)

        task = sessions.supervisor.keep("numbers", show_and_wait)
        try:
            yield
        finally:
            await sessions.supervisor.stop(task)
            self.show(sessions)


def shown_by(sessions: Sessions, *, run: int = 1) -> ProcessNumbers:
    process = {sample.name: sample.value for each in process_metrics() for sample in each.samples}
    return ProcessNumbers(
        run=run, tally=written(sessions.tally), load=sessions.load(), process=process
    )


def process_metrics() -> Iterable[prometheus_client.Metric]:
    """What there is to say about this process itself."""
    return prometheus_client.ProcessCollector(registry=None).collect()


def read_shown(board: SharedSlots, place: int) -> ProcessNumbers | None:
    text = board.read(place)
    return msgspec.msgpack.decode(text, type=ProcessNumbers) if text else None


def read_past(board: SharedSlots, places: int) -> PastNumbers:
    text = board.read(places)
    return msgspec.msgpack.decode(text, type=PastNumbers) if text else PastNumbers()


def note_end(board: SharedSlots, place: int, *, places: int, run: int, restarts: int) -> None:
    """In the supervisor: a worker has ended, and its numbers are past."""
    past = read_past(board, places).with_ended(
        place, read_shown(board, place), run=run, restarts=restarts
    )
    board.write(places, msgspec.msgpack.encode(past))
