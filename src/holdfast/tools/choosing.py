"""Some of a toolset's tools, and other words about them: what an agent file may say of any toolset."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.tools.base import Tool, Toolset, instruction_of

ORIGINAL = "{ORIGINAL_INSTRUCTIONS}"
"""Stands, in an instruction, for what the toolset itself says."""


class ChosenToolset:
    """A toolset, seen through a choice."""

    def __init__(
        self,
        inner: Toolset,
        *,
        only: Collection[str] | None = None,
        instruction: str | None = None,
    ) -> None:
        """`only`: these of its tools; None: all. `instruction`: in place of its own; None: its own."""
        self._inner = inner
        self._only = only
        self._instruction = instruction

    @property
    def instruction(self) -> str:
        own = instruction_of(self._inner)
        return own if self._instruction is None else self._instruction.replace(ORIGINAL, own)

    async def tools(self) -> tuple[Tool, ...]:
        tools = await self._inner.tools()
        if self._only is None:
            return tools
        return tuple(tool for tool in tools if tool.spec.name in self._only)

    async def close(self) -> None:
        await self._inner.close()

    def __repr__(self) -> str:
        return f"<Chosen {self._inner!r}>"
