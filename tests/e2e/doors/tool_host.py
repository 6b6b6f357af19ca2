"""MCP at `/mcp`: the current revision by the official SDK's client, its tasks, and the revision before it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent

from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.world import World, until

KEY = "holdfast/idempotencyKey"
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


class McpDoor:
    """Revision 2026-07-28: a call of a tool, and its result."""

    name = "mcp"
    lacks: Mapping[Behaviour, str] = {
        "cancel": "a client cancels by closing the stream, which is the behaviour `disconnect`"
    }
    goes_on_alone = False

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        meta: Any = {KEY: key} if key else None
        async with Client(f"{world.url}/mcp") as client:
            assert client.protocol_version == "2026-07-28"
            arguments = {"message": said, "conversation": to}
            return _told(await client.call_tool("root", arguments, meta=meta))

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        call = _call(said, to)
        async with aiohttp.ClientSession() as http:
            sending = asyncio.create_task(post(http, world.url, current(call)))
            try:
                yield
            finally:
                sending.cancel()
                await asyncio.wait({sending})

    async def cancel(self, world: World, *, to: str) -> None:
        raise NotImplementedError

    async def session(self, world: World, *, to: str) -> str:
        return to


class McpTaskDoor(McpDoor):
    """The same by a client that takes tasks, which it asks for until they have ended."""

    name = "mcp_tasks"
    lacks: Mapping[Behaviour, str] = {}
    goes_on_alone = True

    def __init__(self) -> None:
        self._tasks: dict[tuple[World, str], str] = {}

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        call = current(_call(said, to, key=key), TASKS)
        async with aiohttp.ClientSession() as http:
            result = (await post(http, world.url, call))["result"]
            if result["resultType"] == "task":
                self._tasks[world, to] = result["taskId"]
                result = await self._wait(http, world, result["taskId"])
        if "error" in result:
            return DoorAnswer(error=result["error"]["data"]["code"])
        return _told(CallToolResult.model_validate(result))

    async def _wait(self, http: aiohttp.ClientSession, world: World, task_id: str) -> Any:
        while True:
            task = await self._ask_task(http, world, "get", task_id)
            match task["status"]:
                case "working":
                    await asyncio.sleep(0.05)
                case "completed":
                    return task["result"]
                case "failed":
                    return task
                case "cancelled":
                    return {"error": {"data": {"code": "turn_cancelled"}}}

    async def _ask_task(
        self, http: aiohttp.ClientSession, world: World, what: str, task_id: str
    ) -> Any:
        asked = current(_request(f"tasks/{what}", {"taskId": task_id}), TASKS)
        return (await post(http, world.url, asked))["result"]

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        async with aiohttp.ClientSession() as http:
            begun = await post(http, world.url, current(_call(said, to), TASKS))
        assert begun["result"]["resultType"] == "task"
        yield

    async def cancel(self, world: World, *, to: str) -> None:
        async with aiohttp.ClientSession() as http:
            await until(lambda: (world, to) in self._tasks)
            await self._ask_task(http, world, "cancel", self._tasks.pop((world, to)))


class McpSessionDoor(McpDoor):
    """Revision 2025-11-25: after `initialize`, and with a session id."""

    name = "mcp_2025_11_25"
    lacks: Mapping[Behaviour, str] = {}

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._running: dict[tuple[World, str], tuple[str, int]] = {}

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        async with aiohttp.ClientSession() as http:
            session = await self._initialized(http, world)
            request_id = next(self._ids)
            self._running[world, to] = session, request_id
            call = {**_call(said, to, key=key), "id": request_id}
            answer = await post(http, world.url, call, {"mcp-session-id": session})
        return _told(CallToolResult.model_validate(answer["result"]))

    async def _initialized(self, http: aiohttp.ClientSession, world: World) -> str:
        about = {"name": "test", "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
        async with http.post(f"{world.url}/mcp", json=_request("initialize", asked)) as response:
            assert (await response.json())["result"]["protocolVersion"] == "2025-11-25"
            return response.headers["mcp-session-id"]

    async def cancel(self, world: World, *, to: str) -> None:
        session, request_id = self._running[world, to]
        said = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": request_id},
        }
        answer = await world.request("POST", "/mcp", json=said, headers={"mcp-session-id": session})
        assert answer.status == 202


def _told(result: CallToolResult) -> DoorAnswer:
    first = result.content[0]
    assert isinstance(first, TextContent)
    if result.is_error:
        return DoorAnswer(error=(result.meta or {})["holdfast/problem"]["code"])
    return DoorAnswer(text=first.text)


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}


def _call(said: str, to: str, *, key: str | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": "root", "arguments": {"message": said, "conversation": to}}
    return _request("tools/call", {**params, "_meta": {KEY: key} if key else {}})


def current(request: dict[str, Any], capabilities: Mapping[str, Any] | None = None) -> Any:
    """The request as revision 2026-07-28 has it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        **request["params"].get("_meta", {}),
    }
    return {**request, "params": {**request["params"], "_meta": meta}}


async def post(
    http: aiohttp.ClientSession,
    url: str,
    request: dict[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Send a request, and read its answer: an object, or the last event of a stream."""
    params = request["params"]
    sent = {"accept": "application/json, text/event-stream", **(headers or {})}
    if "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {}):
        name = params.get("taskId") or params.get("name") or params.get("uri")
        sent |= {"mcp-protocol-version": "2026-07-28", "mcp-method": request["method"]}
        sent |= {"mcp-name": name} if name else {}
    async with http.post(f"{url}/mcp", json=request, headers=sent) as response:
        text = await response.text()
    if response.content_type == "application/json":
        return json.loads(text)
    return json.loads(text.split("data: ")[-1])
