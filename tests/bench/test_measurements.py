"""The measurements that `make bench-parts` runs one after the other."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.repository import ROOT

PARTS = sorted(each.stem for each in (ROOT / "bench").glob("[!_]*.py"))


@pytest.mark.parametrize("part", PARTS)
def test_a_measurement_finds_everything_that_it_imports(part: str) -> None:
    """Nobody runs all of them often: one was broken for weeks by a file that had moved."""
    import_module(part)
