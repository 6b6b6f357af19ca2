"""The checker is the only thing between a broken promise and a green run, so it is tested by breaking them all."""

from __future__ import annotations

from functools import cache

import pytest

from tests.simulation.anomalies import ANOMALIES
from tests.simulation.checker import RULES, check
from tests.simulation.history import Recording
from tests.simulation.simulation import simulate

RICH = (52, 9, 73, 31, 38, 98, 61, 40, 58, 85, 13)
"""Seeds that between them offer two places for every anomaly, so that few have to be run."""

CLEAN = (*RICH, *range(400))
"""Seeds whose runs keep every promise. Those behind the rich ones are tried if a change has made these poorer."""


@cache
def clean(seed: int) -> Recording:
    recording = simulate(seed, "memory")
    assert check(recording) == []
    return recording


@pytest.mark.parametrize("name", ANOMALIES)
def test_every_anomaly_is_noticed_for_what_it_is(name: str) -> None:
    code, anomaly = ANOMALIES[name]
    tried = 0
    for seed in CLEAN:
        broken = anomaly(clean(seed))
        if broken is not None:
            noticed = {each.code for each in check(broken)}
            assert code in noticed, f"seed {seed}: noticed only {sorted(noticed)}"
            tried += 1
        if tried == 2:
            break
    assert tried, "no run offers a place for it"


def test_every_rule_has_an_anomaly_that_only_it_is_there_for() -> None:
    assert {code for code, _ in ANOMALIES.values()} == RULES.keys()
