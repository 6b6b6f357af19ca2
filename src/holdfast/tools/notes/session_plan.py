"""The `session_plan` toolset: one plan of the conversation, which an agent writes and others carry out.

The plan is session state, as a to-do list is: a discarded turn leaves it as it was, and a fork has its own.
"""

from __future__ import annotations

from functools import partial

import msgspec

from holdfast import limits
from holdfast.core.turns.events import StateSet
from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    harmless_tool,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.execution import failure
from holdfast.tools.tool import ToolOutput, ToolRun

STATE = "session_plan"
_tool = partial(harmless_tool, state=STATE)
_NONE = "There is no plan yet; write it with write_session_plan."

INSTRUCTION = """\
This conversation has one plan. Write it whole with write_session_plan, read it before you work by it, and call
exit_plan_mode when it is ready for a person to look at; then wait for their answer."""


class SessionPlanToolset(BuiltInToolset):
    """`write_session_plan`, `read_session_plan`, `exit_plan_mode`."""

    def __init__(self) -> None:
        content = parameters(
            ["content"],
            content={
                "type": "string",
                "minLength": 1,
                "maxLength": limits.tool_output_chars_max,
                "description": "The whole plan, in Markdown.",
            },
        )
        super().__init__(
            _tool("write_session_plan", "Write the plan, in place of the one before.", content, _write),
            _tool("read_session_plan", "Read the plan of this conversation.", parameters(), _read),
            _tool("exit_plan_mode", "Say that the plan is ready to be looked at.", parameters(), _exit),
            instruction=INSTRUCTION,
        )  # fmt: skip


async def _write(run: ToolRun) -> ToolOutput:
    content = text_in(run.arguments, "content")
    if not content.strip():
        return failure("Say what the plan is.")
    value = msgspec.json.encode(content).decode()
    return text_output("The plan is written.", StateSet(name=STATE, value=value))


async def _read(run: ToolRun) -> ToolOutput:
    plan = run.state.get(STATE)
    return text_output(msgspec.json.decode(plan, type=str)) if plan else failure(_NONE)


async def _exit(run: ToolRun) -> ToolOutput:
    if not run.state.get(STATE):
        return failure(_NONE)
    return text_output("The plan is ready to be looked at.")
