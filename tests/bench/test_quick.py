"""The ratios that must not slip: one that nobody could measure has slipped."""

from __future__ import annotations

import math

import pytest
from _figures import BARE, Line
from _quick import Guard, ratio_of


@pytest.mark.parametrize("at_least", [True, False])
@pytest.mark.parametrize("known", ["", "a reason"])
def test_what_was_not_measured_fails_whatever_is_known(at_least: bool, known: str) -> None:
    guard = Guard("x", math.nan, 2.0, at_least=at_least, known=known)
    assert guard.fails
    assert guard.verdict == "NOT MEASURED"


def test_a_missing_figure_is_not_a_small_one() -> None:
    line = Line("a turn", "ms", "lower", {BARE: [2.0]})
    assert math.isnan(ratio_of(line, BARE))
    line.values["Holdfast"] = [3.0]
    assert ratio_of(line, BARE) == 1.5


@pytest.mark.parametrize(
    ("value", "known", "fails", "verdict"),
    [
        (1.9, "", False, "holds"),
        (2.1, "", True, "SLIPPED"),
        (2.1, "tables", False, "missed (tables)"),
    ],
)
def test_a_bound_holds_is_missed_for_a_reason_or_has_slipped(
    value: float, known: str, fails: bool, verdict: str
) -> None:
    guard = Guard("x", value, 2.0, known=known)
    assert (guard.fails, guard.verdict) == (fails, verdict)
