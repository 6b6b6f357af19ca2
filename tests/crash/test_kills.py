"""Real processes on a real file, killed at random and at exact operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kills import Ledger, kill_at_every_operation, kill_at_random
from tests.crash.worker import Inspection
from tests.crash.zygote import Zygote


@pytest.mark.slow
def test_a_process_killed_at_any_time_loses_nothing_that_it_acknowledged(
    zygote: Zygote, tmp_path: Path
) -> None:
    tally = kill_at_random(zygote, tmp_path, kills=24, seed=1, per_file=8)
    assert tally.violations == []
    assert tally.kills == 24
    assert tally.acked > 0
    assert tally.recovered > 0


@pytest.mark.slow
def test_a_process_killed_at_any_operation_leaves_whole_turns_only(
    zygote: Zygote, tmp_path: Path
) -> None:
    tally = kill_at_every_operation(zygote, tmp_path, seed=2, step=12)
    assert tally.violations == []
    assert tally.kills > 10
    assert tally.survived == 1, "the last run has fewer operations than that"


def found(**histories: list[str]) -> Inspection:
    named = {name.replace("_", "-"): each for name, each in histories.items()}
    return Inspection(wrong=[], histories=named, recovered=0, waited_s=0.0)


def test_a_ledger_allows_what_was_in_flight_and_nothing_else() -> None:
    said = ["try a key-0", "ack a 1", "try b key-0"]
    for history in (["a"], ["a", "b"]):
        ledger = Ledger(1)
        ledger.hear(said)
        assert ledger.violations(found(key_0=history)) == []


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ([], "a was acknowledged as version 1, and is at 0"),
        (["a", "a"], "a is there 2 times"),
        (["a", "c"], "c is in key-0, and nobody knows why"),
        (["b", "a"], "a was acknowledged as version 1, and is at 2"),
    ],
)
def test_a_ledger_complains(history: list[str], complaint: str) -> None:
    ledger = Ledger(1)
    ledger.hear(["try a key-0", "ack a 1", "try b key-0"])
    assert complaint in ledger.violations(found(key_0=history))


def test_what_was_in_flight_is_decided_once() -> None:
    ledger = Ledger(1)
    ledger.hear(["try a key-0"])
    assert ledger.violations(found(key_0=[])) == []
    assert ledger.violations(found(key_0=["a"])) == ["a was acknowledged as version 0, and is at 1"]
