"""Remembering across conversations: staged with the turn, each memory by itself."""

from __future__ import annotations

from holdfast.core.history.conversation import changed_memories
from holdfast.tools.execution import execute
from holdfast.tools.notes.memory import MEMORIES_MAX, MemoryToolset
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput
from tests.tools.tool_calls import Blobs, call_of, said


async def ran(
    memories: dict[str, str], name: str, *, key: str = "fc_1", **arguments: Json
) -> ToolOutput:
    """Run one, and put what it stages into `memories`, as a turn does."""
    tools = {each.spec.name: each for each in await MemoryToolset().tools()}
    assert tools[name].spec.memories
    output = await execute(tools[name], call_of(arguments, key=key, memories=memories), Blobs())
    changed = changed_memories(memories, output.changes, agent="root")
    memories.clear()
    memories.update(changed)
    return output


async def test_what_is_added_is_found_changed_and_forgotten() -> None:
    memories: dict[str, str] = {}
    assert said(await ran(memories, "get_memories")) == "[nothing]"
    await ran(memories, "add_memory", key="fc_1", memory="Likes green tea")
    await ran(memories, "add_memory", key="fc_2", memory="Has a cat")
    assert (
        said(await ran(memories, "get_memories"))
        == "mem_fc_1: Likes green tea\nmem_fc_2: Has a cat"
    )
    assert (
        said(await ran(memories, "search_memories", query="TEA green"))
        == "mem_fc_1: Likes green tea"
    )
    assert said(await ran(memories, "search_memories", query="dog")) == "[nothing]"
    await ran(memories, "update_memory", key="fc_3", id="mem_fc_2", memory="Has two cats")
    await ran(memories, "delete_memory", id="mem_fc_1")
    assert memories == {"mem_fc_3": "Has two cats"}


async def test_a_call_that_is_run_again_remembers_once() -> None:
    memories: dict[str, str] = {}
    await ran(memories, "add_memory", key="fc_1", memory="Has a cat")
    await ran(memories, "add_memory", key="fc_1", memory="Has a cat")
    assert memories == {"mem_fc_1": "Has a cat"}


async def test_what_is_not_there_is_told() -> None:
    memories = {"mem_a": "x"}
    for name, more in (("delete_memory", {}), ("update_memory", {"memory": "y"})):
        output = await ran(memories, name, id="mem_b", **more)
        assert output.outcome == "error"
        assert "There is no memory 'mem_b'; there are: mem_a" in said(output)
    assert memories == {"mem_a": "x"}


async def test_there_is_an_end_to_remembering() -> None:
    memories = {f"m{n}": "x" for n in range(MEMORIES_MAX)}
    assert "forget some first" in said(await ran(memories, "add_memory", memory="y"))


async def test_looking_is_free_and_changing_needs_a_rule() -> None:
    allowed = {
        tool.spec.name
        for tool in await MemoryToolset().tools()
        if permission_for(tool.spec, arguments={}) == "allow"
    }
    assert allowed == {"get_memories", "search_memories"}
