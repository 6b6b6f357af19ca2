"""`holdfast` on a machine whose clock is off by so many seconds: python -m tests.torture.replicas.skewed 3600 serve …

What a process is told of the time of day is changed before anything of ours is loaded. What passes goes on as it does:
nobody's clock runs faster for being wrong.
"""

from __future__ import annotations

import runpy
import sys
import time

AHEAD_S = (3 * 3600, 0, -5 * 3600)
"""How far the clocks of the replicas are ahead, one after the other."""


def ahead_s(number: int) -> int:
    """How far the clock of a replica is ahead."""
    return AHEAD_S[number % len(AHEAD_S)]


def main() -> None:
    ahead_ns = int(sys.argv.pop(1)) * 1_000_000_000
    time_ns = time.time_ns
    time.time_ns = lambda: time_ns() + ahead_ns
    time.time = lambda: time.time_ns() / 1e9
    runpy.run_module("holdfast", run_name="__main__")


if __name__ == "__main__":
    main()
