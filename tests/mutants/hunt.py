"""Letting the tests at a mutant: a copy of our source with a few words exchanged. The source itself is not touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.mutants.catalogue import SOURCE, Edit, Mutant
from tests.repository import ROOT

SEEDS = 120
"""How many of the simulation a mutant may survive, besides those that have shown something once."""

TIMEOUT_S = 300.0
"""A mutant that makes the tests hang has been noticed, too; but nobody wants to wait for it."""


class Hunt(Struct, frozen=True):
    """What became of a mutant. `noticed` says by what; None if it survived."""

    mutant: Mutant
    noticed: str | None
    seconds: float


def hunt(mutant: Mutant) -> Hunt:
    """Run the tests of this mutant against it, or the simulation if it names none."""
    assert not mutant.misfits, f"the source has changed; rewrite the mutant: {mutant.misfits}"
    began = time.monotonic()
    with _broken_copy(mutant.edits) as copy:
        try:
            noticed = _by_tests(copy, mutant.tests) if mutant.tests else _by_seeds(copy)
        except subprocess.TimeoutExpired:
            noticed = "no end"
    return Hunt(mutant, noticed, time.monotonic() - began)


_TESTS = """
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""

_OPTIONS = (
    *("-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"),
    "--hypothesis-profile=hunt",
    *("-m", "not clients"),  # combinations, too: some mutants are about one of them
)


def _by_tests(copy: Path, tests: Sequence[str]) -> str | None:
    """The test that fails first."""
    done = _run(copy, _TESTS, *_OPTIONS, *tests)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        assert done.returncode == 0, f"pytest did not run:\n{done.stdout}\n{done.stderr}"
        return None
    return failed[1]


_SIMULATION = """
from tests.simulation.campaign import judge
from tests.simulation.seeds import INTERESTING
count = int(sys.argv[2])
for tried, seed in enumerate([*range(count), *(each for each in INTERESTING if each >= count)], 1):
    verdict = judge(seed, "memory")
    if verdict.broken:
        codes = sorted({each.split(":")[0] for each in verdict.broken})
        print(f"{tried:4} seeds ", ", ".join(codes))
        break
else:
    print("none")
"""


def _by_seeds(copy: Path) -> str | None:
    """Which promise is broken first, and by the how-manieth seed."""
    done = _run(copy, _SIMULATION, str(SEEDS))
    if done.returncode != 0:
        return f"does not even run: {done.stderr[-200:]}"
    line = done.stdout.splitlines()[-1]
    return None if line == "none" else line


_HERE = """
import sys, holdfast
assert holdfast.__file__.startswith(sys.argv[1]), holdfast.__file__
"""


def _run(copy: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script with `holdfast` from this folder. Raises TimeoutExpired if it does not come to an end."""
    return subprocess.run(
        [sys.executable, "-c", _HERE + script, str(copy), *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@contextmanager
def _broken_copy(edits: Sequence[Edit]) -> Iterator[Path]:
    """A folder in which `holdfast` is our source with these edits: links, but for the files that were edited."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts: dict[Path, str] = {}
        for edit in edits:
            file = Path(edit.file)
            text = texts.get(file) or (SOURCE / file).read_text(encoding="utf-8")
            texts[file] = text.replace(edit.old, edit.new)
        _link(SOURCE, folder / "holdfast", texts)
        yield folder


def _link(source: Path, target: Path, texts: dict[Path, str]) -> None:
    """Make `target` like `source`, with other texts for some of the files below it.

    Bytecode comes along, so that only what was edited is compiled: Python notices that its bytecode is older.
    """
    target.mkdir()
    for each in source.iterdir():
        inside = each.relative_to(SOURCE)
        if inside in texts:
            (target / each.name).write_text(texts[inside], encoding="utf-8")
        elif any(inside in file.parents for file in texts):
            _link(each, target / each.name, texts)
        else:
            (target / each.name).symlink_to(each)
