"""The agent that replicas serve while they are tortured: its tools write down what they do.

A line is written as a tool begins, with one `write` to a file that all replicas append to: whatever becomes of the
replica then, that it acted can be seen.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from holdfast.agents.agent import Agent, Team
from holdfast.core.codec import Value
from holdfast.core.items import Permissions
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.tools.function import FunctionToolset, tool
from holdfast.tools.tool import ToolRun

UPSTREAM = "TORTURE_UPSTREAM"
LOG = "TORTURE_LOG"
WHO = "TORTURE_REPLICA"
TOOL_S = 0.1
"""How long a tool takes: some replica is going to be killed meanwhile."""


class Line(Value):
    """A tool has begun to act."""

    kind: str
    key: str
    said: str
    node: str


def read_log(data: bytes) -> list[Line]:
    """What tools have done. A line that its writer was killed in the middle of cannot be: one write is one line."""
    return [msgspec.json.decode(each, type=Line) for each in data.splitlines()]


def team() -> Team:
    """The agent, on the upstream and with the log that the environment names."""
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    node = os.environ[WHO]

    async def done(kind: str, text: str, run: ToolRun) -> str:
        line = Line(kind=kind, key=run.call_key, said=text, node=node)
        os.write(log, msgspec.json.encode(line) + b"\n")
        await asyncio.sleep(TOOL_S)
        return f"{kind} done"

    @tool
    async def act(text: str, run: ToolRun) -> str:
        """Changes something in the world, each time that it is called."""
        return await done("act", text, run)

    @tool(idempotent=True)
    async def again(text: str, run: ToolRun) -> str:
        """Changes something in the world, once for each key of a call."""
        return await done("idempotent", text, run)

    @tool(read_only=True, idempotent=True)
    async def look(text: str, run: ToolRun) -> str:
        """Changes nothing."""
        return await done("read", text, run)

    model = OpenAIModel("any", base_url=os.environ[UPSTREAM])
    agent = Agent(
        "root",
        model,
        toolsets=(FunctionToolset(act, again, look),),
        permissions=Permissions(allow=("act", "again")),
    )
    return Team({"root": agent}, entry="root")
