"""Tokens: how many a core can pass on, what one costs at the pace of a reader, how much later the first one comes."""

from __future__ import annotations

from functools import partial
from statistics import median

from _figures import Line
from _names import DIRECT, FIRST, FIRST_EDGE, PACE, tokens_at
from msgspec.structs import replace
from serving.load import Found, Job

from speed.servers import Server
from speed.stage import Notebook, Probe, Reading, Stage, edge

ANSWERS = {1: 40, 50: 2, 500: 1}
"""How many answers each stream asks for, by the number of streams."""
FEWER = {1: 10, 50: 1, 500: 1}
"""The same for those whose answers are shorter, because they are slow."""
TOKENS = 1000
PACED = 50
TURNS = 100
LIMIT_S = {1: 6.0, 50: 15.0, 500: 20.0}
"""A slow server needs a while until 500 streams have begun."""
TURNS_S = 8.0


def _per_core(found: Found) -> float:
    return found.tokens / found.cpu_s


def tokens(stage: Stage) -> list[Line]:
    probes = [
        Probe(
            _flat_out(streams),
            [Reading(tokens_at(streams), "/s", "higher", _per_core)],
            _for_server,
        )
        for streams in ANSWERS
    ]
    lines = Notebook(stage, probes).fill(stage.cast.servers)
    for server in stage.cast.servers:
        if server.tokens != TOKENS:
            for line in lines:
                notes = (f"answers of {server.tokens} tokens", line.notes.get(server.name, ""))
                line.notes[server.name] = "; ".join(filter(None, notes))
    return lines


def _flat_out(streams: int) -> Job:
    return Job(
        "answers",
        "flat1000",
        streams=streams,
        turns=ANSWERS[streams],
        tokens=TOKENS,
        limit_s=LIMIT_S[streams],
    )


def _for_server(server: Server, job: Job) -> Job:
    if server.tokens == TOKENS:
        return job
    turns = FEWER[job.streams]
    return replace(job, model=f"flat{server.tokens}", tokens=server.tokens, turns=turns)


def pace(stage: Stage) -> list[Line]:
    per_token = Reading(PACE, "µs", "lower", lambda found: found.cpu_s / found.tokens * 1e6)
    probe = Probe(Job("pace", "paced", streams=PACED, window_s=3.0), [per_token])
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
