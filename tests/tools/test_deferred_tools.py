"""Deferred tools: found by words, loaded by name, and remembered with the session."""

from __future__ import annotations

import msgspec

from holdfast.core.items import text_of
from holdfast.core.turns.events import StateSet
from holdfast.tools.deferred_tools import (
    ADD,
    SEARCH,
    STATE,
    is_offered,
    loaded_by,
    loaders,
    matching,
)
from holdfast.tools.notes.think import ThinkToolset
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolset_choice import ChosenToolset

SPECS = [
    ToolSpec(name="create_issue", description="Open an issue.", parameters="{}", deferred=True),
    ToolSpec(name="list_issues", description="All of them.", parameters="{}", deferred=True),
    ToolSpec(name="merge", description="Close a pull request.", parameters="{}", deferred=True),
]


async def use(
    tool: str, state: dict[str, str], /, agent: str = "butler", **arguments: str
) -> ToolOutput:
    chosen = {each.spec.name: each for each in loaders(SPECS)}[tool]
    return await chosen.run(
        ToolRun(
            call_key="call_1",
            arguments=arguments,
            tenant="acme",
            session_id="conv_1",
            agent=agent,
            state=state,
        )
    )


def after(output: ToolOutput, state: dict[str, str]) -> dict[str, str]:
    (change,) = output.changes
    assert isinstance(change, StateSet)
    return {**state, change.name: change.value}


def names(query: str) -> list[str]:
    return [each.name for each in matching(query, SPECS)]


def test_most_words_come_first_and_names_before_descriptions() -> None:
    assert names("open issue") == ["create_issue", "list_issues"]
    assert names("CLOSE pull") == ["merge"]
    assert names("create_issue") == ["create_issue", "list_issues"]
    assert names("weather") == []
    assert names("") == []


def test_without_deferred_tools_nothing_is_added() -> None:
    assert loaders([]) == ()


async def test_what_is_found_is_named_and_described() -> None:
    found = await use(SEARCH, {}, query="issue")
    assert text_of(found.content) == "create_issue: Open an issue.\nlist_issues: All of them."
    assert text_of((await use(SEARCH, {}, query="weather")).content).startswith("None of 3 tools")


async def test_not_more_is_found_than_anybody_reads() -> None:
    many = [
        ToolSpec(name=f"look_{n}", description="x", parameters="{}", deferred=True)
        for n in range(25)
    ]
    search = loaders(many)[0]
    run = ToolRun(
        call_key="c", arguments={"query": "look"}, tenant="t", session_id="s", agent="a", state={}
    )
    words = text_of((await search.run(run)).content)
    assert words.count("\n") == 20
    assert words.endswith("… and 5 more; use words that say more.")


async def test_what_is_loaded_is_an_agents_own_and_stays() -> None:
    state = after(await use(ADD, {}, name="merge"), {})
    state = after(await use(ADD, state, name="create_issue"), state)
    state = after(await use(ADD, state, agent="cook", name="list_issues"), state)
    state = after(await use(ADD, state, name="merge"), state)
    assert loaded_by("butler", state) == {"merge", "create_issue"}
    assert loaded_by("cook", state) == {"list_issues"}
    assert [each.name for each in SPECS if is_offered(each, loaded_by("cook", state))] == [
        "list_issues"
    ]


async def test_a_tool_that_is_not_there_cannot_be_loaded() -> None:
    output = await use(ADD, {}, name="rm")
    assert (output.outcome, output.changes) == ("error", ())


def test_state_that_cannot_be_read_is_nothing_loaded() -> None:
    assert loaded_by("butler", {STATE: "[]"}) == frozenset()


async def test_some_or_all_of_a_toolset() -> None:
    for deferred, expected in ((None, True), (("think",), True), (("other",), False)):
        (tool,) = await ChosenToolset(ThinkToolset(), deferred=deferred).tools()
        assert tool.spec.deferred is expected


def test_a_spec_is_offered_unless_it_is_deferred() -> None:
    plain = msgspec.structs.replace(SPECS[0], deferred=False)
    assert is_offered(plain, frozenset())
    assert not is_offered(SPECS[0], frozenset())
