"""Tests of the tests. All mutants: python -m tests.simulation.mutants"""

from __future__ import annotations

import pytest

from tests.mutation import misfits
from tests.simulation.mutants import MUTANTS, Mutant, hunt


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_fits_the_source_that_it_breaks(mutant: Mutant) -> None:
    assert misfits(mutant.edits) == []


def test_mutants_have_names_of_their_own() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.telling], ids=lambda each: each.name
)
def test_broken_sessions_are_noticed(mutant: Mutant) -> None:
    """A simulation that nothing disturbs would be worse than none."""
    assert hunt(mutant).noticed is not None
