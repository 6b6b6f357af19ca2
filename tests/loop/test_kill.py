"""`kill -9` at every point of a turn, and a start after it: nothing is done twice, and nothing is denied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from tests import repository
from tests.loop.kill_child import Became
from tests.scratch import scratch_folder


@pytest.fixture(scope="module", params=["resumed", "ended"])
def mode(request: pytest.FixtureRequest) -> str:
    """With an idempotency key a turn goes on after a crash; without one it ends by policy."""
    return str(request.param)


@pytest.fixture(scope="module")
def found(mode: str) -> list[Became]:
    """What became of the turn for each point that it was killed at; the last one was not killed.

    In memory: a file there outlives `kill -9` as one on disk does, and it is order that is on trial here.
    """
    root = repository.ROOT
    with scratch_folder() as folder:
        subprocess.run(
            [sys.executable, "-m", "tests.loop.kill_child", str(folder), mode],
            cwd=root,
            env=os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
            check=True,
            timeout=120,
        )
        places = sorted(folder.iterdir(), key=lambda place: int(place.name.rpartition("-")[2]))
        told = [(each / "became").read_bytes() for each in places]
    return [msgspec.json.decode(each, type=Became) for each in told]


def test_no_tool_runs_twice_unless_it_says_that_it_may(found: list[Became], mode: str) -> None:
    twice = [run for each in found for run, n in Counter(each.runs).items() if n > 1]
    assert {run.partition(":")[0] for run in twice} == ({"pay"} if mode == "resumed" else set())


def test_what_may_have_happened_is_said_to_be_unknown(found: list[Became]) -> None:
    """And what has a result has run, and what is said not to have run has not."""
    told = [
        (each.runs.count(run), outcome) for each in found for run, outcome in each.outcomes.items()
    ]
    assert {outcome for _, outcome in told} <= {"ok", "not_run", "unknown"}
    assert all(runs >= 1 for runs, outcome in told if outcome == "ok")
    assert all(runs == 0 for runs, outcome in told if outcome == "not_run")
    # Killed between its intent and its effect, and between its effect and its result.
    assert {runs for runs, outcome in told if outcome == "unknown"} == {0, 1}


def test_no_effect_is_without_a_trace(found: list[Became], mode: str) -> None:
    """A turn that has acted is kept, so that the agent does not deny what it did; another leaves nothing."""
    for became in found:
        if became.outcomes:
            assert set(became.runs) <= became.outcomes.keys()
        else:
            assert mode == "ended"
            assert all(run.startswith("look:") for run in became.runs)


def test_a_resumed_turn_comes_to_its_end_and_its_retry_finds_it(
    found: list[Became], mode: str
) -> None:
    assert len(found) > 20
    ends = {each.ended_by for each in found}
    if mode == "resumed":
        assert ends == {each.retried for each in found} == {"completed"}
        assert all(each.said[-1] == "complete: Everything is settled." for each in found)
    else:
        assert ends == {"completed", "crash"}


def test_the_store_is_sound_afterwards(found: list[Became]) -> None:
    assert [each.findings for each in found if each.findings] == []
