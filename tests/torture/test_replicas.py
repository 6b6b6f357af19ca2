"""The short form of `make torture-replicas`, and the rules that it judges by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.postgres import SAFE, Server
from tests.simulation import checker
from tests.simulation.anomalies import ANOMALIES as SIMULATED
from tests.torture.replicas.anomalies import ANOMALIES
from tests.torture.replicas.faults import OF_DATABASE, OF_REPLICA, Fault, draw_faults
from tests.torture.replicas.figures import takeovers, told
from tests.torture.replicas.rules import RULES, SHARED, check
from tests.torture.replicas.run import Plan, Seen, run

TTL_S = 3.0
PATIENCE_S = 400.0
SHORT = Plan(
    seed=1,
    calm_s=3.0,
    storm_s=11.0,
    clients=40,
    sdk_clients=2,
    ttl_s=TTL_S,
    chosen=(
        Fault(at_s=3.0, kind="kill", for_s=0.5, replica=0),
        Fault(at_s=4.0, kind="pause", for_s=TTL_S + 1.5, replica=1),
        Fault(at_s=9.5, kind="crash", for_s=0.0),
        Fault(at_s=10.5, kind="drain", for_s=0.0, replica=2),
        Fault(at_s=11.5, kind="cut", for_s=1.0, replica=0),
    ),
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    here: Path = tmp_path_factory.mktemp("replicas")
    with Server.started({**SAFE, "max_connections": "60"}) as database:
        # A client asks until it is answered: a turn that never ends would keep this from ending, too.
        yield uvloop.run(asyncio.wait_for(run(SHORT, here, database), PATIENCE_S))


@pytest.mark.slow
def test_replicas_that_are_struck_lose_nothing_and_do_nothing_twice(seen: Seen) -> None:
    assert [str(each) for each in check(seen.traffic)] == []
    assert len(seen.befallen) == len(SHORT.chosen)
    assert len(seen.acknowledged_s) > 10
    assert takeovers(seen), "nobody had anything to do when they were struck"
    assert seen.backup.turns and seen.backup.served, "a backup came before all answers"
    assert len(told(seen)) == 9


@pytest.mark.slow
@pytest.mark.parametrize("name", ANOMALIES)
def test_what_goes_wrong_on_the_wire_is_noticed(seen: Seen, name: str) -> None:
    code, anomaly = ANOMALIES[name]
    broken = anomaly(seen.traffic)
    assert broken is not None, "this run offers no place for it"
    assert code in {each.code for each in check(broken)}


@pytest.mark.slow
def test_the_rules_of_the_simulation_notice_here_what_they_notice_there(seen: Seen) -> None:
    """Each anomaly for which this run offers a place; the checker's own test has a place for every one."""
    tried: set[str] = set()
    for name, (code, anomaly) in SIMULATED.items():
        broken = anomaly(seen.traffic.recording) if code in SHARED else None
        if broken is not None:
            noticed = {each.code for each in checker.check(broken, SHARED)}
            assert code in noticed, f"{name} is noticed only as {sorted(noticed)}"
            tried.add(code)
    assert {"lost_ack", "twice", "effect_twice", "key_turns", "left_open", "malformed"} <= tried


def test_every_rule_has_an_anomaly() -> None:
    assert {code for code, _ in ANOMALIES.values()} == RULES.keys()


def test_a_seed_has_the_same_faults_each_time_and_all_kinds_come() -> None:
    def drawn(seed: int) -> tuple[Fault, ...]:
        return draw_faults(seed, from_s=10.0, to_s=600.0, replicas=3, ttl_s=3.0)

    assert drawn(1) == drawn(1) != drawn(2)
    kinds = {each.kind for seed in range(3) for each in drawn(seed)}
    assert kinds == {*OF_REPLICA, *OF_DATABASE}
    assert all(10.0 < each.at_s < 600.0 for each in drawn(1))
