"""Letting the tests at a mutant."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from msgspec import Struct

from tests.mutation import broken_copy, run_on
from tests.store.mutants.catalogue import Mutant

TIMEOUT_S = 240.0
"""A mutant that makes the tests hang has been noticed, too; but nobody wants to wait for it."""


class Hunt(Struct, frozen=True, kw_only=True):
    """What became of a mutant. `caught_by` is None if it survived."""

    mutant: str
    caught_by: str | None
    seconds: float


def hunt(mutant: Mutant) -> Hunt:
    """Run the tests of this mutant against it."""
    began = time.monotonic()
    with broken_copy(mutant.edits) as copy:
        caught_by = _first_failure(mutant.tests, copy)
    return Hunt(mutant=mutant.name, caught_by=caught_by, seconds=time.monotonic() - began)


_SCRIPT = """
import sys, holdfast, pytest
source, *arguments = sys.argv[1:]
assert holdfast.__file__.startswith(source), holdfast.__file__
sys.exit(pytest.main(arguments))
"""

_OPTIONS = ("-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist")


def _first_failure(tests: tuple[str, ...], copy: Path) -> str | None:
    """The test that fails first with `holdfast` from this folder; None if all of them pass."""
    options = (*_OPTIONS, "--hypothesis-profile=hunt")
    try:
        done = run_on(copy, "-c", _SCRIPT, str(copy), *options, *tests, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "hanging"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        assert done.returncode == 0, f"pytest did not run:\n{done.stdout}\n{done.stderr}"
        return None
    return failed[1]
