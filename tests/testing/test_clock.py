"""A clock in a test's hands."""

from __future__ import annotations

import pytest

from holdfast.testing import ManualClock


def test_a_manual_clock_moves_when_it_is_told_to() -> None:
    clock = ManualClock(at_ms=1000)
    assert [clock.now_ms(), clock.now_ms()] == [1000, 1000]
    assert clock.advance(0.25) == clock.now_ms() == 1250
    assert repr(clock) == "<ManualClock 1250 ms>"


def test_time_does_not_go_back() -> None:
    with pytest.raises(AssertionError):
        ManualClock().advance(-1)
