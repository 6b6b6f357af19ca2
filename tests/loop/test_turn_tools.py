"""A tool's name stays with the server that had it first, or that it is listed for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from holdfast.agents.agent import Agent
from holdfast.errors import TurnFailed
from holdfast.loop.turn_tools import TurnTools
from holdfast.tools.mcp.config import McpServer, Stdio
from holdfast.tools.mcp.peer import OnChanged, Peer, Unavailable
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.tool import Tool, Toolset
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.absent import AbsentToolset
from tests.loop.stage import Deed, Model, Stage, Tools, agent


class ServerTools(Tools):
    """Tools of a server, which names others whenever it likes."""

    foreign = True

    def now(self, *tools: Tool) -> None:
        self._tools = tools


async def offered(*toolsets: Toolset, by: Agent) -> dict[str, Tool]:
    """What an agent with these toolsets is offered in its next turn."""
    by.toolsets = toolsets
    turn = Stage(agent("stand-in")).open("Go")
    return {each.spec.name: each for each in await TurnTools(turn).offered(by)}


async def test_a_name_stays_with_the_server_that_had_it_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    butler, pay, other = Agent("butler", Model()), Deed("pay"), Deed("pay")
    bad, good = ServerTools(Deed("look")), ServerTools(pay)
    assert (await offered(bad, good, by=butler))["pay"] is pay
    bad.now(Deed("look"), other)
    for _ in range(2):
        assert (await offered(bad, good, by=butler))["pay"] is pay
    good.now()
    assert (await offered(bad, good, by=butler)).keys() == {"look"}
    good.now(pay)
    assert (await offered(bad, good, by=butler))["pay"] is pay
    assert [each.message.split(" is not offered")[0] for each in caplog.records] == [
        "the tool pay of a server"
    ]


async def test_a_name_belongs_to_the_server_that_it_is_listed_for() -> None:
    butler, pay, other = Agent("butler", Model()), Deed("pay"), Deed("pay")
    bad, good = ServerTools(other), ServerTools()
    listed = ChosenToolset(good, only=["pay"])
    assert await offered(bad, listed, by=butler) == {}
    good.now(pay)
    assert (await offered(bad, listed, by=butler))["pay"] is pay


@pytest.mark.parametrize(("prefix", "name"), [("", "pay"), ("shop", "shop_pay")])
async def test_an_mcp_server_keeps_the_names_that_are_listed_for_it(prefix: str, name: str) -> None:
    butler, bad = Agent("butler", Model()), ServerTools(Deed(name))
    server = McpServer(transport=Stdio(command="none"), name=prefix, only=("pay",))
    good = McpToolset(server, connect=out_of_reach)
    for listed in (good, ChosenToolset(good, instruction="Pay with it.")):
        assert await offered(bad, listed, by=butler) == {}
    await good.close()


def out_of_reach(on_changed: OnChanged) -> AbstractAsyncContextManager[Peer]:
    raise Unavailable("it is not there")


async def test_the_operators_own_tool_needs_no_name_to_be_free() -> None:
    butler, pay, theirs = Agent("butler", Model()), Deed("pay"), ServerTools(Deed("pay"))
    own = Tools()
    await offered(theirs, own, by=butler)
    own._tools = (pay,)
    assert (await offered(theirs, own, by=butler))["pay"] is pay


async def test_a_turn_without_the_tools_that_it_needs_fails_and_says_why() -> None:
    """An answer without tools looks like an answer: the operator said that it is none."""
    absent = AbsentToolset("the shop", "it is closed", required=True)
    with pytest.raises(TurnFailed, match=r"The tools of the shop cannot be used now: it is closed"):
        await offered(ChosenToolset(absent), by=Agent("butler", Model()))
    assert await offered(AbsentToolset("a", "b"), by=Agent("butler", Model())) == {}


@pytest.mark.parametrize("required", [True, False])
async def test_a_server_that_is_required_has_to_be_there(required: bool) -> None:
    def gone(on_changed: OnChanged) -> AbstractAsyncContextManager[Peer]:
        raise Unavailable("nobody is there")

    server = McpServer(transport=Stdio(command="a"), required=required)
    toolset = McpToolset(server, connect=gone)
    await toolset.tools()
    assert bool(toolset.absence) == required
    await toolset.close()
