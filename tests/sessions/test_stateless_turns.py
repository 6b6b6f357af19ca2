"""Turns that nothing is stored of, where a store is needed all the same."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import StoreUnavailable
from holdfast.sessions.turns.watch import Watch
from tests.simulation.stage import Hand, Stage, on_stage
from tests.simulation.world import Node

AT_ONCE_S = 1.0
AS_USUAL = Policy()


async def submit(stage: Stage, node: Node, text: str, policy: Policy = AS_USUAL) -> Watch:
    ask = msgspec.structs.replace(stage.ask(text, policy=policy), name=None)

    async def submitted() -> Watch:
        return node.sessions.submit_stateless(ask)

    return await node.run(submitted)


@on_stage
async def test_a_store_that_is_away_fails_the_turn_that_asks_it(stage: Stage) -> None:
    """There is nobody who could go on with it: it is not left to be found in a store that never had it."""
    node = await stage.boot()

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("the database is restarting; retry in a moment")

    async def remember(hand: Hand) -> None:
        await hand.open.memories("butler")
        await hand.go_on()

    stage.parts["What do you remember?"] = remember
    node.store.override("memories", away)
    began_s = stage.loop.time()
    watch = await submit(stage, node, "What do you remember?")
    ending = await node.run(watch.ended)
    assert (ending.by, ending.kept) == ("model_error", False)
    assert ending.detail.startswith("storage_unavailable: the database is restarting")
    assert [type(each.event).__name__ async for each in watch.events()][-1] == "Ended"
    assert stage.loop.time() - began_s < AT_ONCE_S


@on_stage
async def test_its_tools_run_also_where_the_node_cannot_say_that_it_is_alive(stage: Stage) -> None:
    """Nobody could take the turn over, so nobody has to be told."""
    node = await stage.boot()
    node.store.partitioned = True
    await stage.sleep(2 * limits.lease_ttl_s)

    async def use(hand: Hand) -> None:
        await hand.call("a")
        await hand.go_on()

    stage.parts["Use a tool"] = use
    began_s = stage.loop.time()
    watch = await submit(stage, node, "Use a tool")
    assert (await node.run(watch.ended)).ok
    assert stage.done == ["a"] and stage.loop.time() - began_s < AT_ONCE_S
    node.store.partitioned = False


@on_stage
async def test_its_events_are_shown_at_once_whatever_it_asks_for(stage: Stage) -> None:
    """There is nothing to resume it from, so nothing has to be written first."""
    node = await stage.boot()
    watch = await submit(stage, node, "Hello", Policy(crash="resume"))
    assert (await node.run(watch.ended)).ok
    assert watch.live is not None and not watch.live.turn.request.replayable
