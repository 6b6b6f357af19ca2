"""Sweeps of many nodes: how many they make together, and what a node that rests still sees."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import TurnId, mint
from holdfast.sessions.turns.owner import DOUBT_S, DOUBTS_MAX
from holdfast.sessions.turns.sweep_rota import SweepRota
from holdfast.store.outcomes import Begin
from holdfast.store.rows import NodeRow
from tests.simulation.campaign import judge
from tests.simulation.clients import TENANT
from tests.simulation.stage import Gate, Stage, on_stage
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s
MANY = 8 * limits.sweepers_max


class Fleet:
    """Nodes that sweep by their rotas, round by round."""

    def __init__(self, nodes: int, *, seed: int = 0) -> None:
        chance = Random(seed)
        self.rotas = [SweepRota(chance=chance.random) for _ in range(nodes)]
        for each in self.rotas:
            each.note_count(0.0, nodes)

    def sweeps(self, *, rounds: int) -> list[int]:
        """How many nodes sweep in each round, after the first one, in which all of them do."""
        found = []
        for now_s in (number * limits.sweep_s for number in range(rounds)):
            due = [each for each in self.rotas if each.is_due(now_s)]
            for each in due:
                each.note_sweep(now_s, taken=0)
            found.append(len(due))
        return found[1:]


def never() -> float:
    raise AssertionError("few nodes draw no chance: the stories of simulated ones depend on it")


@pytest.mark.parametrize("nodes", range(1, limits.sweepers_max + 1))
def test_few_nodes_sweep_in_every_round_and_draw_no_chance(nodes: int) -> None:
    fleet = Fleet(nodes)
    for each in fleet.rotas:
        each._chance = never
    assert set(fleet.sweeps(rounds=20)) == {nodes}


@pytest.mark.parametrize("nodes", [5, 10, 40, 200])
def test_many_nodes_sweep_no_more_often_than_few(nodes: int) -> None:
    rest = -(-nodes // limits.sweepers_max)
    made = Fleet(nodes).sweeps(rounds=20 * rest)[2 * rest :]  # they have drifted apart
    assert 0.6 * limits.sweepers_max <= sum(made) / len(made) <= 1.2 * limits.sweepers_max


def a_rota(*, nodes: int = MANY) -> SweepRota:
    """One that has counted so many nodes, and whose rests are as long as chance makes them."""
    rota = SweepRota(chance=lambda: 1.0)
    rota.note_count(0.0, nodes)
    return rota


def test_no_node_rests_for_ever() -> None:
    rota, now_s = a_rota(), 0.0
    assert rota.is_due(now_s)
    rota.note_sweep(now_s, taken=0)
    rest_s = limits.sweep_s * MANY / limits.sweepers_max
    assert not rota.is_due(now_s + 1.4 * rest_s)
    assert rota.is_due(now_s + 1.5 * rest_s)


def test_a_node_that_has_found_what_the_dead_have_left_does_not_rest() -> None:
    rota = a_rota()
    rota.note_sweep(0.0, taken=1)
    assert rota.is_due(limits.sweep_s)
    rota.note_sweep(limits.sweep_s, taken=0)
    assert not rota.is_due(2 * limits.sweep_s)


def test_the_last_of_many_nodes_sweeps_in_every_round_once_it_has_counted() -> None:
    rota = a_rota(nodes=1000)
    rota.note_sweep(0.0, taken=0)
    assert not rota.is_due(limits.sweep_count_s)
    assert rota.is_count_due(limits.sweep_count_s)
    rota.note_count(limits.sweep_count_s, 1)
    assert not rota.is_count_due(limits.sweep_count_s + 1)
    assert all(rota.is_due(limits.sweep_count_s + number) for number in range(3))


# ── a node among many ────────────────────────────────────────────────────────────────────────


def among_many(stage: Stage, node: Node) -> list[bool]:
    """Tell a node that there are many more; returns, as they happen, whether its looks are at all open turns."""
    store = node.store.as_store()
    find, list_nodes, looks = store.orphans, store.nodes, list[bool]()

    async def nodes() -> tuple[NodeRow, ...]:
        at_ms = stage.world.now_ms() + 3_600_000
        row = (await list_nodes())[0]
        return tuple(
            NodeRow(node_id=row.node_id, ttl_ms=1, since_ms=0, expires_ms=at_ms)
            for _ in range(MANY)
        )

    async def orphans(**asked: Any) -> Any:
        looks.append("among" not in asked)
        return await find(**asked)

    node.store.override("nodes", nodes)
    node.store.override("orphans", orphans)
    return looks


@on_stage
async def test_a_node_among_many_finds_what_the_dead_have_left_and_looks_rarely(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    looks = among_many(stage, two)
    await stage.sleep(limits.sweep_count_s + TTL_S)
    await stage.playing(one, "Wait", Gate())
    session_id = await stage.id_of()
    stage.world.bury(one)
    del stage.parts["Wait"]
    looks.clear()
    rest_s = 1.5 * limits.sweep_s * MANY / limits.sweepers_max
    await stage.sleep(TTL_S + 2 * rest_s)
    assert sum(looks) <= 5
    session = await stage.store.session(TENANT, session_id)
    assert session is not None and session.open_turn is None


@on_stage
async def test_a_node_that_rests_sees_what_it_has_lost(stage: Stage) -> None:
    node = await stage.boot()
    looks = among_many(stage, node)
    await stage.sleep(limits.sweep_count_s + TTL_S)
    await stage.playing(node, "Wait", Gate())
    await stage.sleep(2 * limits.sweep_s)
    assert False in looks
    [live] = node.sessions._owner.playing

    async def lost(**asked: Any) -> tuple[()]:
        return ()

    node.store.override("orphans", lost)
    await stage.sleep(2 * limits.sweep_s)
    assert live.lost


@on_stage
async def test_a_node_that_rests_finds_the_turn_that_it_holds_without_knowing_it(
    stage: Stage,
) -> None:
    """Its begin was told to have failed, and arrived all the same. For all others the holder is alive, so that nobody
    else would end it."""
    node = await stage.boot()
    looks = among_many(stage, node)
    await stage.sleep(limits.sweep_count_s + TTL_S)
    begin = node.store.as_store().begin

    async def lost(ask: Begin) -> None:
        await begin(ask)
        raise StoreUnavailable("it did not answer in time")

    node.store.override("begin", lost)
    node.sessions._recovery._rota.note_sweep(stage.world.loop.time(), taken=0)
    looks.clear()
    with pytest.raises(StoreUnavailable):
        await stage.send(node, "Hello")
    await stage.sleep(2 * limits.sweep_s)
    assert looks and not any(looks)
    assert (await stage.store.stats()).turns_open == 0


@on_stage
async def test_what_a_node_may_hold_without_knowing_it_is_bounded(stage: Stage) -> None:
    """While a store is away, each request that fails to begin leaves such a turn."""
    node = await stage.boot()
    looks = among_many(stage, node)
    await stage.sleep(limits.sweep_count_s + TTL_S)
    owner = node.sessions._owner
    for n in range(2 * DOUBTS_MAX):
        owner.doubt(TENANT, mint(TurnId, at_ms=n, entropy=0))
    assert owner.perhaps_held is None and not owner._doubts
    node.sessions._recovery._rota.note_sweep(stage.world.loop.time(), taken=0)
    looks.clear()
    await stage.sleep(2 * limits.sweep_s)
    assert looks and all(looks), "it looks at all open turns, and finds its own among them"
    await stage.sleep(DOUBT_S + limits.sweep_s)
    assert owner.perhaps_held == ()


@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_where_nodes_rest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares only divide the work."""
    monkeypatch.setattr(limits, "sweepers_max", 1)
    monkeypatch.setattr(limits, "sweep_count_s", 5.0)
    verdict = judge(seed, "memory")
    assert not verdict.broken
