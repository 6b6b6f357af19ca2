"""A script whose instructions are counted runs: no type checker reads it, and what it imports moves."""

from __future__ import annotations

import subprocess
import sys

from tests.repository import ROOT


def ran(script: str, *arguments: str) -> str:
    run = [sys.executable, str(ROOT / "bench" / "counting" / script), *arguments]
    path = {"PYTHONPATH": str(ROOT / "bench")}
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat_requests_are_answered() -> None:
    ran("chat_requests.py", "2", "--keyed")


def test_a_server_starts_and_ends() -> None:
    assert ran("started.py", "0") == ""
    assert "listening" in ran("started.py", "1")
