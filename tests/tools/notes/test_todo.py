"""Thinking, and keeping a list: what they stage is all that they do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.turns.events import StateSet
from holdfast.tools.execution import execute
from holdfast.tools.function import FunctionToolset
from holdfast.tools.notes.think import ThinkToolset
from holdfast.tools.notes.todo import (
    ENTRIES_MAX,
    STATE,
    WORDS_MAX,
    Entries,
    TodoToolset,
    added,
    updated,
)
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput, instruction_of
from tests.tools.tool_calls import Blobs, call_of, said


async def ran(state: dict[str, str], name: str, **arguments: Json) -> ToolOutput:
    """Run one, and put what it stages into `state`, as a turn does."""
    tools = {each.spec.name: each for each in await TodoToolset().tools()}
    output = await execute(tools[name], call_of(arguments, state=state), Blobs())
    for change in output.changes:
        assert isinstance(change, StateSet)
        state[change.name] = change.value
    return output


async def test_thinking_changes_nothing() -> None:
    toolset = ThinkToolset()
    (tool,) = await toolset.tools()
    assert permission_for(tool.spec, arguments={}) == "allow"
    output = await execute(tool, call_of({"thought": "What if …"}), Blobs())
    assert (output.outcome, output.changes) == ("ok", ())
    assert "think tool" in instruction_of(toolset)
    assert instruction_of(FunctionToolset()) == ""


async def test_a_list_is_made_worked_on_and_shown() -> None:
    state: dict[str, str] = {}
    assert said(await ran(state, "list_todos")) == "[the list is empty]"
    await ran(state, "create_todo", description="Pack")
    await ran(state, "create_todos", descriptions=["Fly", "Land"])
    changes: Json = [{"id": "1", "status": "completed"}, {"id": "2", "status": "in-progress"}]
    output = await ran(state, "update_todos", updates=changes)
    assert said(output) == "[x] 1. Pack\n[~] 2. Fly\n[ ] 3. Land"
    shown = await ran(state, "list_todos")
    assert (said(shown), shown.changes) == (said(output), ())


async def test_what_cannot_be_done_is_told_and_stages_nothing() -> None:
    state: dict[str, str] = {}
    await ran(state, "create_todo", description="Pack")
    unknown: Json = [{"id": "1", "status": "completed"}, {"id": "7", "status": "completed"}]
    output = await ran(state, "update_todos", updates=unknown)
    assert (output.outcome, output.changes) == ("error", ())
    assert said(output) == "There is no entry '7'; there are: 1."
    assert (await ran(state, "create_todo", description="  ")).outcome == "error"
    assert said(await ran(state, "list_todos")) == "[ ] 1. Pack"
    many: Json = ["x"] * ENTRIES_MAX
    assert "more than 200" in said(await ran(state, "create_todos", descriptions=many))


async def test_they_need_no_permission_and_take_turns() -> None:
    for tool in await TodoToolset().tools():
        assert permission_for(tool.spec, arguments={}) == "allow"
        assert tool.spec.state == STATE


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=20))
def test_numbers_are_never_given_twice(words: list[str]) -> None:
    entries: Entries = ()
    for word in words:
        entries = added(entries, (word,))
        entries = updated(entries, {entries[-1].id: "completed"})
    assert [each.id for each in entries] == [str(n) for n in range(1, len(words) + 1)]


def test_the_longest_list_can_be_kept() -> None:
    entries = added((), ("\N{GRINNING FACE}" * WORDS_MAX * 2,) * 60)
    assert len(encode(entries)) < limits.state_value_bytes_max
