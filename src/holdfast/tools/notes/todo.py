"""The `todo` toolset: a list of things to do in this conversation.

The list is session state: a tool's result stages the whole new list, and the turn's commit writes it. A discarded turn
leaves the list as it was, and a fork has its own. Nothing outside of the conversation changes, so the tools
count as read-only, and need no permission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.turns.events import StateSet
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    harmless_tool,
    parameters,
    text_in,
    text_output,
    texts_in,
)
from holdfast.tools.execution import failure
from holdfast.tools.tool import Json, ToolOutput, ToolRun

STATE = "todo"
ENTRIES_MAX = 200
WORDS_MAX = 500

INSTRUCTION = """\
Keep a to-do list when a task has several steps: create it first, mark an entry in-progress before you work on it and
completed when it is done, and look at the list before you say that you are finished."""

Status: TypeAlias = Literal["pending", "in-progress", "completed"]
_STATUSES: Json = ["pending", "in-progress", "completed"]
_MARKS: dict[Status, str] = {"pending": "[ ]", "in-progress": "[~]", "completed": "[x]"}


class Entry(Value):
    """One thing to do."""

    id: str
    description: str
    status: Status = "pending"


Entries: TypeAlias = tuple[Entry, ...]
_decode: Decoder[Entries] = Decoder(Entries)


class UnfitEntry(Exception):
    """The list cannot be changed like this; the message is for the model."""


def added(entries: Entries, descriptions: tuple[str, ...]) -> Entries:
    """The list with new entries. Raises UnfitEntry."""
    words = tuple(each.strip() for each in descriptions)
    if not words or not all(words):
        raise UnfitEntry("Say what is to be done.")
    if len(entries) + len(words) > ENTRIES_MAX:
        raise UnfitEntry(f"The list would have more than {ENTRIES_MAX} entries; finish some first.")
    first = 1 + max((int(each.id) for each in entries), default=0)
    return entries + tuple(
        Entry(id=str(first + n), description=each[:WORDS_MAX]) for n, each in enumerate(words)
    )


def updated(entries: Entries, changes: dict[str, Status]) -> Entries:
    """The list with new statuses. Raises UnfitEntry."""
    known = {each.id for each in entries}
    unknown = [name for name in changes if name not in known]
    if unknown:
        there = ", ".join(each.id for each in entries) or "none"
        raise UnfitEntry(f"There is no entry {unknown[0]!r}; there are: {there}.")
    return tuple(
        msgspec.structs.replace(each, status=changes.get(each.id, each.status)) for each in entries
    )


def in_words(entries: Entries) -> str:
    return (
        "\n".join(f"{_MARKS[each.status]} {each.id}. {each.description}" for each in entries)
        or "[the list is empty]"
    )


class TodoToolset(BuiltInToolset):
    """`create_todo`, `create_todos`, `update_todos`, `list_todos`."""

    def __init__(self) -> None:
        text: Json = {"type": "string", "minLength": 1}
        update: Json = {
            "type": "object",
            "properties": {"id": text, "status": {"type": "string", "enum": _STATUSES}},
            "required": ["id", "status"],
            "additionalProperties": False,
        }
        several: Json = {"type": "array", "items": text, "minItems": 1, "maxItems": ENTRIES_MAX}
        updates: Json = {"type": "array", "items": update, "minItems": 1, "maxItems": ENTRIES_MAX}
        super().__init__(
            _tool(
                "create_todo",
                "Put something on the to-do list.",
                parameters(["description"], description=text),
                lambda run, now: added(now, (text_in(run.arguments, "description"),)),
            ),
            _tool(
                "create_todos",
                "Put several things on the to-do list.",
                parameters(["descriptions"], descriptions=several),
                lambda run, now: added(now, texts_in(run.arguments, "descriptions")),
            ),
            _tool(
                "update_todos",
                "Change the status of entries of the to-do list.",
                parameters(["updates"], updates=updates),
                lambda run, now: updated(now, _updates(run)),
            ),
            _tool("list_todos", "Show the to-do list.", parameters(), lambda run, now: now),
            instruction=INSTRUCTION,
        )


def _tool(
    name: str, description: str, schema: str, change: Callable[[ToolRun, Entries], Entries]
) -> BuiltInTool:
    async def run(run: ToolRun) -> ToolOutput:
        now = _decode.strict(run.state.get(STATE) or "[]")
        try:
            then = change(run, now)
        except UnfitEntry as error:
            return failure(str(error))
        staged = () if then == now else (StateSet(name=STATE, value=encode(then).decode()),)
        return text_output(in_words(then), *staged)

    return harmless_tool(name, description, schema, run, state=STATE)


def _updates(run: ToolRun) -> dict[str, Status]:
    given = run.arguments.get("updates")
    return msgspec.convert(
        {text_in(each, "id"): each.get("status") for each in given if isinstance(each, dict)}
        if isinstance(given, list)
        else {},
        dict[str, Status],
    )
