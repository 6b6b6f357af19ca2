"""The suite that systems are judged by can tell a system that holds from one that does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from scenarios.behaviours import BEHAVIOURS
from scenarios.run import play
from systems.base import Place, System
from systems.harnessed import HarnessedRunning
from systems.holdfast import Holdfast

BY_NAME = {each.name: each for each in BEHAVIOURS}
CAUGHT = {
    "fail_and_retry": "is there 2 times",
    "kill_in_tool": "has no result",
    "first_requests": "has stayed without an answer",
}


class Naive(System):
    """The clerk of `naive.py`."""

    name = title = "naive"
    configured = "As many people write one first."
    runner = HarnessedRunning

    def command(self, place: Place) -> Sequence[str]:
        script = str(Path(__file__).with_name("naive.py"))
        where = [place.upstream, place.effects, str(place.folder)]
        return [sys.executable, script, str(place.port), *where]


class Forgetful(Naive):
    """The same, on a disk that is empty after every start."""

    def prepare(self, place: Place) -> None:
        for each in place.folder.iterdir():
            each.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT)
async def test_a_naive_system_is_caught(name: str, tmp_path: Path) -> None:
    cell = await play(Naive(), BY_NAME[name], tmp_path, None)
    assert cell.verdict == "broken", (cell.why, *cell.evidence)
    assert CAUGHT[name] in cell.why
    assert any(line.startswith("model ←") for line in cell.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT)
async def test_holdfast_is_not(name: str, tmp_path: Path) -> None:
    cell = await play(Holdfast(), BY_NAME[name], tmp_path, None)
    assert (cell.verdict, cell.why) == ("held", BY_NAME[name].promise), cell.evidence


@pytest.mark.slow
async def test_a_system_that_forgets_what_it_answered_before_a_crash_is_caught(
    tmp_path: Path,
) -> None:
    """The turn that was killed is absent, as it may be; so is the one before it, which may not."""
    cell = await play(Forgetful(), BY_NAME["kill_in_text"], tmp_path, None)
    assert (cell.verdict, cell.why) == (
        "broken",
        "'Ada is my name' was answered, and is there 0 times",
    ), cell.evidence


@pytest.mark.slow
async def test_what_a_system_has_not_is_said(tmp_path: Path) -> None:
    cell = await play(Naive(), BY_NAME["lost_answer"], tmp_path, None)
    assert (cell.verdict, cell.why) == ("not offered", "It has no idempotency key.")
