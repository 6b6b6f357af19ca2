"""The `think` toolset: a call only puts a thought into the conversation, and does nothing else."""

from __future__ import annotations

from holdfast.tools.built_in_tools import BuiltInToolset, harmless_tool, parameters, text_output
from holdfast.tools.tool import ToolOutput, ToolRun

INSTRUCTION = """\
Before you act on something difficult, use your think tool: what is asked for, what you know, what is missing, and
whether what you are about to do follows the rules that you were given."""


class ThinkToolset(BuiltInToolset):
    """One tool, `think`."""

    def __init__(self) -> None:
        words = "Think about something. It learns and changes nothing; the thought is kept."
        schema = parameters(["thought"], thought={"type": "string"})
        super().__init__(
            harmless_tool("think", words, schema, self._think), instruction=INSTRUCTION
        )

    async def _think(self, run: ToolRun) -> ToolOutput:
        return text_output("Go on.")
