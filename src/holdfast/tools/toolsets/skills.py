"""Skills: instructions that a model reads when it needs them.

The model is told the name and the description of each skill, and reads the rest with a tool. A skill is words: reading
one changes nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.codec import Value
from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    harmless_tool,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.tool import Json, ToolOutput, ToolRun


class Skill(Value):
    """One skill."""

    name: str
    description: str
    instructions: str
    is_apart: bool = False
    """An agent of its own follows them."""
    model: str = ""
    allowed_tools: tuple[str, ...] = ()


class SkillsToolset(BuiltInToolset):
    """One tool, `read_skill`."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._texts = {each.name: each.instructions for each in skills}
        names: list[Json] = [*self._texts]
        known = "\n".join(f"- {each.name}: {each.description}" for each in skills)
        schema = parameters(["name"], name={"type": "string", "enum": names})
        tool = harmless_tool("read_skill", "The instructions of a skill.", schema, self._read)
        words = f"You have skills. Before work that one is about, read it with read_skill:\n{known}"
        super().__init__(tool, instruction=words)

    async def _read(self, run: ToolRun) -> ToolOutput:
        return text_output(self._texts[text_in(run.arguments, "name")])
