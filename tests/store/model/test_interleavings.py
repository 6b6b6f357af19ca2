"""Steers and cancels against commits: some hundred orders here, many thousands in `make torture-store`."""

from __future__ import annotations

import pytest

from tests.store.model import interleavings
from tests.store.model.homes import POSTGRES


def test_each_steer_is_heard_once_or_begins_a_turn_once_in_every_order() -> None:
    figures = interleavings.run(200, seed=1)

    assert figures.violations == []
    assert figures.interleavings == 200
    assert min(figures.heard, figures.begun, figures.refused_commits, figures.batches) > 40
    assert min(figures.cancelled, figures.taken_over, figures.superseded) > 8, "zombies were there"


@pytest.mark.slow
def test_where_several_ask_at_once_and_mean_it() -> None:
    """In PostgreSQL those that ask at once run at once."""
    figures = interleavings.run(40, seed=1, other=POSTGRES)

    assert figures.violations == []
    assert min(figures.heard, figures.begun, figures.refused_commits, figures.batches) > 8
