"""What is made beforehand is what pytest would make, and where it looks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bytecode import keep, kept_at


def test_pytest_takes_what_was_made(tmp_path: Path) -> None:
    test = tmp_path / "test_sum.py"
    test.write_text("def test_sum() -> None:\n    assert 1 + 1 == 3\n")
    keep(test)
    made = kept_at(test).stat().st_mtime_ns
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "."]
    ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "assert (1 + 1) == 3" in ran.stdout
    assert kept_at(test).stat().st_mtime_ns == made
