"""A script whose instructions are counted runs: no type checker reads it, and what it imports moves."""

from __future__ import annotations

import subprocess
import sys

from tests.repository import ROOT


def test_chat_requests_are_answered() -> None:
    script = ROOT / "bench" / "counting" / "chat_requests.py"
    run = [sys.executable, str(script), "2", "--keyed"]
    path = {"PYTHONPATH": str(ROOT / "bench")}
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
