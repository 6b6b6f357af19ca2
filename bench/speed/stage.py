"""How a group is measured: in turns, round by round, so that a busy machine slows all alike.

Holdfast and the bare proxy take part in every round; peers in the first, unless more was asked for, and only as long
as the group has time for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from _figures import BARE, OURS, Better, Line
from _names import DIRECT
from msgspec import Struct
from serving.load import Found, Job
from serving.process import rss_mb

from speed.servers import (
    CannotMeasure,
    Cast,
    DoesNotStart,
    Server,
    measured,
    on_disk,
    settle,
    started,
    upstream,
)
from speed.subjects import Subject

NO_PEERS = (DIRECT, BARE, OURS)
"""Who takes part in every round, however long it takes. The others are many: they have rounds, and a time, of their own."""
PEERS_S = 300.0
REST_S = 3.0
"""How long a server that was just started may take to come to rest: some never do."""
TIME_IS_UP = "left out: the time that this group has for peers was up"


def is_peer(name: str) -> bool:
    return name not in NO_PEERS


class Start(Struct, frozen=True):
    """What a server took to start, and its memory when it had come to rest."""

    name: str
    ready_s: float
    rest_mb: float


class Stage:
    """What a group is given: who takes part, how often, and the servers, which are started when first needed."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        rounds: int,
        tell: Callable[[str], None],
        *,
        peer_rounds: int = 1,
    ) -> None:
        self.subjects = subjects
        self.rounds = rounds
        self.peer_rounds = peer_rounds
        self.late: dict[str, str] = {}
        """Peers that this group had no time for."""
        self.peers_left_s = PEERS_S
        """How long the peers may still take in this group, all together."""
        self.starts: list[Start] = []
        """Of every server that was started for a group that wants fresh ones."""
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

    def begin(self, peers_s: float) -> None:
        """The next group, which has so much time for all peers together."""
        self.peers_left_s, self.late = peers_s, {}

    def rounds_of(self, name: str) -> int:
        return min(self.rounds, self.peer_rounds) if is_peer(name) else self.rounds

    def has_time_for(self, name: str) -> bool:
        return not is_peer(name) or self.peers_left_s > 0

    @contextmanager
    def spending_on(self, name: str) -> Iterator[None]:
        """What is done inside is done for that server; a peer's share of time gets less by it."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if is_peer(name):
                self.peers_left_s -= time.perf_counter() - began

    def fresh(self) -> Iterator[Server]:
        """Everybody in turns, each started anew for its round, and stopped after it."""
        with upstream() as behind, on_disk() as folder:
            for number in range(self.rounds):
                for subject in self.subjects:
                    if number >= self.rounds_of(subject.name) or subject.name in self.skipped:
                        continue
                    if not self.has_time_for(subject.name):
                        self.late[subject.name] = TIME_IS_UP
                        continue
                    self.tell(f"round {number + 1} of {self.rounds}: starting {subject.name}")
                    with self.spending_on(subject.name):
                        yield from self._one(subject, behind, folder / f"{subject.name}-{number}")

    def _one(self, subject: Subject, behind: Server, folder: Path) -> Iterator[Server]:
        try:
            with started(subject, behind, folder) as server:
                settle(server, REST_S)
                self.starts.append(Start(server.name, server.ready_s, rss_mb(server.pid)))
                yield server
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
    for_peers: bool = True


class Notebook:
    """The lines of a group, as they fill."""

    def __init__(self, stage: Stage, probes: Sequence[Probe]) -> None:
        self.stage = stage
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
        names = [each.name for each in servers]
        for number in range(self.stage.rounds):
            where = f"round {number + 1} of {self.stage.rounds}"
            for index, probe in enumerate(self._probes):
                for name in names:
                    if number < self.stage.rounds_of(name) and self._wants(index, probe, name):
                        self.stage.tell(f"{where}: {probe.readings[0].what}, {name}")
                        self._visit(index, probe, name)
        return self.lines()

    def _wants(self, index: int, probe: Probe, name: str) -> bool:
        return (index, name) not in self._enough and (probe.for_peers or not is_peer(name))

    def _visit(self, index: int, probe: Probe, name: str) -> None:
        cast = self.stage.cast
        server = cast.get(name)
        if server is None:
            return
        if not self.stage.has_time_for(name):
            self._give_up(index, probe, server, TIME_IS_UP)
            return
        with self.stage.spending_on(name):
            self.take(index, probe, server)
            cast.calm(server, overtaxed=(index, name) in self._enough)

    def take(self, index: int, probe: Probe, server: Server) -> None:
        """One probe on one server. One that fails, or does not end in time, is not tried again."""
        job = probe.for_server(server, probe.job)
        if isinstance(job, str):
            self._give_up(index, probe, server, job)
            return
        try:
            found = measured(server, job)
        except CannotMeasure as failure:
            self._give_up(index, probe, server, str(failure))
            return
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
