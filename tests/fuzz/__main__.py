"""Agent files made by a fuzzer that follows the branches of the reader: `make fuzz`, `SECONDS=60`.

It needs atheris, which is installed beside the checkout when it is first needed; where it cannot be, that is said and
nothing is tried. What it finds is written to `crash-…` in this directory's neighbour `.venv-fuzz`, and belongs into
`tests/agents/test_any_file.py` as a case.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests import repository

HERE = Path(__file__).parent
HOME = repository.ROOT / ".venv-fuzz"
SEEDS, WORDS = HOME / "seeds", HOME / "words"


def main(seconds: int) -> None:
    atheris = _atheris()
    if atheris is None:
        sys.stdout.write("fuzz: left out, atheris cannot be installed for this Python\n")
        return
    with atheris.instrument_imports(include=["holdfast.agents", "holdfast.tools", "yaml"]):
        judging = import_module("tests.agents.judging")
        schema = import_module("holdfast.agents.schema")
    SEEDS.mkdir(parents=True, exist_ok=True)
    for n, text in enumerate(judging.real_files()):
        (SEEDS / f"real-{n}").write_text(text, encoding="utf-8")
    words = sorted({name.rpartition(".")[2] for name in schema.DESCRIPTIONS})
    WORDS.write_text("".join(f'"{word}:"\n' for word in words), encoding="utf-8")

    def try_one(data: bytes) -> None:
        judging.judge(data)

    arguments = [
        f"-max_total_time={seconds}",
        f"-dict={WORDS}",
        f"-artifact_prefix={HOME}/",
        "-max_len=8192",
        "-timeout=10",
        str(SEEDS),
    ]
    atheris.Setup([sys.argv[0], *arguments], try_one)
    atheris.Fuzz()


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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
