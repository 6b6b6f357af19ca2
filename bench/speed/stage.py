"""How a group is measured: everybody in turns, round by round, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property

from _figures import BARE, OURS, Better, Line
from msgspec import Struct
from serving.load import Found, Job

from speed.servers import (
    CannotMeasure,
    Cast,
    DoesNotStart,
    Server,
    measured,
    on_disk,
    started,
    upstream,
)
from speed.subjects import Subject

ALWAYS = (BARE, OURS)
"""Who takes part in every round, however long it takes."""
LONG_S = 5.0
"""Beyond this a peer is asked once: there are many of them, and half an hour is long enough."""


class Stage:
    """What a group is given: who takes part, how often, and the servers, which are started when first needed."""

    def __init__(
        self, subjects: Sequence[Subject], rounds: int, tell: Callable[[str], None]
    ) -> None:
        self.subjects = subjects
        self.rounds = rounds
        self.tell = tell
        """Says what is going on."""
        self.skipped: dict[str, str] = {}
        """Who could not take part, and why."""
        self.filled: dict[tuple[str, tuple[str, ...]], str] = {}
        """Server and conversations → why it has not got them; empty where it has."""
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def cast(self) -> Cast:
        """Everybody, started: once for all groups, since some take half a minute."""
        self.tell("starting the servers")
        behind = self._stack.enter_context(upstream())
        folder = self._stack.enter_context(on_disk())
        cast = Cast(self.subjects, behind, folder)
        self._stack.callback(cast.close)
        self.skipped |= cast.skipped
        return cast

    def fresh(self) -> Iterator[Server]:
        """Everybody in turns, each started anew for its round, and stopped after it; peers once."""
        with upstream() as behind, on_disk() as folder:
            for number in range(self.rounds):
                for subject in self.subjects:
                    if number and subject.name not in ALWAYS:
                        continue
                    self.tell(f"round {number + 1} of {self.rounds}: starting {subject.name}")
                    try:
                        with started(subject, behind, folder / f"{subject.name}-{number}") as it:
                            yield it
                    except DoesNotStart as failure:
                        self.skipped[subject.name] = str(failure)


class Reading(Struct, frozen=True):
    """A line of the table, and how its value is made of what a job has found."""

    what: str
    unit: str
    better: Better
    value: Callable[[Found], float]
    drawn: bool = True
    curve: str = ""
    at: float = 0.0

    def line(self) -> Line:
        return Line(
            self.what, self.unit, self.better, drawn=self.drawn, curve=self.curve, at=self.at
        )


class Probe(Struct, frozen=True):
    """A job that everybody is given, and what is read from it."""

    job: Job
    readings: Sequence[Reading]
    for_server: Callable[[Server, Job], Job | str] = lambda _server, job: job
    """How one server is asked; or why it is not."""


class Notebook:
    """The lines of a group, as they fill."""

    def __init__(self, stage: Stage, probes: Sequence[Probe]) -> None:
        self._stage = stage
        self._probes = probes
        self._lines = {
            reading.what: reading.line() for probe in probes for reading in probe.readings
        }
        self._enough: set[tuple[int, str]] = set()
        """Probes of which a server has had enough."""

    def lines(self) -> list[Line]:
        return list(self._lines.values())

    def fill(self, servers: Sequence[Server]) -> list[Line]:
        """All rounds of all probes, on all servers, in turns."""
        cast = self._stage.cast
        for number in range(self._stage.rounds):
            for index, probe in enumerate(self._probes):
                for name in [each.name for each in servers]:
                    server = cast.get(name)
                    if server is None or (index, name) in self._enough:
                        continue
                    where = f"round {number + 1} of {self._stage.rounds}"
                    self._stage.tell(f"{where}: {probe.readings[0].what}, {name}")
                    self.take(index, probe, server)
                    cast.calm(server, overtaxed=(index, name) in self._enough)
        return self.lines()

    def take(self, index: int, probe: Probe, server: Server) -> None:
        """One probe on one server. One that fails, or does not end in time, is not tried again."""
        job = probe.for_server(server, probe.job)
        if isinstance(job, str):
            self._give_up(index, probe, server, job)
            return
        began = time.perf_counter()
        try:
            found = measured(server, job)
        except CannotMeasure as failure:
            self._give_up(index, probe, server, str(failure))
            return
        if server.name not in ALWAYS and time.perf_counter() - began > LONG_S:
            self._give_up(index, probe, server, "one round: it takes long")
        if found.cut:
            self._give_up(
                index, probe, server, f"stopped after {job.limit_s:.0f} s, and not asked again"
            )
        if found.cut and not found.turns and not found.tokens:
            self._give_up(index, probe, server, f"nothing came in {job.limit_s:.0f} s")
            return
        for reading in probe.readings:
            values = self._lines[reading.what].values
            values.setdefault(server.name, []).append(reading.value(found))

    def _give_up(self, index: int, probe: Probe, server: Server, why: str) -> None:
        self._enough.add((index, server.name))
        for reading in probe.readings:
            self._lines[reading.what].notes[server.name] = why


def edge(each: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(each)[int(len(each) * 0.99)]
