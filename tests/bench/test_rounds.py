"""Everybody takes turns, round by round; who cannot keep up is asked once, and the reason is written down."""

from __future__ import annotations

from typing import cast

import pytest
from serving.load import Found, Job
from speed import stage as staging
from speed.servers import CannotMeasure, Cast, Server
from speed.stage import Notebook, Probe, Reading, Stage, edge


class Everybody:
    """Servers that do not run: what was done with them."""

    def __init__(self, *names: str) -> None:
        self.servers = [Server(name, 1, 1) for name in names]
        self.overtaxed: list[str] = []

    def get(self, name: str) -> Server | None:
        return next((each for each in self.servers if each.name == name), None)

    def calm(self, server: Server, *, overtaxed: bool) -> None:
        if overtaxed:
            self.overtaxed.append(server.name)


PROBES = [
    Probe(Job("whole", what), [Reading(what, "ms", "lower", lambda found: found.cpu_s)])
    for what in ("first", "second")
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the servers were asked: `slow` reaches its limit, `broken` fails, `silent` says nothing in its time."""
    seen: list[tuple[str, str]] = []

    def measured(server: Server, job: Job) -> Found:
        seen.append((job.model, server.name))
        if server.name == "broken":
            raise CannotMeasure("it hung up")
        turns = 0 if server.name == "silent" else 1
        return Found(cpu_s=len(seen), turns=turns, cut=server.name in ("slow", "silent"))

    monkeypatch.setattr(staging, "measured", measured)
    return seen


def notebook(servers: Everybody, rounds: int) -> Notebook:
    stage = Stage([], rounds, lambda _: None)
    stage.__dict__["cast"] = cast(Cast, servers)
    return Notebook(stage, PROBES)


def test_rounds_are_interleaved(asked: list[tuple[str, str]]) -> None:
    """A busy machine slows all of them alike, and not the one whose turn it was."""
    servers = Everybody("a", "b")
    lines = notebook(servers, 2).fill(servers.servers)
    round_of_all = [("first", "a"), ("first", "b"), ("second", "a"), ("second", "b")]
    assert asked == round_of_all * 2
    assert lines[0].values == {"a": [1.0, 5.0], "b": [2.0, 6.0]}


def test_who_reaches_the_limit_is_asked_once_and_started_anew_if_need_be(
    asked: list[tuple[str, str]],
) -> None:
    servers = Everybody("slow", "quick")
    lines = notebook(servers, 3).fill(servers.servers)
    assert len(lines[0].values["slow"]) == 1
    assert len(lines[0].values["quick"]) == 3
    assert lines[0].notes == {"slow": "stopped after 20 s, and not asked again"}
    assert servers.overtaxed == ["slow", "slow"]


@pytest.mark.parametrize(
    ("name", "why"), [("broken", "it hung up"), ("silent", "nothing came in 20 s")]
)
def test_who_cannot_be_measured_has_a_reason_and_no_value(
    asked: list[tuple[str, str]], name: str, why: str
) -> None:
    servers = Everybody(name)
    lines = notebook(servers, 3).fill(servers.servers)
    assert [line.values for line in lines] == [{}, {}]
    assert [line.notes for line in lines] == [{name: why}, {name: why}]
    assert asked == [("first", name), ("second", name)]


def test_the_edge_is_the_99th_percentile() -> None:
    assert edge([float(n) for n in range(100)]) == 99.0
    assert edge([float(n) for n in range(200)]) == 198.0
    assert edge([7.0]) == 7.0
