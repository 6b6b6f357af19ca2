"""`holdfast mcp`: lines in, lines out, and the same answers as over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from holdfast.cli.stdio.mcp import McpBridge
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.e2e.world import world as new_world
from tests.server.mcp.peer import CURRENT, KEY, PREVIOUS
from tests.server.stubs import HeldTool, Serving, agent, serving
from tests.server.test_chat_approvals import careful


class Host:
    """A host that says lines to a bridge, and reads what it is told."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    async def lines(self) -> AsyncIterator[bytes]:
        while line := await self.said.get():
            yield line

    def say(self, method: str, request_id: int | str | None = None, **params: Any) -> None:
        about = {} if request_id is None else {"id": request_id}
        self.line({"jsonrpc": "2.0", **about, "method": method, "params": params})

    def line(self, message: Any) -> None:
        self.said.put_nowait(msgspec.json.encode(message) + b"\n")

    async def hear(self) -> Any:
        return msgspec.json.decode(await self.told.get())


@asynccontextmanager
async def bridged(server: str) -> AsyncIterator[Host]:
    host = Host()
    async with asyncio.timeout(60), McpBridge(server, None, host.told.put_nowait) as bridge:
        running = asyncio.create_task(bridge.run(host.lines()))
        yield host
        host.said.put_nowait(b"")
        await running


def current(**params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": CURRENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {**params, "_meta": meta}


@pytest.fixture
async def held() -> AsyncIterator[tuple[Serving, Gate]]:
    gate = Gate()
    model = ScriptedModel(says("one", " two").waiting(gate, at=1), says("three"))
    async with serving(agent(model)) as server:
        yield server, gate


async def test_requests_are_answered_as_they_are_done(held: tuple[Serving, Gate]) -> None:
    server, gate = held
    async with bridged(server.url) as host:
        host.say("tools/call", 1, **current(name="root", arguments={"message": "hello"}))
        await gate.reached.wait()
        host.say("tools/list", 2, **current())
        assert (await host.hear())["id"] == 2
        gate.release()
        answer = await host.hear()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, "one two")
        host.said.put_nowait(b"nonsense\n")
        assert (await host.hear())["error"]["code"] == -32700


async def test_a_cancelled_request_of_the_current_revision_is_left(
    held: tuple[Serving, Gate],
) -> None:
    server, gate = held
    async with bridged(server.url) as host:
        call = {"message": "hello", "conversation": "trip"}
        host.say("tools/call", "a", **current(name="root", arguments=call))
        await gate.reached.wait()
        (turn,) = await server.turns("trip")
        host.say("notifications/cancelled", requestId="a")
        assert (await server.ended_turn(turn["id"]))["ended_by"] == "disconnected"
        assert host.told.empty()


async def test_a_host_before_2026_is_asked_and_cancels_over_its_lines() -> None:
    gate, tool = Gate(), HeldTool("pay", held=False)
    model = ScriptedModel(
        says("May I?", calls=[("pay", "{}")]), says("Done."), says("a", "b").waiting(gate, at=1)
    )
    async with serving(careful(model, tool)) as server, bridged(server.url) as host:
        about = {"name": "host", "version": "1"}
        asked = {"protocolVersion": PREVIOUS, "clientInfo": about}
        host.say("initialize", 0, capabilities={"elicitation": {}}, **asked)
        assert (await host.hear())["result"]["protocolVersion"] == PREVIOUS
        host.say("notifications/initialized")
        call = {"name": "root", "arguments": {"message": "pay", "conversation": "trip"}}
        host.say("tools/call", 1, **call)
        question = await host.hear()
        assert question["method"] == "elicitation/create"
        host.line({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        answer = await host.hear()
        assert (answer["id"], tool.runs) == (1, 1)
        host.say("tools/call", 2, **call)
        await gate.reached.wait()
        host.say("notifications/cancelled", requestId=2)
        told = (await host.hear())["result"]
        assert told["_meta"]["holdfast/problem"]["code"] == "turn_cancelled"


async def test_a_server_that_refuses_or_is_not_there_is_an_error_of_the_request() -> None:
    store = MemoryStore()
    async with serving(agent(ScriptedModel()), store=store, auth="required") as server:
        async with bridged(server.url) as host:
            host.say("tools/list", 7, **current())
            refused = await host.hear()
            assert (refused["id"], refused["error"]["data"]["code"]) == (7, "invalid_api_key")
    async with bridged("http://127.0.0.1:1") as host:
        host.say("tools/list", 8, **current())
        absent = await host.hear()
        assert absent["id"] == 8 and "does not answer" in absent["error"]["message"]
    await store.close()


@pytest.mark.slow
async def test_a_call_that_is_told_again_after_the_command_was_killed_runs_once(
    tmp_path: Path,
) -> None:
    """The command has a server of its own; what it had begun is in the store."""
    async with new_world(tmp_path) as world:
        world.let_tools_go()
        gate = world.hold("first")
        program = f"{sys.executable} -m holdfast mcp"
        ours = StdioServerParameters(
            command="sh",
            args=["-c", f"echo $$ > pid; exec {program} agent.yaml --store {world.store}"],
            cwd=tmp_path,
            env=dict(os.environ),
        )
        call: Any = {"message": "first", "conversation": "trip"}
        meta: Any = {KEY: "7d8f"}

        async def ask() -> Any:
            async with Client(stdio_client(ours)) as client:
                return await client.call_tool("root", call, meta=meta)

        asking = asyncio.create_task(ask())
        await gate.reached.wait()
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        await asyncio.wait({asking})
        world.gates.clear()
        answers = [await ask(), await ask()]
        assert answers[0].structured_content == answers[1].structured_content
        assert answers[0].structured_content["version"] == 1
        await world.start()
        assert len([each for each in await world.items("trip") if each["type"] == "user"]) == 1
        await world.verify()
