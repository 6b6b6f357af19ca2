"""Requests of a client that owns its history, when a node has died over a turn of their line."""

from __future__ import annotations

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.ids import SessionId
from tests.simulation.clients import TENANT
from tests.simulation.stage import Gate, Stage, heard, on_stage, said
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s
PLAIN = Policy()
PAST = (*said("one"), heard("re: one"))


async def dies_over_a_turn(stage: Stage, policy: Policy = PLAIN) -> tuple[Node, SessionId]:
    """A line over whose second turn its node has died, and another node."""
    dying, other = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    first = await stage.send(dying, "one", follows=True)
    await stage.playing(dying, "two", Gate(), follows=True, past=PAST, policy=policy)
    del stage.parts["two"]
    stage.world.bury(dying)
    return other, first.session_id


async def unswept(stage: Stage, node: Node) -> None:
    """Let the dead node's lease run out, and the sweeps of this one find nothing."""

    async def orphans(**_: object) -> tuple[()]:
        return ()

    node.store.override("orphans", orphans)
    await stage.sleep(TTL_S + 1)


async def lines(stage: Stage, line: SessionId) -> list[SessionId]:
    return [each.id for each in await stage.store.family_lines(TENANT, line, limit=10)]


@on_stage
async def test_a_retry_goes_on_in_the_line_that_a_dead_node_has_left(stage: Stage) -> None:
    """It may come before any sweep has found the turn: the person only presses a button again."""
    node, line = await dies_over_a_turn(stage)
    await unswept(stage, node)
    ending = await stage.send(node, "two", follows=True, past=PAST)
    assert (ending.ok, ending.session_id) == (True, line)
    assert await stage.said(line) == ["one", "re: one", "two", "re: two"]
    assert await lines(stage, line) in ([], [line])


@on_stage
async def test_a_retry_waits_while_a_sweep_ends_the_turn_of_a_dead_node(stage: Stage) -> None:
    node, line = await dies_over_a_turn(stage)
    ended = stage.delay(node, "end")
    await stage.until(lambda: bool(node.sessions._owner.live))
    retry = stage.send(node, "two", follows=True, past=PAST)
    await stage.sleep(1)
    ended.set()
    assert (await retry).session_id == line


@on_stage
async def test_a_turn_that_is_resumed_makes_its_line_as_busy_as_any_other(stage: Stage) -> None:
    node, line = await dies_over_a_turn(stage, policy=Policy(crash="resume"))
    await unswept(stage, node)
    ending = await stage.send(node, "new", follows=True, past=PAST)
    assert ending.ok and ending.session_id != line
    await stage.until(lambda: not node.sessions._owner.live)
    assert await stage.said(line) == ["one", "re: one", "two", "re: two"]
