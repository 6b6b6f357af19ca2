"""One target, in a process of its own: `python -m tests.fuzz.one NAME SECONDS EXECUTIONS [blind]`.

A fuzzer that follows the branches of our code (atheris) tries it; or bytes are changed blindly, if that is asked for
or there is no fuzzer for this Python. Either way stderr says how many were tried, and the exit status is not 0 if
something was found.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from tests import repository

HERE = Path(__file__).parent
HOME = repository.ROOT / ".venv-fuzz"
INSTRUMENTED = ["holdfast.wire", "holdfast.core", "holdfast.agents", "holdfast.tools", "yaml"]
PULSE = 1000
"""How often blind trying says how far it is."""


def main(name: str, seconds: int, executions: int, *, blind: bool) -> None:
    atheris = None if blind else _atheris()
    if atheris is None:
        _try_blindly(name, seconds, executions)
        return
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = _target(name)
    seeds, words = HOME / "seeds" / name, HOME / f"{name}.words"
    seeds.mkdir(parents=True, exist_ok=True)
    for n, seed in enumerate(target.seeds):
        (seeds / f"real-{n}").write_bytes(seed)
    words.write_text("".join(f'"{_escaped(each)}"\n' for each in target.words), encoding="utf-8")
    arguments = [
        f"-max_total_time={seconds}",
        f"-runs={executions or -1}",
        f"-dict={words}",
        f"-artifact_prefix={HOME}/{name}-",
        f"-max_len={target.size_max}",
        "-timeout=10",
        "-print_final_stats=1",
        str(seeds),
    ]
    atheris.Setup([sys.argv[0], *arguments], target.try_one)
    atheris.Fuzz()


def _target(name: str) -> Any:
    targets = import_module("tests.fuzz.targets").targets()
    return next(each for each in targets if each.name == name)


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


def _try_blindly(name: str, seconds: int, executions: int) -> None:
    HOME.mkdir(exist_ok=True)
    target = _target(name)
    until = time.monotonic() + seconds if seconds else float("inf")
    made = import_module("tests.fuzz.mutating").mutations(target, seed=time.time_ns())
    done = 0
    while time.monotonic() < until and (not executions or done < executions):
        for data in islice(made, PULSE):
            try:
                target.try_one(data)
            except Exception:
                (HOME / f"{name}-crash").write_bytes(data)
                raise
        done += PULSE
        sys.stderr.write(f"#{done}\tblind\n")


def _atheris() -> Any:
    """The fuzzer; None if there is none for this Python."""
    packages = HOME / f"packages-{sys.version_info.major}{sys.version_info.minor}"
    if not packages.is_dir():
        install = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(packages)]
        wanted = ["-r", str(HERE / "requirements.txt"), "--only-binary", ":all:"]
        ran = subprocess.run(
            [sys.executable, "-m", "pip", *install, *wanted], capture_output=True, check=False
        )
        if ran.returncode:
            return None
    sys.path.insert(0, str(packages))
    return import_module("atheris")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), blind="blind" in sys.argv[4:])
