"""What becomes of a worker that has ended."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.server.processes.restart_policy import (
    ExpectedEnd,
    GiveUp,
    Restart,
    Verdict,
    backoff_s,
    judge_end,
)

STEADY_S = limits.worker_steady_s


@pytest.mark.parametrize(
    ("draining", "serving", "was_ready", "lived_s", "deaths", "verdict"),
    [
        (True, True, True, 100.0, 0, ExpectedEnd()),
        (True, False, False, 0.1, 0, ExpectedEnd()),
        (False, False, False, 0.1, 0, GiveUp()),
        (False, False, True, 0.1, 0, Restart(after_s=0.0, deaths=1)),
        (False, True, True, STEADY_S, 5, Restart(after_s=0.0, deaths=0)),
        (False, True, True, 1.0, 0, Restart(after_s=0.0, deaths=1)),
        (False, True, True, 1.0, 1, Restart(after_s=limits.worker_restart_first_s, deaths=2)),
        # One that takes long to fail has not lived.
        (
            False,
            True,
            False,
            STEADY_S * 2,
            2,
            Restart(after_s=2 * limits.worker_restart_first_s, deaths=3),
        ),
    ],
)
def test_a_worker_that_has_ended(
    draining: bool,
    serving: bool,
    was_ready: bool,
    lived_s: float,
    deaths: int,
    verdict: Verdict,
) -> None:
    judged = judge_end(
        draining=draining, serving=serving, was_ready=was_ready, lived_s=lived_s, deaths=deaths
    )
    assert judged == verdict


def test_workers_that_keep_dying_are_started_later_and_later() -> None:
    waits = [backoff_s(deaths) for deaths in range(100)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == limits.worker_restart_most_s
