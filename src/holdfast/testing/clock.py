"""A clock that stands still until it is told to move."""

from __future__ import annotations

NOON_MS = 1_750_000_000_000
"""Some moment in June 2025: late enough for ids to look like ids."""


class ManualClock:
    """Time in a test's hands. Pass `clock.now_ms` wherever a clock is asked for."""

    def __init__(self, *, at_ms: int = NOON_MS) -> None:
        self._now_ms = at_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> int:
        """Let this much time pass; returns what the clock says then."""
        assert seconds >= 0, "a test that needs a clock to step back makes another clock"
        self._now_ms += round(seconds * 1000)
        return self._now_ms

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_ms} ms>"
