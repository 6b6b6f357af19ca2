"""The decision whether a worker that has ended is restarted. Pure.

1. Until all workers have been ready once, a worker that cannot start stops the whole server: the operator who starts it
   is there to read why, and the next attempt would fail in the same way.
2. After that the number of workers is kept. A worker that died is replaced at once; if its successors keep dying, after
   longer and longer waits.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value


class Restart(Value):
    """Start another worker in its place."""

    after_s: float
    deaths: int
    """How many workers of this place in a row have lived only briefly, this one included."""


class GiveUp(Value):
    """Stop all workers: the server cannot start."""


class ExpectedEnd(Value):
    """The worker was told to end."""


Verdict: TypeAlias = Restart | GiveUp | ExpectedEnd


def judge_end(
    *, draining: bool, serving: bool, was_ready: bool, lived_s: float, deaths: int
) -> Verdict:
    """Decide what to do about a worker that has ended.

    `serving` says whether all workers were ready once, `deaths` how many of its predecessors in a row lived briefly.
    """
    if draining:
        return ExpectedEnd()
    if not serving and not was_ready:
        return GiveUp()
    if was_ready and lived_s >= limits.worker_steady_s:
        return Restart(after_s=0.0, deaths=0)
    return Restart(after_s=backoff_s(deaths), deaths=deaths + 1)


def backoff_s(deaths: int) -> float:
    """How long to wait after so many brief lives in a row: not at all at first, then twice as long each time."""
    if not deaths:
        return 0.0
    longest = limits.worker_restart_most_s
    return float(min(longest, limits.worker_restart_first_s * 2 ** min(deaths - 1, 16)))
