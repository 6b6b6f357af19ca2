"""The suite that systems are judged by can tell a system that holds from one that does not."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from scenarios import run
from scenarios.behaviours import BEHAVIOURS, Behaviour
from scenarios.run import play
from scenarios.stage import Stage
from systems import base
from systems.base import Answer, Place, Request, Running, System
from systems.harnessed import HarnessedRunning
from systems.holdfast import Holdfast

BY_NAME = {each.name: each for each in BEHAVIOURS}
CAUGHT = {
    "fail_and_retry": "is there 2 times",
    "fail_after_tool": "is there 2 times",
    "kill_in_tool": "has no result",
    "first_requests": "has stayed without an answer|is there 0 times",
}


class Naive(System):
    """The clerk of `naive.py`."""

    name = title = "naive"
    configured = "As many people write one first."
    runner = HarnessedRunning
    knows_agents = False

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
    assert re.search(CAUGHT[name], cell.why)
    assert any(line.startswith("model ←") for line in cell.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CAUGHT, "message_before_answer"])
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


MISSING = {
    "lost_answer": "It has no idempotency key.",
    "fail_after_tool_keyed": "It has no idempotency key.",
    "deadline_in_tool": "It has no deadline for a turn.",
    "message_before_answer": (
        "It has no way to send again what was said: a client says what is new, and nothing else."
    ),
    "moved": "It has no address of an agent: who it is stands in every request.",
}


@pytest.mark.parametrize("name", MISSING)
async def test_what_a_system_has_not_is_said(name: str, tmp_path: Path) -> None:
    """Who has no deadline, for one, keeps none, and so cannot be said to hold what is promised of it."""
    cell = await play(Naive(), BY_NAME[name], tmp_path, None)
    assert (cell.verdict, cell.why) == ("not offered", MISSING[name])


# ── answers that do not come ──


class Waiting(Running):
    """A client of a server that is not there."""

    def __init__(self) -> None:
        self.url = "http://127.0.0.1:1"
        self.http = aiohttp.ClientSession()


async def said(response: aiohttp.ClientResponse) -> Answer:
    return Answer(200, await response.text())


async def test_a_lost_connection_is_a_failed_answer() -> None:
    client = Waiting()
    answer = await client.post(Request("/turn", b"{}"), said)
    await client.http.close()
    assert (answer.status, answer.ok) == (0, False)
    assert "the connection was lost" in answer.failure


async def test_an_answer_that_never_comes_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that hangs is broken: it is no reason to say nothing about it."""
    monkeypatch.setattr(base, "ANSWER_S", 0.0)
    client = Waiting()
    answer = await client.in_time(asyncio.Future())
    await client.http.close()
    assert (answer.status, answer.failure) == (0, "there was no end of it in 0 s")


async def test_a_behaviour_that_finds_no_end_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(stage: Stage) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(run, "PLAY_S", 0.0)
    cell = await play(Naive(), Behaviour("endless", "", "", endless), tmp_path, None)
    assert (cell.verdict, cell.why) == ("not run", "It did not end in 0 s.")
