"""Environments of their own for the peers, each from a hashed lock in `peers/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

PEERS = Path(__file__).parents[1] / "peers"
HOME = Path(__file__).parents[2] / ".venv-peers"


def python_of(environment: str) -> Path:
    """The interpreter of a peer's environment, which may not be there; ours for ourselves."""
    return HOME / environment / "bin" / "python" if environment else Path(sys.executable)


def is_built(environment: str) -> bool:
    """Whether it is there, and made from the lock as it is now."""
    if not environment:
        return True
    made_from = python_of(environment).parents[1] / ".lock"
    return made_from.exists() and made_from.read_text() == _lock(environment).read_text()


def build(environment: str, interpreter: str = "") -> str:
    """Build an environment, if it is not there. What kept it from being built, or nothing."""
    if is_built(environment):
        return ""
    wanted = f"python{interpreter}" if interpreter else sys.executable
    if shutil.which(wanted) is None:
        return f"it needs {wanted}, which is not here"
    python = python_of(environment)
    shutil.rmtree(python.parents[1], ignore_errors=True)
    steps = (
        [wanted, "-m", "venv", str(python.parents[1])],
        [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--require-hashes",
            "-r",
            str(_lock(environment)),
        ],
    )
    for step in steps:
        done = subprocess.run(step, check=False, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            return f"it cannot be installed: {last[0]}"
    (python.parents[1] / ".lock").write_text(_lock(environment).read_text())
    return ""


def versions(environment: str, packages: Sequence[str]) -> dict[str, str]:
    """What is installed there."""
    script = (
        "import json, sys\nfrom importlib.metadata import version\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    command = [str(python_of(environment)), "-c", script, *packages]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return msgspec.json.decode(said, type=dict[str, str])


def _lock(environment: str) -> Path:
    return PEERS / f"{environment}.txt"
