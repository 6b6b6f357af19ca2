"""Deferred tools: a model gets their specs only after it has searched for them (`defer` of a toolset).

Every offered tool is sent with every request to the model. An agent with many tools can defer some of them: its model
gets two tools in their place, one that searches the deferred tools and one that loads them. The list of loaded tools
is session state: it is committed with the turn, or not at all, and lasts for the rest of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.turns.events import StateSet
from holdfast.tools.built_in_tools import harmless_tool, parameters, text_in, text_output
from holdfast.tools.execution import failure
from holdfast.tools.tool import Tool, ToolOutput, ToolRun, ToolSpec

SEARCH, ADD = "search_tool", "add_tool"
STATE = "loaded_tools"
FOUND_MAX = 20


class _Loaded(Value):
    agents: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Agent name → the names of the tools that it has loaded."""


_decode: Decoder[_Loaded] = Decoder(_Loaded)


def loaded_by(agent: str, state: Mapping[str, str]) -> frozenset[str]:
    """The deferred tools that an agent has loaded in a session, read from the session's state."""
    return frozenset(_read(state).agents.get(agent, ()))


def is_offered(spec: ToolSpec, loaded: frozenset[str]) -> bool:
    return not spec.deferred or spec.name in loaded


def loaders(deferred: Sequence[ToolSpec]) -> tuple[Tool, ...]:
    """The two tools by which a model searches and loads the deferred ones; empty if no tool is deferred."""
    if not deferred:
        return ()
    known = {each.name: each for each in deferred}

    async def search(run: ToolRun) -> ToolOutput:
        found = matching(text_in(run.arguments, "query"), deferred)
        if not found:
            return text_output(f"None of {len(known)} tools has these words; try others, or fewer.")
        lines = [f"{each.name}: {each.description}" for each in found[:FOUND_MAX]]
        more = len(found) - len(lines)
        ending = f"\n… and {more} more; use words that say more." if more else ""
        return text_output("\n".join(lines) + ending)

    async def add(run: ToolRun) -> ToolOutput:
        name = text_in(run.arguments, "name")
        if name not in known:
            return failure(f"There is no tool {name!r} to load; look for it with {SEARCH}.")
        before = _read(run.state)
        mine = (*(each for each in before.agents.get(run.agent, ()) if each != name), name)
        after = _Loaded(agents={**before.agents, run.agent: mine})
        change = StateSet(name=STATE, value=encode(after).decode())
        return text_output(f"{name} is loaded, and can be called from now on.", change)

    return (
        harmless_tool(
            SEARCH,
            f"Search among {len(known)} more tools, by words of their names and descriptions. "
            f"Load what you find with {ADD}.",
            parameters(["query"], query={"type": "string", "description": "A few words."}),
            search,
        ),
        harmless_tool(
            ADD,
            f"Load a tool that {SEARCH} has found, so that it can be called.",
            parameters(["name"], name={"type": "string", "description": "The tool's name."}),
            add,
            state=STATE,
        ),
    )


def matching(query: str, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools that match some of the query's words, best first: most words, words in the name, given order."""
    words = {each.casefold() for each in re.findall(r"\w+", query.replace("_", " "))}

    def score(spec: ToolSpec) -> tuple[int, int]:
        name, about = spec.name.casefold(), spec.description.casefold()
        in_name = sum(each in name for each in words)
        return sum(each in name or each in about for each in words), in_name

    scored = [(score(each), each) for each in specs]
    best = sorted((each for each in scored if each[0][0]), key=lambda each: each[0], reverse=True)
    return [spec for _, spec in best]


def _read(state: Mapping[str, str]) -> _Loaded:
    text = state.get(STATE, "")
    found = _decode.lenient(text.encode()) if text else _Loaded()
    # Unreadable state: the model has to search again.
    return _Loaded() if isinstance(found, Unreadable) else found
