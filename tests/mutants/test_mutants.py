"""Tests of the tests. All mutants: python -m tests.mutants ROOM"""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import main
from tests.mutants.catalogue import ROOMS, Edit, Mutant, mutants_of
from tests.mutants.hunt import hunt

MUTANTS = [each for room in ROOMS for each in mutants_of(room) if each.edits]


def test_every_mutant_fits_the_source_that_it_breaks() -> None:
    assert {each.name: each.misfits for each in MUTANTS if each.misfits} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_mutants_have_names_of_their_own_and_one_changes_nothing(room: str) -> None:
    mutants = mutants_of(room)
    assert len({each.name for each in mutants}) == len(mutants)
    assert [each.name for each in mutants if not each.edits] == ["(nothing is changed)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.thorough] if each.thorough else [])
        for each in MUTANTS
        if each.telling or each.thorough
    ],
)
def test_what_is_broken_is_noticed(mutant: Mutant) -> None:
    """A model that agrees with anything, or a simulation that nothing disturbs, would be worse than none."""
    assert hunt(mutant).noticed is not None


def test_words_that_are_in_no_name_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["store", "nonsense", "of", "course"])
    assert ended.value.code == 2
    assert "has 'nonsense of course' in it; --list prints them" in capsys.readouterr().err


def test_an_edit_replaces_words_or_takes_whole_lines() -> None:
    append, *_ = (each for each in mutants_of("store") if each.edits)
    assert append.edits == (
        Edit(
            "store/operations/turns.py",
            "    session = decisions.demand_fence(fence, found.session)",
            "    session = found.session\n    assert session is not None",
        ),
    )
    taken = [edit for each in MUTANTS for edit in each.edits if not edit.new]
    assert any(edit.old.endswith("\n") for edit in taken)
