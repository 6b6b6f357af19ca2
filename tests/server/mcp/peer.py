"""A client of `/mcp` whose every answer is held against the official SDK's types for its revision."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
from mcp_types import methods

from tests.server.stubs import Answer, Serving

CURRENT, PREVIOUS = "2026-07-28", "2025-11-25"
ELICITS: Mapping[str, Any] = {"elicitation": {}}
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
KEY = "holdfast/idempotencyKey"

_NAMED_BY = {"tools/call": "name", "resources/read": "uri"}


class RpcPeer:
    """Sends messages as a client of one revision does."""

    def __init__(
        self,
        server: Serving,
        capabilities: Mapping[str, Any] | None = None,
        *,
        revision: str = CURRENT,
        headers: Mapping[str, str] | None = None,
        path: str = "/mcp",
    ) -> None:
        self.server = server
        self.revision = revision
        self.capabilities = capabilities or {}
        self.headers = dict(headers or {})
        self.path = path
        self._ids = itertools.count()

    async def initialize(self) -> dict[str, Any]:
        """Begin as clients before 2026-07-28 do."""
        about = {"name": "test", "version": "1"}
        asked = {
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "clientInfo": about,
        }
        answer = await self.post("initialize", asked)
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        found: dict[str, Any] = answer.json["result"]
        return found

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; the last event, if it is answered by a stream."""
        answer = await self.post(method, params)
        said = answer_in(answer)
        assert "result" in said, said
        result: dict[str, Any] = said["result"]
        self._judge(method, result)
        return result

    async def fault(self, method: str, **params: Any) -> tuple[int, dict[str, Any]]:
        """The status and the error that answer a request."""
        answer = await self.post(method, params)
        found: dict[str, Any] = answer.json["error"]
        return answer.status, found

    async def tool(
        self, message: str | None = None, name: str = "root", key: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Call an agent; arguments and members of the request are told apart by their names."""
        members = {"inputResponses", "requestState", "task"}
        arguments = {each: value for each, value in more.items() if each not in members}
        if message is not None:
            arguments["message"] = message
        params = {each: value for each, value in more.items() if each in members}
        params["_meta"] = {KEY: key} if key else {}
        return await self.call("tools/call", name=name, arguments=arguments, **params)

    async def post(
        self, method: str, params: Mapping[str, Any], *, request_id: int | str | None = None
    ) -> Answer:
        meta = dict(params.get("_meta", {}))
        headers = {"accept": "application/json, text/event-stream", **self.headers}
        if self.revision == CURRENT:
            meta = {
                "io.modelcontextprotocol/protocolVersion": CURRENT,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                **meta,
            }
            headers = {"mcp-protocol-version": CURRENT, "mcp-method": method, **headers}
            named = "taskId" if method.startswith("tasks/") else _NAMED_BY.get(method)
            if named is not None:
                headers.setdefault("mcp-name", params[named])
        elif method != "initialize":
            headers["mcp-protocol-version"] = self.revision
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids) if request_id is None else request_id,
            "method": method,
            "params": {**params, "_meta": meta},
        }
        return await self.send(message, headers)

    async def send(self, message: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Send any message."""
        sent = {**self.headers, **(headers or {})}
        return await self.server.request(
            "POST", self.path, data=msgspec.json.encode(message), headers=sent
        )

    def _judge(self, method: str, result: dict[str, Any]) -> None:
        if method.startswith("tasks/") or result.get("resultType") == "task" or "task" in result:
            return  # tasks are an extension, which the SDK has no types for
        methods.validate_server_result(method, self.revision, result)


def answer_in(answer: Answer) -> dict[str, Any]:
    """The answer to a request: the body, or the last event of a stream."""
    if answer.headers["content-type"].startswith("application/json"):
        found: dict[str, Any] = answer.json
        return found
    last: dict[str, Any] = answer.events[-1]
    return last
