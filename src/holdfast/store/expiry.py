"""The age of rows, by a clock that may be wrong. Pure: `prune` reads the clock, and the functions here decide how old a
row is before it expires or is removed.

A clock that is forty days ahead for a minute must not delete what was acknowledged five minutes before.

1. While a store is in use, it reads the clock every few minutes. A step of at most `clock_leap_s` is time that has
   passed.
2. A larger step is a *leap*: the clock was set, or no process ran meanwhile; these two cannot be told apart. A row that
   was written before a leap gets older by it only after the store has been in use for `clock_trust_s` since.
3. A clock that goes back takes back the latest leaps that do not count yet.
4. The time in use is added up over restarts, so a store that runs for a few hours a day expires rows, too.
"""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.core.codec import Value

_HOUR_MS = 3_600_000
"""Leaps that begin to count within the same hour are merged, so that there are never many."""


class ClockStep(Value):
    """A step of the clock that does not count yet."""

    to_ms: int
    """The clock's time after the leap."""
    by_ms: int
    counts_ms: int
    """The leap counts once the store has been in use for this long in all."""


class Horizon(Value):
    """The last reading of the clock, and the leaps that do not count yet."""

    seen_ms: int
    ran_ms: int = 0
    """For how long the store has been in use in all, up to `seen_ms`."""
    leaps: tuple[ClockStep, ...] = ()
    """The leaps that do not count yet, the earliest first."""
    one: int = 1
    """The key of the row: a store has one horizon."""

    @property
    def behind_ms(self) -> int:
        """How much clock time does not count yet."""
        return sum(leap.by_ms for leap in self.leaps)

    def age_ms(self, at_ms: int) -> int:
        """The age of a row of this time. If the time lies inside a leap, the row is as old as the leap."""
        for leap in self.leaps:
            at_ms = max(at_ms, min(at_ms + leap.by_ms, leap.to_ms))
        return self.seen_ms - at_ms

    def before_ms(self, keep_s: float) -> int:
        """The time such that exactly the rows of this time or earlier are at least `keep_s` old."""
        at_ms = self.seen_ms - int(keep_s * 1000)
        for leap in reversed(self.leaps):
            if at_ms >= leap.to_ms:
                break
            at_ms -= leap.by_ms
        return at_ms


def looked(before: Horizon | None, now_ms: int) -> Horizon:
    """The horizon after a reading of the clock. The very first reading counts as a leap."""
    before = before or Horizon(seen_ms=0)
    ran_ms, leaps, step_ms = before.ran_ms, before.leaps, now_ms - before.seen_ms
    if step_ms > limits.clock_leap_s * 1000:
        counts_ms = (ran_ms + int(limits.clock_trust_s * 1000)) // _HOUR_MS * _HOUR_MS
        leaps = _with(leaps, ClockStep(to_ms=now_ms, by_ms=step_ms, counts_ms=counts_ms))
    elif step_ms < 0:
        leaps = _taken_back(leaps, -step_ms)
    else:
        ran_ms += step_ms
    pending = tuple(leap for leap in leaps if leap.counts_ms > ran_ms)
    return Horizon(seen_ms=now_ms, ran_ms=ran_ms, leaps=pending)


def believed(before: Horizon | None, now_ms: int) -> Horizon:
    """The horizon after an operator has said that the clock is right."""
    return msgspec.structs.replace(looked(before, now_ms), leaps=())


def _with(leaps: tuple[ClockStep, ...], leap: ClockStep) -> tuple[ClockStep, ...]:
    if leaps and leaps[-1].counts_ms == leap.counts_ms:
        # A row that was written between the two leaps is as old as the later one.
        by_ms = leaps[-1].by_ms + leap.by_ms
        return (*leaps[:-1], msgspec.structs.replace(leap, by_ms=by_ms))
    return (*leaps, leap)


def _taken_back(leaps: tuple[ClockStep, ...], by_ms: int) -> tuple[ClockStep, ...]:
    while leaps and by_ms:
        *earlier, last = leaps
        taken = min(by_ms, last.by_ms)
        by_ms -= taken
        left = ClockStep(
            to_ms=last.to_ms - taken, by_ms=last.by_ms - taken, counts_ms=last.counts_ms
        )
        leaps = (*earlier, left) if left.by_ms else tuple(earlier)
    return leaps
