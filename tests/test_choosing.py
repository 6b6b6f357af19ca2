"""Words that fit nothing are a mistake, and not a success with nothing to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import mutants as simulation
from tests.store.mutants import __main__ as store

MAINS = pytest.mark.parametrize("main", [simulation.main, store.main], ids=["simulation", "store"])
Main = Callable[[list[str]], int]


@MAINS
def test_a_name_that_fits_nothing_is_an_error(
    main: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nonsense", "of", "course"])
    assert ended.value.code == 2
    assert "has 'nonsense of course' in it; --list prints them" in capsys.readouterr().err


@MAINS
def test_the_names_can_be_listed(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--list"])
    assert not ended.value.code
    names = capsys.readouterr().out.splitlines()
    assert "(nothing is changed)" in names and len(names) > 5


@MAINS
def test_help_says_what_it_is_about(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert shown.startswith("usage: python -m tests.") and "mutant" in shown.partition("\n\n")[2]
