"""Tokens: how many a core can pass on, what one costs at the pace of a reader, how much later the first one comes."""

from __future__ import annotations

from functools import partial
from statistics import median

from _figures import Line
from _names import DIRECT, FIRST, FIRST_EDGE, LONG, PACE, SHORT, tokens_at
from msgspec import Struct
from msgspec.structs import replace
from serving.load import Found, Job

from speed.servers import Server
from speed.stage import Notebook, Probe, Reading, Stage, edge, is_peer


class FlatOut(Struct, frozen=True):
    """Streams that go as fast as they can: how many, how often each asks, and how long the answers are."""

    streams: int
    answers: int
    tokens: int
    limit_s: float
    of_peers: int = 0
    """How often a peer's streams ask; never if it is not asked at all."""

    def probe(self) -> Probe:
        job = Job(
            "answers",
            f"flat{self.tokens}",
            streams=self.streams,
            turns=self.answers,
            tokens=self.tokens,
            limit_s=self.limit_s,
        )
        reading = Reading(tokens_at(self.streams, self.tokens), "/s", "higher", _per_core)
        return Probe(job, [reading], self._for_server, for_peers=bool(self.of_peers))

    def _for_server(self, server: Server, job: Job) -> Job:
        return replace(job, turns=self.of_peers) if is_peer(server.name) else job


FLAT_OUT = (
    FlatOut(1, 20, SHORT, 4.0, of_peers=10),
    FlatOut(50, 2, SHORT, 10.0, of_peers=1),
    FlatOut(1, 40, LONG, 6.0),
    FlatOut(50, 2, LONG, 45.0, of_peers=1),
    FlatOut(500, 1, LONG, 20.0),
)
PACED = 50
PACED_BEGIN_S = 10.0
"""How long 50 streams may take to begin; the upstream talks for a little longer than that and the window."""
TURNS = 100
TURNS_S = 8.0


def _per_core(found: Found) -> float:
    return found.tokens / found.cpu_s


def tokens(stage: Stage) -> list[Line]:
    return Notebook(stage, [each.probe() for each in FLAT_OUT]).fill(stage.cast.servers)


def pace(stage: Stage) -> list[Line]:
    per_token = Reading(PACE, "µs", "lower", lambda found: found.cpu_s / found.tokens * 1e6)
    job = Job("pace", "paced", streams=PACED, window_s=3.0, limit_s=PACED_BEGIN_S)
    probe = Probe(job, [per_token])
    return Notebook(stage, [probe]).fill(stage.cast.servers)


def first(stage: Stage) -> list[Line]:
    reading = partial(Reading, unit="ms", better="lower", drawn=False)
    readings = [
        reading("first token, p50", value=lambda found: median(found.each_ms)),
        reading("first token, p99", value=lambda found: edge(found.each_ms)),
    ]
    probe = Probe(Job("first", "short", turns=TURNS, limit_s=TURNS_S), readings)
    cast = stage.cast
    lines = Notebook(stage, [probe]).fill([cast.direct, *cast.servers])
    added = [line.less(DIRECT, what) for line, what in zip(lines, (FIRST, FIRST_EDGE), strict=True)]
    return [*added, *lines]
