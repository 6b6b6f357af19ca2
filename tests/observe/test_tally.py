"""Numbers that cost nothing to keep."""

from __future__ import annotations

import pytest

from holdfast.observe.tally import OTHER, SERIES_MAX, Durations, Series, Tally, sum_of, written


@pytest.mark.parametrize(
    ("seconds", "place"), [(0.0, 0), (0.1, 0), (0.10001, 1), (1.0, 1), (1.5, 2), (1e9, 2)]
)
def test_a_duration_counts_where_it_fits(seconds: float, place: int) -> None:
    durations = Durations((0.1, 1.0))
    durations.add(seconds)
    assert durations.counts == [int(each == place) for each in range(3)]
    assert durations.total_s == seconds


def test_names_that_come_without_end_are_counted_together() -> None:
    series = Series()
    for n in range(SERIES_MAX + 10):
        series.add("agent", f"tool-{n}")
    series.add("agent", "tool-0")
    assert len(series) == SERIES_MAX + 1
    assert (series["agent", "tool-0"], series[OTHER, OTHER]) == (2, 10)


def test_the_counts_of_several_workers_are_added_by_name() -> None:
    one, two = Tally(), Tally()
    one.calls.add("butler", "book", "ok", by=2)
    two.calls.add("butler", "book", "ok")
    two.model_tokens.add("butler", "demo/parrot", "input", by=7)
    total = sum_of([written(one), written(two)])
    assert total.calls == {("butler", "book", "ok"): 3}
    assert total.model_tokens == {("butler", "demo/parrot", "input"): 7}
