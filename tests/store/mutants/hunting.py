"""Making a mutant and letting the tests at it. The source tree itself is never touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from tests.repository import ROOT
from tests.store.mutants.catalogue import Mutant

SOURCE = ROOT / "src" / "holdfast"
TIMEOUT_S = 240.0
"""A mutant that makes the tests hang has been noticed, too; but nobody wants to wait for it."""


class Hunt(Struct, frozen=True, kw_only=True):
    """What became of a mutant. `caught_by` is None if it survived."""

    mutant: str
    caught_by: str | None
    seconds: float


def misfits(mutant: Mutant) -> list[str]:
    """The edits whose words are not in the source, or not just once."""
    return [
        f"{edit.file}: {edit.old!r}"
        for edit in mutant.edits
        if (SOURCE / edit.file).read_text(encoding="utf-8").count(edit.old) != 1
    ]


def hunt(mutant: Mutant) -> Hunt:
    """Run the tests of this mutant against it."""
    began = time.monotonic()
    if misfits(mutant):  # the source has changed: it has to be written anew
        return Hunt(mutant=mutant.name, caught_by=None, seconds=0.0)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "holdfast"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits:
            file = copy / edit.file
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        caught_by = _first_failure(mutant.tests, Path(folder))
    return Hunt(mutant=mutant.name, caught_by=caught_by, seconds=time.monotonic() - began)


def _first_failure(tests: tuple[str, ...], source: Path) -> str | None:
    """The test that fails first with `holdfast` from this folder; None if all of them pass."""
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    assert _run(["-c", "import holdfast; print(holdfast.__file__)"], env).stdout.startswith(
        str(source)
    )
    options = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=hunt"]
    try:
        done = _run(["-m", "pytest", *options, *tests], env)
    except subprocess.TimeoutExpired:
        return "hanging"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        assert done.returncode == 0, f"pytest did not run:\n{done.stdout}\n{done.stderr}"
        return None
    return failed[1]


def _run(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
