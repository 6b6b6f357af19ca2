"""Setting up: which environment serves, what is installed into it, and whose code runs there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import repository

UV = f"""#!/bin/sh
echo "uv $*"
case $1 in
    venv) while [ $# -gt 1 ]; do shift; done; exec "{sys.executable}" -m venv --without-pip "$1" ;;
    pip) printf '%s\\n' "{sysconfig.get_path("purelib")}" >.venv-serve/lib/$(ls .venv-serve/lib)/site-packages/ours.pth ;;
esac
"""
"""Makes environments, and has every package already: it leads to those that the tests run with."""

NO_UV = "#!/bin/sh\n[ $1 = --version ]\n"
"""Is there, and can do nothing."""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a clone as it takes."""
    clone = tmp_path / "a clone"
    (clone / "scripts").mkdir(parents=True)
    (clone / "src/holdfast/cli").mkdir(parents=True)
    names = "Makefile pyproject.toml requirements.txt requirements-dev.txt scripts/setup.sh".split()
    code = (
        "__init__ __main__ help_text errors limits printable version "
        "cli/__init__ cli/output cli/standard_streams"
    ).split()
    for name in (*names, *(f"src/holdfast/{each}.py" for each in code)):
        shutil.copy(repository.ROOT / name, clone / name)
    return clone


@pytest.fixture
def run(clone: Path, tmp_path: Path) -> Run:
    """Runs a command in the clone, with a uv of our own on the PATH."""
    home = tmp_path / "bin"
    home.mkdir()

    def run(*command: str, uv: str = UV, **environ: str) -> subprocess.CompletedProcess[str]:
        (home / "uv").write_text(uv)
        (home / "uv").chmod(0o755)
        env = {"PATH": f"{home}:{os.defpath}", "HOME": str(tmp_path), "PYTHON": sys.executable}
        return subprocess.run(
            command, cwd=clone, env=env | environ, text=True, capture_output=True, check=False
        )

    return run


def test_serving_installs_its_own_lock_and_runs_the_code_of_the_clone(
    run: Run, clone: Path
) -> None:
    said = run("make", ".venv-serve/.ready")
    assert said.returncode == 0, said.stderr
    assert "--require-hashes -r requirements.txt" in said.stdout
    assert "requirements-dev" not in said.stdout
    assert re.search(
        r"^setup: building \.venv-serve with Python .*: \d+ packages$", said.stderr, re.MULTILINE
    )

    program = str(clone / ".venv-serve/bin/holdfast")
    shown = run(program, "--version")
    assert shown.stdout == "holdfast 0.1.0\n", shown.stderr
    (clone / "src/holdfast/version.py").write_text("VERSION = '77.0'")  # as a pull would
    assert run(program, "--version").stdout == "holdfast 77.0\n"
    assert "up to date" in run("make", ".venv-serve/.ready").stdout, "which takes no new set-up"


def test_an_environment_for_developers_that_is_up_to_date_serves(run: Run, clone: Path) -> None:
    for name in (".venv", ".venv-serve"):
        (clone / name / "bin").mkdir(parents=True)
        (clone / name / ".ready").touch()
        program = clone / name / "bin" / "holdfast"
        program.write_text(f"#!/bin/sh\necho {name} $*\n")
        program.chmod(0o755)
    assert run("make", "serve").stdout == ".venv serve\n"
    os.utime(clone / "requirements-dev.txt", (2e9, 2e9))
    assert run("make", "serve").stdout == ".venv-serve serve\n"


@pytest.mark.slow
def test_what_uv_cannot_pip_tries_and_what_pip_cannot_is_said(run: Run, clone: Path) -> None:
    said = run("sh", "scripts/setup.sh", ".venv-serve", uv=NO_UV, PIP_NO_INDEX="1")
    assert said.returncode == 1
    assert "setup: uv could not; with pip, then" in said.stderr
    assert "No matching distribution found" in said.stderr, "what pip says"
    assert said.stderr.endswith("could not be installed; what pip said is above\n")
    assert not (clone / ".venv-serve/.ready").exists(), "half an environment is none"


@pytest.mark.parametrize(
    ("venv", "python", "words"),
    [
        (
            ".venv-other",
            sys.executable,
            "there is .venv, .venv-serve and .venv-docs, and no .venv-other",
        ),
        (".venv", "/bin/false", "PYTHON=/bin/false is not a Python of 3.11 or later"),
    ],
)
def test_what_cannot_be_set_up_is_said_in_a_sentence(
    run: Run, venv: str, python: str, words: str
) -> None:
    said = run("sh", "scripts/setup.sh", venv, PYTHON=python)
    assert (said.returncode, said.stderr) == (1, f"setup: {words}\n")
