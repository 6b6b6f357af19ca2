"""The demo agent: two tools that read, one that acts, and acting is staged with the turn."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.agents.demo import demo_team
from holdfast.agents.sources import DemoSource, Supplies
from holdfast.core.turns.events import StateSet
from holdfast.errors import InvalidValue, SourceUnusable
from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Tool, ToolRun
from tests.agents.models import Factory
from tests.tools.tool_calls import Blobs, said

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


async def tools() -> dict[str, Tool]:
    agent = demo_team(Factory(), now=lambda: NOON).agents["demo"]
    found = {tool.spec.name: tool for each in agent.toolsets for tool in await each.tools()}
    assert all(
        permission_for(tool.spec, agent.permissions, arguments={}) == "allow"
        for tool in found.values()
    )
    return found


def call(key: str, state: dict[str, str], **arguments: str) -> ToolRun:
    return ToolRun(
        call_key=key, arguments=arguments, tenant="", session_id="", agent="demo", state=state
    )


async def test_two_tools_read_and_one_acts() -> None:
    acting = {name: not tool.spec.read_only for name, tool in (await tools()).items()}
    assert acting == {"get_time": False, "list_notes": False, "add_note": True}


async def test_notes_are_kept_in_the_session() -> None:
    made = await tools()
    state: dict[str, str] = {}
    assert said(await execute(made["list_notes"], call("fc_0", state), Blobs())) == "no notes yet"
    for key, text in (("fc_1", "buy tea"), ("fc_2", "buy milk"), ("fc_2", "buy milk")):
        output = await execute(made["add_note"], call(key, state, text=text), Blobs())
        assert said(output) == f"noted: {text}"
        state |= {each.name: each.value for each in output.changes if isinstance(each, StateSet)}
    listed = await execute(made["list_notes"], call("fc_3", state), Blobs())
    assert said(listed) == "1. buy tea\n2. buy milk"


async def test_there_is_an_end_to_notes() -> None:
    state = {f"note_fc_{n}": '"x"' for n in range(100)}
    output = await execute((await tools())["add_note"], call("fc_1", state, text="y"), Blobs())
    assert (output.outcome, output.changes) == ("error", ())


async def test_the_time_is_told() -> None:
    output = await execute((await tools())["get_time"], call("fc_1", {}), Blobs())
    assert said(output) == "2025-06-01T12:00:00+00:00"


async def test_the_source_has_one_agent_on_the_demo_model() -> None:
    team = await DemoSource(Supplies(make_model=Factory())).load()
    assert (team.entry, list(team.agents)) == ("demo", ["demo"])
    assert team.agents["demo"].model.name == "demo/parrot"


async def test_a_factory_without_a_demo_model_is_told() -> None:
    def refuse(config: object) -> Factory:
        raise InvalidValue("no such provider")

    with pytest.raises(SourceUnusable, match="no such provider"):
        await DemoSource(Supplies(make_model=refuse)).load()  # type: ignore[arg-type]
