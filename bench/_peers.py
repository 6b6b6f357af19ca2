"""Environments of their own for what we measure against, each from a lock in `peers/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which may not be there."""
    return HERE.parent / f".venv-{name}" / "bin" / "python"


def is_built(name: str) -> bool:
    return (python_of(name).parents[1] / ".ready").exists()


def build(name: str, lock: str) -> bool:
    """Build a peer's environment, if it is not there. False if it cannot be had here."""
    if is_built(name):
        return True
    print(f"building .venv-{name} …", file=sys.stderr)
    python = str(python_of(name))
    install = [python, "-m", "pip", "install", "-q", "--require-hashes", "-r"]
    steps = (
        [sys.executable, "-m", "venv", str(python_of(name).parents[1])],
        [*install, str(HERE / "peers" / lock)],
    )
    if any(subprocess.run(step, check=False).returncode for step in steps):
        return False
    (python_of(name).parents[1] / ".ready").touch()
    return True
