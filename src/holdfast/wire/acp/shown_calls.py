"""Tool calls as an editor shows them: a title, a kind, the files that they are about, and to-do lists as plans."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from holdfast.core.codec import DAMAGE
from holdfast.core.items import ToolCall, ToolResult, text_of
from holdfast.core.transcript import ends
from holdfast.printable import shortened
from holdfast.wire.acp.blocks import AcpText
from holdfast.wire.acp.updates import (
    CallKind,
    CallLocation,
    CallStatus,
    CallUpdated,
    PlanEntry,
    PlanUpdate,
    ShownBlock,
)

SHOWN_CHARS_MAX = 20_000
"""The most characters of a result that an editor is sent; of a longer one only the two ends."""

TITLE_CHARS_MAX = 120

KINDS: dict[str, CallKind] = {
    "read_file": "read",
    "read_multiple_files": "read",
    "list_directory": "search",
    "directory_tree": "search",
    "search_files": "search",
    "search_files_content": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "create_directory": "edit",
    "shell": "execute",
    "fetch": "fetch",
    "think": "think",
}
"""Of the tools that come with Holdfast; any other is `other`."""

TODO_TOOLS = frozenset({"create_todo", "create_todos", "update_todos", "list_todos"})
"""The tools whose result is the whole to-do list, a line each."""

_ENTRY = re.compile(r"\[([ ~x])\] \d+\. (.*)")
_SAID_FIRST = ("path", "cmd", "query", "pattern", "url", "paths", "description", "task")


class _Arguments(msgspec.Struct, frozen=True):
    path: str = ""
    line: int | None = None


def kind_of(name: str) -> CallKind:
    return KINDS.get(name, "other")


def title_of(name: str, arguments: str) -> str:
    """A line that says what the call is about: the tool, and its first telling argument."""
    given = decoded(arguments)
    about = next((given[each] for each in _SAID_FIRST if given.get(each)), None)
    if about is None:
        return name
    text = about if isinstance(about, str) else msgspec.json.encode(about).decode()
    return shortened(f"{name}: {' '.join(text.split())}", TITLE_CHARS_MAX)


def decoded(arguments: str) -> dict[str, object]:
    """A call's arguments; empty if they are not an object."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, object])
    except DAMAGE:
        return {}


def located(path: str, cwd: str) -> str:
    """A path as an editor knows it: absolute."""
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def locations_of(arguments: str, cwd: str) -> tuple[CallLocation, ...]:
    """The file that a call names."""
    try:
        given = msgspec.json.decode(arguments, type=_Arguments)
    except DAMAGE:
        return ()
    return (CallLocation(path=located(given.path, cwd), line=given.line),) if given.path else ()


def call_update(call: ToolCall, cwd: str, *, status: CallStatus | None = None) -> CallUpdated:
    """All that is known of a call before it has a result."""
    raw = Raw(call.arguments.encode()) if decoded(call.arguments) else None
    return CallUpdated(
        tool_call_id=call.id,
        title=title_of(call.name, call.arguments),
        kind=kind_of(call.name),
        status=status,
        locations=locations_of(call.arguments, cwd),
        raw_input=raw,
    )


def result_update(result: ToolResult) -> CallUpdated:
    """A call that has its result."""
    text = ends(text_of(result.content), SHOWN_CHARS_MAX)
    return CallUpdated(
        tool_call_id=result.call,
        status="completed" if result.outcome == "ok" else "failed",
        content=(ShownBlock(content=AcpText(text=text)),) if text else None,
    )


def plan_of(name: str, result: ToolResult) -> PlanUpdate | None:
    """The plan that a call of a to-do tool leaves; None for any other call, or if it failed."""
    if name not in TODO_TOOLS or result.outcome != "ok":
        return None
    found = (_ENTRY.fullmatch(line) for line in text_of(result.content).splitlines())
    return PlanUpdate(entries=tuple(_entry(each) for each in found if each is not None))


def _entry(found: re.Match[str]) -> PlanEntry:
    mark, words = found.groups()
    if mark == "x":
        return PlanEntry(content=words, status="completed")
    return PlanEntry(content=words, status="in_progress" if mark == "~" else "pending")
