"""A test that takes too long fails, and at once: whoever runs it may have made the machine slow."""

from __future__ import annotations

import signal

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import TimeIsOver, pytest_timeout_set_timer


def test_hypothesis_does_not_shrink_a_test_that_took_too_long(
    request: pytest.FixtureRequest,
) -> None:
    before, tried = signal.getsignal(signal.SIGALRM), []

    @hypothesis.given(st.integers())
    def take_too_long(number: int) -> None:
        tried.append(number)
        signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("Timeout"))
    setting = pytest_timeout_set_timer(request.node)
    next(setting)
    with pytest.raises(StopIteration):
        setting.send(True)
    try:
        with pytest.raises(TimeIsOver, match="Timeout"):
            take_too_long()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(tried) == 1
