"""What becomes of a worker that has ended. Pure.

1. Before everybody has been ready once, a worker that could not start ends the whole: whoever started us is there to
   read why, and the next attempt would say the same.
2. After that there are always as many as were asked for. One that died is started again at once; one that keeps dying,
   later and later.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value


class Restart(Value):
    """Start another one in its place."""

    after_s: float
    deaths: int
    """How many in a row have lived only briefly, this one included."""


class GiveUp(Value):
    """Stop everything: it cannot be served from here."""


class ExpectedEnd(Value):
    """It was to end."""


Verdict: TypeAlias = Restart | GiveUp | ExpectedEnd


def judge_end(
    *, draining: bool, serving: bool, was_ready: bool, lived_s: float, deaths: int
) -> Verdict:
    """What to do about a worker that has ended.

    `serving` says whether all were ready once, `deaths` how many of its predecessors died young in a row.
    """
    if draining:
        return ExpectedEnd()
    if not serving and not was_ready:
        return GiveUp()
    if was_ready and lived_s >= limits.worker_steady_s:
        return Restart(after_s=0.0, deaths=0)
    return Restart(after_s=backoff_s(deaths), deaths=deaths + 1)


def backoff_s(deaths: int) -> float:
    """How long to wait if so many have died young before: not at all at first, then twice as long each time."""
    if not deaths:
        return 0.0
    longest = limits.worker_restart_most_s
    return float(min(longest, limits.worker_restart_first_s * 2 ** min(deaths - 1, 16)))
