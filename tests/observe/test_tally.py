"""Numbers that cost nothing to keep."""

from __future__ import annotations

import pytest

from holdfast.observe.tally import Durations


@pytest.mark.parametrize(
    ("seconds", "place"), [(0.0, 0), (0.1, 0), (0.10001, 1), (1.0, 1), (1.5, 2), (1e9, 2)]
)
def test_a_duration_counts_where_it_fits(seconds: float, place: int) -> None:
    durations = Durations((0.1, 1.0))
    durations.add(seconds)
    assert durations.counts == [int(each == place) for each in range(3)]
    assert durations.total_s == seconds
