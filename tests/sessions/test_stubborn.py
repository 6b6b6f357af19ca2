"""Players that do not stop when they are told to: they keep nobody else waiting."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import limits
from holdfast.errors import Superseded
from holdfast.observe.supervisor import DEFAULT
from holdfast.sessions.session_requests import Ending
from tests.simulation.clients import TENANT
from tests.simulation.stage import KEY, Hand, Stage, on_stage

TTL_S = limits.lease_ttl_s
LONG_S = 600.0
AT_ONCE_S = 1.0


class Stubborn:
    """Hears every cancel, and heeds none of them."""

    def __init__(self) -> None:
        self.refused = False
        """It was told, when it wanted to record something, that nobody listens any more."""

    async def __call__(self, hand: Hand) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + LONG_S
        while loop.time() < until:
            try:
                await asyncio.sleep(until - loop.time())
            except asyncio.CancelledError:
                pass
        with pytest.raises(Superseded):
            await hand.say("done at last")
        self.refused = True


@on_stage
async def test_a_cancel_that_is_ignored_frees_the_session_and_tells_who_waits(stage: Stage) -> None:
    node = await stage.boot()
    stubborn = stage.parts["Wait"] = Stubborn()
    sent = stage.send(node, "Wait")
    await stage.until(lambda: stage.played == ["Wait"])
    (turn,) = await stage.turns()
    ending = await node.run(lambda: node.sessions.operations.cancel(TENANT, turn.turn_id))
    assert isinstance(ending, Ending) and ending.by == "cancelled"

    began_s = stage.loop.time()
    assert (await sent).by == "cancelled"
    assert (await stage.send(node, "Next")).ok
    assert stage.loop.time() - began_s < AT_ONCE_S
    await stage.sleep(LONG_S)
    assert stubborn.refused and (await stage.said())[-2:] == ["Next", "re: Next"]


@on_stage
async def test_a_turn_that_was_lost_is_watched_elsewhere_though_its_player_goes_on(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stubborn = stage.parts["Wait"] = Stubborn()
    sent = stage.send(one, "Wait", key="k1")
    await stage.until(lambda: stage.played == ["Wait"])
    one.store.partitioned = True
    await stage.until(lambda: stage.played == ["Wait"] * 2)  # two has taken it over
    one.store.partitioned = False
    began_s = stage.loop.time()
    assert (await sent).ok
    assert (await stage.send(one, "Next")).ok
    # The sweeper rests after its failures; its next sweep stops the player, and the one after that gives it up.
    assert stage.loop.time() - began_s < DEFAULT.most_s + limits.sweep_s + AT_ONCE_S
    await stage.sleep(LONG_S)
    assert stubborn.refused and two in stage.world.nodes
    assert await stage.said() == ["Wait", "re: Wait", "Next", "re: Next"]


@on_stage
async def test_a_node_leaves_without_a_player_that_does_not_stop(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stubborn = stage.parts["Wait"] = Stubborn()
    stage.send(one, "Wait", key="k1")
    await stage.until(lambda: stage.played == ["Wait"])
    began_s = stage.loop.time()
    await one.run(lambda: one.sessions.close(grace_s=0))
    assert stage.loop.time() - began_s < limits.cancel_grace_s + AT_ONCE_S
    await stage.sleep(2 * limits.sweep_s)
    assert two in stage.world.nodes and await stage.said(KEY) == ["Wait", "re: Wait"]
    await stage.sleep(LONG_S)
    assert stubborn.refused
