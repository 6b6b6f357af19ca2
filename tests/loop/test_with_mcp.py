"""A turn with an MCP server that dies under it: its call fails, the turn goes on, the next call works."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from holdfast.testing import says
from holdfast.tools.mcp.config import McpServer
from holdfast.tools.mcp.toolset import McpToolset
from tests.loop.stage import Stage, agent, outcomes, told
from tests.tools import mcp_means as means
from tests.tools.tool_calls import Pipe

pytestmark = pytest.mark.slow


async def test_a_server_that_is_killed_in_the_middle_of_a_call_costs_that_call_alone(
    tmp_path: Path,
) -> None:
    mark, pipe = f"turn-{os.getpid()}", Pipe(tmp_path / "pipe")
    toolset = McpToolset(McpServer(transport=means.desk(**{means.MARK: mark})))
    wait = ("wait", msgspec.json.encode({"at": pipe.path}).decode())
    scripts = says(calls=[wait]), says(calls=[("greet", '{"name": "Ada"}')]), "All is well."
    try:
        butler = agent("butler", *scripts, tools=await toolset.tools())
        stage = Stage(butler)
        turn = stage.open("Wait, then greet Ada")
        playing = asyncio.ensure_future(stage.player(turn))
        assert await pipe.heard() == "waiting"
        means.kill(mark)
        await playing
    finally:
        await toolset.close()
        pipe.close()
    assert outcomes(turn) == {"wait": "error", "greet": "ok"}
    assert "its server went away before it answered" in told(turn, "wait")
    assert told(turn, "greet") == "Hello, Ada."
    assert means.marked(mark) == []
