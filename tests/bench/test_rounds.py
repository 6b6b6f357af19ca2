"""We take turns, round by round; peers have rounds and a time of their own; who cannot keep up is asked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from _figures import BARE, OURS
from msgspec.structs import replace
from serving.load import Found, Job
from speed import stage as staging
from speed.servers import CannotMeasure, Cast, Server
from speed.stage import TIME_IS_UP, Notebook, Probe, Reading, Stage, edge


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


def notebook(
    servers: Everybody, rounds: int, *, peer_rounds: int = 1, probes: Sequence[Probe] = PROBES
) -> Notebook:
    stage = Stage([], rounds, lambda _: None, peer_rounds=peer_rounds)
    stage.__dict__["cast"] = cast(Cast, servers)
    return Notebook(stage, probes)


def test_rounds_are_interleaved(asked: list[tuple[str, str]]) -> None:
    """A busy machine slows both of them alike, and not the one whose turn it was."""
    servers = Everybody(BARE, OURS)
    lines = notebook(servers, 2).fill(servers.servers)
    round_of_all = [("first", BARE), ("first", OURS), ("second", BARE), ("second", OURS)]
    assert asked == round_of_all * 2
    assert lines[0].values == {BARE: [1.0, 5.0], OURS: [2.0, 6.0]}


def test_peers_have_their_own_number_of_rounds(asked: list[tuple[str, str]]) -> None:
    servers = Everybody(OURS, "peer")
    lines = notebook(servers, 3, peer_rounds=2).fill(servers.servers)
    assert {name: len(rounds) for name, rounds in lines[0].values.items()} == {OURS: 3, "peer": 2}


def test_peers_are_not_asked_what_is_ours_alone(asked: list[tuple[str, str]]) -> None:
    servers = Everybody(OURS, "peer")
    ours_alone = [replace(each, for_peers=False) for each in PROBES]
    lines = notebook(servers, 1, probes=ours_alone).fill(servers.servers)
    assert {name for _, name in asked} == {OURS}
    assert [line.notes for line in lines] == [{}, {}], "it is no failure of theirs"


def test_peers_are_left_out_when_their_time_is_up(asked: list[tuple[str, str]]) -> None:
    servers = Everybody("peer", OURS)
    book = notebook(servers, 1)
    book.stage.begin(peers_s=0)
    lines = book.fill(servers.servers)
    assert asked == [("first", OURS), ("second", OURS)]
    assert lines[0].notes == {"peer": TIME_IS_UP}


def test_what_is_done_for_a_peer_takes_of_their_time_and_what_is_done_for_us_does_not() -> None:
    stage = Stage([], 1, lambda _: None)
    stage.begin(peers_s=50)
    with stage.spending_on(OURS):
        pass
    assert stage.peers_left_s == 50
    with stage.spending_on("peer"):
        pass
    assert stage.peers_left_s < 50


def test_who_reaches_the_limit_is_asked_once_and_started_anew_if_need_be(
    asked: list[tuple[str, str]],
) -> None:
    servers = Everybody("slow", "quick")
    lines = notebook(servers, 3, peer_rounds=3).fill(servers.servers)
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
    lines = notebook(servers, 3, peer_rounds=3).fill(servers.servers)
    assert [line.values for line in lines] == [{}, {}]
    assert [line.notes for line in lines] == [{name: why}, {name: why}]
    assert asked == [("first", name), ("second", name)]


def test_the_edge_is_the_99th_percentile() -> None:
    assert edge([float(n) for n in range(100)]) == 99.0
    assert edge([float(n) for n in range(200)]) == 198.0
    assert edge([7.0]) == 7.0
