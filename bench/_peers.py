"""Environments of their own for what we measure against, each from a lock in `peers/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

LOCKS = {"litellm": "litellm.txt", "peers": "requirements.txt"}
"""Environment → its lock."""


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


def version_of(name: str, package: str) -> str:
    """The version of a package in a peer's environment."""
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run(
        [str(python_of(name)), "-c", asked], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    missing = [name for name, lock in LOCKS.items() if not build(name, lock)]
    if missing:
        raise SystemExit(f"could not be installed here: {', '.join(missing)}")
