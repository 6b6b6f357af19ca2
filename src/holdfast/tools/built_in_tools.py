"""Base classes for the tools that come with Holdfast: a spec, and the method that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from holdfast.core.items import Text
from holdfast.core.turns.events import Change
from holdfast.tools.schema import checked
from holdfast.tools.tool import Json, Tool, ToolOutput, ToolRun, ToolSpec

Do: TypeAlias = Callable[[ToolRun], Awaitable[ToolOutput]]


class BuiltInTool:
    """A tool that comes with Holdfast."""

    def __init__(self, spec: ToolSpec, do: Do) -> None:
        self.spec = checked(spec)
        self._do = do

    async def run(self, run: ToolRun) -> ToolOutput:
        return await self._do(run)

    def __repr__(self) -> str:
        return f"<BuiltTool {self.spec.name}>"


def harmless_tool(
    name: str, description: str, schema: str, do: Do, *, state: str = "", timeout_s: float = 60.0
) -> BuiltInTool:
    """A tool that changes nothing, or this state of the session alone: it needs no permission, and may be run again."""
    spec = ToolSpec(
        name=name,
        description=description,
        parameters=schema,
        read_only=True,
        idempotent=True,
        timeout_s=timeout_s,
        state=state,
    )
    return BuiltInTool(spec, do)


class BuiltInToolset:
    """Some built-in tools, and the instruction that their agent gets about them."""

    def __init__(self, *tools: Tool, instruction: str = "") -> None:
        self._tools = tools
        self.instruction = instruction

    @property
    def listed(self) -> tuple[Tool, ...]:
        """Its tools, which are known from the start."""
        return self._tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.spec.name for each in self._tools)

    async def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def close(self) -> None:
        """Nothing to close."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.names)}>"


def parameters(required: Sequence[str] = (), /, **properties: Json) -> str:
    """The schema of a tool's arguments."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return msgspec.json.encode(schema).decode()


def text_output(words: str, *changes: Change) -> ToolOutput:
    """The output of a successful call, as text."""
    return ToolOutput(content=(Text(text=words),), changes=changes)


# The schema has checked these arguments already; the assertions are for the type checker.


def text_in(arguments: Mapping[str, Json], name: str, default: str = "") -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else default


def number_in(arguments: Mapping[str, Json], name: str, default: int) -> int:
    value = arguments.get(name)
    return int(value) if isinstance(value, int | float) else default


def texts_in(arguments: Mapping[str, Json], name: str) -> tuple[str, ...]:
    value = arguments.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
