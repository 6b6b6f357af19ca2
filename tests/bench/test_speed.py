"""What `make bench` is told, what it tells, and what becomes of those that fail."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator

import pytest
from _figures import BARE, Figures, Line
from rich.console import Console
from speed import library, standing
from speed.__main__ import chosen, longest_s, table_of, teller
from speed.groups import GROUPS
from speed.stage import TIME_IS_UP, Stage, Start, is_peer
from speed.streaming import FLAT_OUT
from speed.subjects import Command, Subject, everybody

from tests.bench.test_figures import UNDER

MARKUP = "not what was asked for: [/v1/x] [red]"


def test_a_system_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"there is no lightllm; there are bare proxy, Holdfast"):
        chosen("Holdfast,lightllm")


def test_systems_are_chosen_in_any_case_and_in_one_order() -> None:
    found, missing = chosen("holdfast, Bare Proxy")
    assert [each.name for each in found] == [BARE, "Holdfast"]
    assert missing == {}


def test_what_servers_say_is_no_markup() -> None:
    said = io.StringIO()
    console = Console(file=said, width=200)
    line = Line("a turn", "ms", "lower", {BARE: [1.0]}, {"Other": MARKUP})
    line.values["Other"] = []
    console.print(table_of(Figures("turn", "A turn", "", UNDER, [line])))
    teller(console, console.status("…"))(MARKUP)
    assert said.getvalue().count(MARKUP) == 2


def test_peers_are_asked_for_short_answers_and_50_at_once_for_long_ones() -> None:
    jobs = {(each.streams, each.tokens): each.probe().for_peers for each in FLAT_OUT}
    assert [each for each, is_asked in jobs.items() if is_asked] == [
        (1, 200),
        (50, 200),
        (50, 1000),
    ]
    assert [each for each, is_asked in jobs.items() if not is_asked] == [(1, 1000), (500, 1000)]


def test_a_run_with_everybody_is_bounded() -> None:
    asked = ("tokens", "pace", "first", "turn", "memory", "start")
    groups = [group for group in GROUPS if group.name in asked]
    assert longest_s(groups, everybody(), rounds=3) <= 17 * 60
    ours = [each for each in everybody() if not is_peer(each.name)]
    assert longest_s(groups, ours, rounds=3) <= 3 * 60


@pytest.fixture
def lines() -> dict[int, Line]:
    return {at: Line(f"at {at}", "ms", "lower") for at in (10, 100)}


def failures() -> Iterator[tuple[Exception, str]]:
    yield subprocess.CalledProcessError(1, "python", stderr=b"ImportError: x"), "ImportError: x"
    yield subprocess.TimeoutExpired("python", 120), "stopped after 120 s"


@pytest.mark.parametrize(("failure", "why"), list(failures()), ids=["fails", "hangs"])
def test_a_peer_that_fails_as_a_library_has_a_note_in_every_line(
    monkeypatch: pytest.MonkeyPatch, lines: dict[int, Line], failure: Exception, why: str
) -> None:
    def fails(_script: str) -> list[library.Row]:
        raise failure

    monkeypatch.setattr(library, "_peer", fails)
    library.take_peer("Peer", "peer.py", lines)
    assert [line.notes for line in lines.values()] == [{"Peer": why}] * 2


def test_what_a_peer_has_found_as_a_library_goes_into_its_line(
    monkeypatch: pytest.MonkeyPatch, lines: dict[int, Line]
) -> None:
    monkeypatch.setattr(library, "_peer", lambda _script: [library.Row(100, 2500.0)])
    library.take_peer("Peer", "peer.py", lines)
    assert lines[100].values == {"Peer": [2.5]}
    assert lines[10].values == {}


def test_servers_that_were_started_for_memory_are_not_started_again() -> None:
    quick, late = (Subject(name, lambda *_: Command([]), lambda: "") for name in ("a", "b"))
    stage = Stage([quick, late], 1, lambda _: None)
    stage.starts = [Start("a", ready_s=0.5, rest_mb=40.0)]
    ready, rest = standing.start(stage)
    assert (ready.values, rest.values) == ({"a": [0.5]}, {"a": [40.0]})
    assert stage.late == {"b": TIME_IS_UP}
