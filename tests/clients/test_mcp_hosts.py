"""Two real hosts do their work with our agents: the TypeScript SDK over stdio, and OpenAI's Agents SDK over HTTP."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.clients.catalogue import BY_NAME, MCP
from tests.clients.programs import installed, run
from tests.e2e.world import world as new_world

pytestmark = [pytest.mark.slow, pytest.mark.clients]

ANSWER = "This is the whole answer to {} "


async def test_a_host_that_starts_its_server_talks_approves_and_stops(tmp_path: Path) -> None:
    async with new_world(tmp_path) as world:
        runner = await installed(MCP.runner)
        world.hold("long")
        ours = (
            "env",
            "PYTHONPATH=/tmp/scratch/src",
            sys.executable,
            "-m",
            "holdfast",
            "mcp",
            "agent.yaml",
            "--store",
            world.store,
        )
        driver = str(MCP.folder / "driver.mjs")
        saw = json.loads((await run([*runner, driver, *ours], home=tmp_path)).splitlines()[-1])
        assert saw["tools"] == ["root"]
        assert (saw["first"]["answer"], saw["first"]["version"]) == (ANSWER.format("first"), 1)
        assert (saw["second"]["answer"], saw["second"]["version"]) == (ANSWER.format("second"), 2)
        assert saw["failed"] is True
        (question,) = saw["asked"]
        assert "order" in question and world.runs == 1
        assert saw["ordered"]["answer"] == "May I?\n\nThe tool says: ordered"
        assert "running order" in saw["steps"]
        assert "enough" in saw["stopped"]
        assert saw["resources"] == ["first"]
        world.gates.clear()
        await world.start()
        turns = await world.turns("trip")
        assert turns[0]["ended_by"] == "cancelled"
        await world.verify()


def respond(request: UpstreamRequest) -> Script | str:
    """The host's agent asks ours twice, in one conversation; ours says how often it was asked."""
    messages = request.json["messages"]
    tools = [each["function"]["name"] for each in request.json.get("tools", ())]
    if "root" not in tools:
        asked = [each["content"] for each in messages if each["role"] == "user"]
        return f"answer {len(asked)}"
    results = [str(each["content"]) for each in messages if each["role"] == "tool"]
    if not results:
        return says(calls=[("root", '{"message": "first"}', "call_a")])
    if len(results) == 1:
        (conversation,) = set(re.findall(r"conv_[0-9a-z]{26}", results[0]))
        again = {"message": "second", "conversation": conversation}
        return says(calls=[("root", json.dumps(again), "call_b")])
    return "delegated"


async def test_an_agent_of_another_framework_uses_ours_as_a_tool(tmp_path: Path) -> None:
    async with new_world(tmp_path, respond=respond) as world:
        await world.start()
        (python,) = await installed(BY_NAME["openai-agents"].environment.runner)
        program = str(Path(__file__).parent / "openai_agents" / "mcp_host.py")
        said = await run([python, program, world.url, world.upstream.base_url], home=tmp_path)
        saw: dict[str, Any] = json.loads(said.splitlines()[-1])
        assert saw["answer"] == "delegated"
        assert ["answer 1" in str(saw["outputs"][0]), "answer 2" in str(saw["outputs"][1])] == [
            True
        ] * 2
        listed = (await world.request("GET", "/api/sessions?anonymous=true")).json["sessions"]
        assert [each["version"] for each in listed] == [2]
        await world.verify()
