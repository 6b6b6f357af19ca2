"""A selection of a toolset's tools, with a changed instruction: an agent file can do this for any toolset."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

import msgspec

from holdfast.tools.tool import (
    Tool,
    ToolOutput,
    ToolRun,
    Toolset,
    absence_of,
    for_tenant,
    instruction_of,
    is_foreign,
    named_in,
    news_of,
)

ORIGINAL = "{ORIGINAL_INSTRUCTIONS}"
"""In an instruction, this stands for the toolset's own instruction."""


class ChosenToolset:
    """A toolset with a selection of its tools."""

    def __init__(
        self,
        inner: Toolset,
        *,
        only: Collection[str] | None = None,
        instruction: str | None = None,
        deferred: Collection[str] | None = (),
        read_only: bool = False,
        matching: Collection[str] = (),
    ) -> None:
        """`only`: offer only these tools; None: all. `instruction`: replaces the toolset's own; None: keep it.
        `deferred`: tools that a model has to search for; None: all. `read_only`: leave out tools that change things.
        `matching`: of those, only tools whose names fit one of these patterns; none: all.
        """
        self._read_only = read_only
        self._matching = matching
        self._inner = inner
        self._only = only
        self._instruction = instruction
        self._deferred = deferred

    def for_tenant(self, tenant: str) -> ChosenToolset:
        return ChosenToolset(
            for_tenant(self._inner, tenant),
            only=self._only,
            instruction=self._instruction,
            deferred=self._deferred,
            read_only=self._read_only,
            matching=self._matching,
        )

    @property
    def foreign(self) -> bool:
        return is_foreign(self._inner)

    @property
    def named(self) -> Collection[str]:
        return named_in(self._inner) if self._only is None else self._only

    @property
    def instruction(self) -> str:
        own = instruction_of(self._inner)
        return own if self._instruction is None else self._instruction.replace(ORIGINAL, own)

    @property
    def absence(self) -> str:
        return absence_of(self._inner)

    def news(self, tenant: str, session_id: str) -> str:
        return news_of(self._inner, tenant=tenant, session_id=session_id)

    async def tools(self) -> tuple[Tool, ...]:
        offered = (
            tool
            for tool in await self._inner.tools()
            if (self._only is None or tool.spec.name in self._only)
            and (tool.spec.read_only or not self._read_only)
            and (not self._matching or any(fnmatchcase(tool.spec.name, p) for p in self._matching))
        )
        return tuple(
            _Deferred(tool) if self._deferred is None or tool.spec.name in self._deferred else tool
            for tool in offered
        )

    async def close(self) -> None:
        await self._inner.close()

    def __repr__(self) -> str:
        return f"<Chosen {self._inner!r}>"


class _Deferred:
    """A tool that a model has to search for."""

    def __init__(self, inner: Tool) -> None:
        self.spec = msgspec.structs.replace(inner.spec, deferred=True)
        self._inner = inner

    async def run(self, run: ToolRun) -> ToolOutput:
        return await self._inner.run(run)

    def __repr__(self) -> str:
        return f"<Deferred {self._inner!r}>"
