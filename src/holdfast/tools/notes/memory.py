"""The `memory` toolset: what an agent remembers across conversations.

A tool's result stages each added and deleted memory by itself, and the turn's commit writes it: conversations
that remember things at the same time do not undo one another. A discarded turn remembers nothing.
Memories outlive their conversation, and every later conversation believes them, so adding and deleting need
a permission; reading does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.turns.events import MemoryAdded, MemoryDeleted
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    Do,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.execution import failure
from holdfast.tools.schema import suggest
from holdfast.tools.tool import Json, ToolOutput, ToolRun, ToolSpec

MEMORIES_MAX = 1000

INSTRUCTION = """\
You remember things across conversations with your memory tools. Look there first when a user may have told you
something before. Remember what will still matter next time, a sentence each; do not remember secrets."""


class MemoryToolset(BuiltInToolset):
    """`add_memory`, `get_memories`, `search_memories`, `update_memory`, `delete_memory`."""

    def __init__(self, owner: str = "") -> None:
        """`owner`: the agent whose memories they are; empty: the agent that calls."""
        text: Json = {"type": "string", "minLength": 1, "maxLength": 4000}
        by_id = parameters(["id"], id=text)
        tools = (
            ("add_memory", "Remember something from now on.", parameters(["memory"], memory=text), _add),
            ("get_memories", "Everything that you remember.", parameters(), _get),
            ("search_memories", "What you remember that contains all of these words.",
             parameters(["query"], query=text), _search),
            ("update_memory", "Remember something else in place of a memory.",
             parameters(["id", "memory"], id=text, memory=text), _update),
            ("delete_memory", "Forget a memory.", by_id, _delete),
        )  # fmt: skip
        super().__init__(*(_tool(*each, owner) for each in tools), instruction=INSTRUCTION)


def _tool(name: str, description: str, schema: str, do: Do, owner: str) -> BuiltInTool:
    spec = ToolSpec(
        name=name,
        description=description,
        parameters=schema,
        read_only=do in (_get, _search),
        idempotent=True,  # a memory is named by its call: staged again, it is the same memory
        memories=True,
        memories_of=owner,
    )
    return BuiltInTool(spec, do)


async def _add(run: ToolRun) -> ToolOutput:
    if len(run.memories) >= MEMORIES_MAX:
        return failure(f"There are {len(run.memories)} memories already; forget some first.")
    new = _added(run)
    return text_output(f"Remembered as {new.memory_id}.", new)


async def _get(run: ToolRun) -> ToolOutput:
    return text_output(_in_words(run.memories))


async def _search(run: ToolRun) -> ToolOutput:
    words = text_in(run.arguments, "query").casefold().split()
    found = {
        name: text
        for name, text in run.memories.items()
        if all(word in text.casefold() for word in words)
    }
    return text_output(_in_words(found))


async def _update(run: ToolRun) -> ToolOutput:
    old = text_in(run.arguments, "id")
    if old not in run.memories:
        return _unknown(old, run.memories)
    new = _added(run)
    return text_output(
        f"Remembered as {new.memory_id}.", MemoryDeleted(memory_id=old, agent=run.agent), new
    )


async def _delete(run: ToolRun) -> ToolOutput:
    old = text_in(run.arguments, "id")
    if old not in run.memories:
        return _unknown(old, run.memories)
    return text_output(f"Forgot {old}.", MemoryDeleted(memory_id=old, agent=run.agent))


def _added(run: ToolRun) -> MemoryAdded:
    text = text_in(run.arguments, "memory").strip()
    return MemoryAdded(memory_id=f"mem_{run.call_key}", agent=run.agent, text=text)


def _unknown(name: str, memories: Mapping[str, str]) -> ToolOutput:
    return failure(f"There is no memory {name!r}; {suggest(name, list(memories)[:50])}.")


def _in_words(memories: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in memories.items()) or "[nothing]"
