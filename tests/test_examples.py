"""The examples do what they say, and the front door opens without bringing the house along."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests import repository

EXAMPLES = repository.ROOT / "examples"
FRONT_DOOR = repository.ROOT / "src" / "holdfast" / "__init__.py"


def run(*arguments: str) -> str:
    """What a Python program prints."""
    told = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(repository.ROOT / "src")},
        timeout=60,
    )
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout


def test_somebodys_own_agent_code_as_a_turn(tmp_path: Path) -> None:
    """Two turns are kept; the one between them leaves no trace; a second run goes on where the first ended."""
    url = f"sqlite:///{tmp_path}/trips.db"
    first = run(str(EXAMPLES / "embed.py"), url).splitlines()
    assert first == [
        "You asked 'Where is Oslo?', and I know 0 messages before that.",
        "[the model does not answer: as if it had never been asked]",
        "You asked 'How do I get there?', and I know 2 messages before that.",
        "",
        "trip-to-oslo, version 2:",
        "  you: Where is Oslo?",
        "  agent: You asked 'Where is Oslo?', and I know 0 messages before that.",
        "  you: How do I get there?",
        "  agent: You asked 'How do I get there?', and I know 2 messages before that.",
    ]
    again = run(str(EXAMPLES / "embed.py"), url)
    assert "I know 4 messages before that" in again
    assert "version 4" in again


def test_the_front_door_has_the_names_that_it_tells_checkers_of() -> None:
    told = {
        alias.asname: node.module
        for node in ast.walk(ast.parse(FRONT_DOOR.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert told == holdfast.HOMES
    for name in holdfast.HOMES:
        assert getattr(holdfast, name) is not None
        assert name in dir(holdfast)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        holdfast.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_opening_the_front_door_loads_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import holdfast; print(*set(sys.modules) - before)"
    )
    loaded = run("-c", code).split()
    assert [each for each in loaded if each.startswith("holdfast.")] == []
    assert not {"msgspec", "asyncio", "apsw"} & set(loaded)


def test_agents_in_python_answer_with_their_tools(tmp_path: Path) -> None:
    asked = 'call opening_hours with {"day": "sunday"}'
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "shop:team", asked, "--store", "memory:"],
        capture_output=True,
        text=True,
        check=False,
        cwd=EXAMPLES / "python",
        env=os.environ
        | {"PYTHONPATH": str(repository.ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=60,
    )
    assert told.returncode == 0, told.stderr
    assert "closed" in told.stdout
