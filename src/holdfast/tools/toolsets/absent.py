"""A toolset that this machine cannot offer now: it has no tools, and its agent is told why."""

from __future__ import annotations

from holdfast.tools.tool import Tool


class AbsentToolset:
    """No tools, and the reason. `required`: a turn without these tools fails."""

    def __init__(self, what: str, why: str, *, required: bool = False) -> None:
        self.instruction = f"The tools of {what} cannot be used now: {why}"
        self.absence = self.instruction if required else ""

    async def tools(self) -> tuple[Tool, ...]:
        return ()

    async def close(self) -> None:
        """Nothing to close."""

    def __repr__(self) -> str:
        return f"<AbsentToolset {self.instruction}>"
