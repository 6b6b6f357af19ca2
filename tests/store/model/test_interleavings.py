"""Steers and cancels against commits: a few hundred orders here, many thousands in `make torture-store`."""

from __future__ import annotations

from tests.store.model import interleavings


def test_each_steer_is_heard_once_or_begins_a_turn_once_in_every_order() -> None:
    figures = interleavings.run(500, seed=1)

    assert figures.violations == []
    assert figures.interleavings == 500
    assert min(figures.heard, figures.begun, figures.refused_commits, figures.batches) > 100
    assert min(figures.cancelled, figures.taken_over, figures.superseded) > 20, "zombies were there"
