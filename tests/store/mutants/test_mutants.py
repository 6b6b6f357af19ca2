"""Tests of the tests. All mutants: python -m tests.store.mutants"""

from __future__ import annotations

import pytest

from tests.mutation import misfits
from tests.store.mutants.catalogue import MUTANTS, Mutant
from tests.store.mutants.hunting import hunt


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_fits_the_source_that_it_breaks(mutant: Mutant) -> None:
    assert misfits(mutant.edits) == []


def test_mutants_have_names_of_their_own() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.telling], ids=lambda each: each.name
)
def test_a_broken_store_is_noticed(mutant: Mutant) -> None:
    """A model that agrees with anything would be worse than none."""
    assert hunt(mutant).caught_by is not None
