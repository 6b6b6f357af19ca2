"""The numbers of a server: of its one process, or of all workers together.

Each worker publishes its numbers on the board that they share, every second and whenever it answers `/metrics`. The
supervisor adds the numbers of a worker that has ended to the past ones, before another worker takes its place.

1. Counters never go back, whichever worker answers: a worker publishes its numbers before it answers with them.
2. A worker that is killed loses what it had not published, a second's worth at most. A worker that ends has
   published all.
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
"""Metrics of which the server's is the least of its processes', not the sum."""


class ProcessNumbers(Struct, frozen=True, kw_only=True):
    """The numbers of one process."""

    run: int = 1
    """Which run of this worker's place it is, counted from 1."""
    tally: WrittenTally
    load: Load
    process: dict[str, float]


class PastNumbers(Struct, frozen=True, kw_only=True):
    """The sum of the numbers of workers that have ended."""

    tally: WrittenTally = WrittenTally()
    cpu_s: float = 0.0
    restarts: int = 0
    counted: dict[int, int] = {}
    """The last run of each place whose numbers are included."""

    def with_ended(
        self, place: int, shown: ProcessNumbers | None, *, run: int, restarts: int
    ) -> PastNumbers:
        """The sum with one more worker that has ended. It may never have published anything."""
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
    """Add up the numbers of all places and the past ones. A run that the past includes is not counted again."""
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
        queued=max((each.queued for each in loads), default=0),  # each worker sees the whole queue
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
        """The numbers of the whole server; `sessions` are those of this process."""
        ...

    def tally(self, sessions: Sessions) -> Tally:
        """The tally of the whole server alone, to be read at once: it may be the one that is counted in."""
        ...

    def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """A context in which this process publishes its numbers; `refresh` is called each time."""
        ...


class OwnNumbers:
    """The numbers of a single process."""

    def gather(self, sessions: Sessions) -> ServerNumbers:
        return gather({0: shown_by(sessions)}, PastNumbers())

    def tally(self, sessions: Sessions) -> Tally:
        # Without the numbers of the process: reading them loads Prometheus's library, which a server at rest can spare.
        return sessions.tally

    def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class SharedNumbers:
    """The numbers of one worker among several. The board's last place holds the past numbers."""

    def __init__(self, board: SharedSlots, place: int, *, places: int, run: int) -> None:
        self._board = board
        self._place = place
        self._places = places
        self._run = run

    def gather(self, sessions: Sessions) -> ServerNumbers:
        self.show(sessions)  # first: the next answer, by another worker, must not be lower
        found = {place: read_shown(self._board, place) for place in range(self._places)}
        # Last: a worker that ended meanwhile is in the past numbers, or still in those found.
        past = read_past(self._board, self._places)
        return gather({place: each for place, each in found.items() if each}, past)

    def tally(self, sessions: Sessions) -> Tally:
        return self.gather(sessions).tally

    def show(self, sessions: Sessions) -> None:
        shown = shown_by(sessions, run=self._run)
        self._board.write(self._place, msgspec.msgpack.encode(shown))

    @asynccontextmanager
    async def showing(
        self, sessions: Sessions, *, refresh: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Publish them every second, and once more at the end."""

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
    """Prometheus's own metrics of this process."""
    return prometheus_client.ProcessCollector(registry=None).collect()


def read_shown(board: SharedSlots, place: int) -> ProcessNumbers | None:
    text = board.read(place)
    return msgspec.msgpack.decode(text, type=ProcessNumbers) if text else None


def read_past(board: SharedSlots, places: int) -> PastNumbers:
    text = board.read(places)
    return msgspec.msgpack.decode(text, type=PastNumbers) if text else PastNumbers()


def note_end(board: SharedSlots, place: int, *, places: int, run: int, restarts: int) -> None:
    """In the supervisor: add the numbers of a worker that has ended to the past ones."""
    past = read_past(board, places).with_ended(
        place, read_shown(board, place), run=run, restarts=restarts
    )
    board.write(places, msgspec.msgpack.encode(past))
