"""A clock that moves only when the test advances it."""

from __future__ import annotations

NOON_MS = 1_750_000_000_000
"""A moment in June 2025: late enough for ids to look real."""


class ManualClock:
    """A clock under the test's control. Pass `clock.now_ms` wherever a clock is needed."""

    def __init__(self, *, at_ms: int = NOON_MS) -> None:
        self._now_ms = at_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> int:
        """Let this much time pass; returns the new time."""
        assert seconds >= 0, "a test that needs a clock to step back makes another clock"
        self._now_ms += round(seconds * 1000)
        return self._now_ms

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_ms} ms>"
