"""The `think` toolset: a call only puts a thought into the conversation, and does nothing else."""

from __future__ import annotations

from holdfast.tools.built_in_tools import BuiltInTool, BuiltInToolset, parameters, text_output
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec

INSTRUCTION = """\
Before you act on something difficult, use your think tool: what is asked for, what you know, what is missing, and
whether what you are about to do follows the rules that you were given."""


class ThinkToolset(BuiltInToolset):
    """One tool, `think`."""

    def __init__(self) -> None:
        spec = ToolSpec(
            name="think",
            description="Think about something. It learns and changes nothing; the thought is kept.",
            parameters=parameters(["thought"], thought={"type": "string"}),
            read_only=True,
            idempotent=True,
        )
        super().__init__(BuiltInTool(spec, self._think), instruction=INSTRUCTION)

    async def _think(self, run: ToolRun) -> ToolOutput:
        return text_output("Go on.")
