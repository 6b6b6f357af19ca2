"""Other frameworks' own loops on our sessions, without our server: failure, retry, concurrency, interruption."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests import repository
from tests.clients.catalogue import INTEGRATIONS
from tests.clients.programs import installed, run

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "integrations"


async def drive(framework: str, scenario: str, here: Path) -> dict[str, Any]:
    """Run a framework in an environment of its own, over a store of its own, and say what it saw."""
    (python,) = await installed(INTEGRATIONS.runner)
    driver = HERE / f"{framework}_driver.py"
    command = [python, str(driver), f"sqlite:///{here / 'store.db'}", scenario]
    sources = f"PYTHONPATH={repository.ROOT / 'src'}{os.pathsep}"
    told: dict[str, Any] = json.loads(await run(["env", sources, *command], home=here))
    return told


SYSTEM = {"openai_agents": [], "pydantic_ai": ["Be kind."]}
CALL = {"openai_agents": "act", "pydantic_ai": 'act {"n":1}'}


@pytest.mark.parametrize("framework", SYSTEM)
async def test_a_run_that_fails_or_is_stopped_leaves_no_trace(
    framework: str, tmp_path: Path
) -> None:
    saw = await drive(framework, "trouble", tmp_path)
    first = [*SYSTEM[framework], "one", "You said one"]
    assert saw["before"] == saw["after"] == first
    assert saw["shown"] == [*first, "act"]  # the model hears nothing of what failed
    whole = [*first, "act", CALL[framework], "done", "The tool says: done"]
    assert saw["history"] == saw["reopened"] == whole
    assert saw["effects"] == ["act_and_fail", "act"]


@pytest.mark.parametrize("framework", SYSTEM)
async def test_two_first_runs_make_one_session_and_none_answers_what_it_has_not_read(
    framework: str, tmp_path: Path
) -> None:
    saw = await drive(framework, "together", tmp_path)
    assert saw["conflict"] == "version_mismatch"
    quick = [*SYSTEM[framework], "quick", "You said quick"]
    assert saw["shown"] == [*quick, "wait"]
    assert saw["history"] == saw["reopened"] == [*quick, "wait", "You said wait"]


async def test_turns_of_the_agents_sdk_are_taken_back_as_a_whole(tmp_path: Path) -> None:
    saw = await drive("openai_agents", "back", tmp_path)
    assert saw == {
        "popped": "You said two",
        "left": ["one", "You said one"],
        "went_on": ["one", "You said one", "three", "You said three"],
        "cleared": [],
        "reopened": [],
    }
