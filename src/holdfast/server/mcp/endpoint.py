"""`POST /mcp`: the Model Context Protocol over streamable HTTP.

A body is one message. A request is answered with one object, or with a stream of events whose last one is the answer;
notifications and answers of the client's are accepted with 202. There is no stream of the server's own: `GET` is 405,
and so is `DELETE`, since there is no session that could be ended.
"""

from __future__ import annotations

import secrets

from msgspec import Struct

from holdfast import limits
from holdfast.config import McpResources
from holdfast.errors import KeyReused, TurnRejected
from holdfast.server.agents.directory import Directory
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.server.http.parameters import ABOUT_TURN
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.mcp.resources import ConversationResources
from holdfast.server.mcp.tasks import Tasks
from holdfast.server.mcp.tool_calls import ToolCalls
from holdfast.server.mcp.tool_turns import ToolTurns, turn_in
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.sessions import Sessions
from holdfast.version import VERSION
from holdfast.wire.headers import MCP_SESSION_ID
from holdfast.wire.json_rpc import METHOD_NOT_FOUND, PARSE_ERROR, RpcId, RpcNotification
from holdfast.wire.mcp.messages import (
    STATUS,
    McpAnswer,
    McpBody,
    McpErrorAnswer,
    McpFault,
    McpMessage,
    McpReply,
    McpRequest,
    fault_of,
    mcp_problems,
    read_message,
    result_of,
)
from holdfast.wire.mcp.results import completed, server_shown
from holdfast.wire.mcp.revisions import (
    SUPPORTED,
    TASKS,
    InitializeParams,
    McpClient,
    agreed,
    client_of,
    has_handshake,
    session_id,
)
from holdfast.wire.mcp.tools import tool_names, tool_shown

CODES = {METHOD_NOT_FOUND: "unknown_method", PARSE_ERROR: "invalid_json"}
"""Our codes for errors of the protocol, in logs; `invalid_request` is the code of every other one."""

LIST_KEEP_MS = round(limits.mcp_list_keep_s * 1000)


class _Cancelled(Struct):
    requestId: RpcId | None = None


class McpEndpoint:
    """The endpoint. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        guard: OriginGuard,
        settings: TurnSettings,
        resources: McpResources = "own",
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._guard = guard
        self._turns = ToolTurns(sessions, settings)
        self._calls = ToolCalls(sessions, directory, self._turns, settings)
        self._tasks = Tasks(sessions, self._turns, self._calls)
        self._resources = ConversationResources(sessions, resources)

    @Route(
        "POST /mcp",
        "chat",
        "sendMcpMessage",
        AnswerDescription("The answer to a request.", McpAnswer, headers=ABOUT_TURN),
        AnswerDescription(
            "What happens while a request is answered, and then its answer.",
            events=(McpBody, McpAnswer, McpErrorAnswer),
            headers=ABOUT_TURN,
        ),
        AnswerDescription(
            "A notification, or an answer of the client's, was heard.",
            status=202,
            media_type="text/plain",
        ),
        body=BodyDescription(
            McpBody,
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "root", "arguments": {"message": "Where is Oslo?"}},
            },
        ),
        body_bytes_max=limits.body_bytes_max,
        codes=("invalid_request", "unknown_method"),
        problems=mcp_problems(None),
    )
    async def serve(self, call: HttpCall) -> None:
        """Send a message of the Model Context Protocol.

        See [the guide](../guides/mcp-server.md).
        """
        message: McpMessage | None = None
        try:
            message = read_message(call.body)
            match message:
                case McpRequest():
                    call.exchange.answer_problems_in(mcp_problems(message.id))
                    await self._answer(call, message)
                case RpcNotification():
                    await self._hear(call, message)
                case McpReply():
                    await self._decide(call, message)
        except McpFault as fault:
            await self._refuse(call, message, fault)

    async def _refuse(self, call: HttpCall, message: McpMessage | None, fault: McpFault) -> None:
        """Answer with an error. Clients before 2026-07-28 read it only with the status 200."""
        request_id = message.id if isinstance(message, McpRequest) else None
        is_before = request_id is not None and has_handshake(call.exchange.headers)
        status = fault.status or (200 if is_before else STATUS.get(fault.code, 400))
        call.exchange.code = CODES.get(fault.code, "invalid_request")
        await call.exchange.answer(status, fault_of(request_id, fault))

    # ── requests ──

    async def _answer(self, call: HttpCall, request: McpRequest) -> None:
        client = client_of(request, call.exchange.headers)
        address = self._guard.client_of(call.exchange)
        if request.method.startswith("tasks/"):
            client.demand_tasks()
        match request.method:
            case "tools/call":
                await self._calls.serve(call, request, client, address=address)
                return
            case "tasks/result" if not client.is_current:
                await self._tasks.result(call, request, client)
                return
        result, ttl_ms = await self._result(call, request, client, address)
        body = result_of(request.id, completed(client, result, version=VERSION, ttl_ms=ttl_ms))
        await call.exchange.answer(200, body)

    async def _result(
        self, call: HttpCall, request: McpRequest, client: McpClient, address: str
    ) -> tuple[dict[str, object], int | None]:
        """The result of a request that is answered at once, and how long the client may keep it."""
        match request.method:
            case "tools/list":
                return {"tools": self._tools(call, client)}, LIST_KEEP_MS
            case "resources/list":
                return await self._resources.list(call, request), 0
            case "resources/read":
                return await self._resources.read(call, request, client), 0
            case "resources/templates/list":
                return self._resources.templates(), LIST_KEEP_MS
            case "tasks/get":
                return await self._tasks.get(call, request, client), None
            case "tasks/cancel":
                return await self._tasks.cancel(call, request, client), None
            case "tasks/update" if client.is_current:
                return await self._tasks.update(call, request, address), None
            case "server/discover" if client.is_current:
                return self._described(), LIST_KEEP_MS
            case "initialize" if not client.is_current:
                return self._initialized(call, request), None
            case "ping" if not client.is_current:
                return {}, None
        raise McpFault(METHOD_NOT_FOUND, f"there is no method {request.method[:100]!r}")

    def _tools(self, call: HttpCall, client: McpClient) -> list[dict[str, object]]:
        entries = {each.id: each for each in self._directory.entries(call.tenant)}
        return [
            tool_shown(name, agent, entries[agent].description, is_current=client.is_current)
            for name, agent in tool_names(entries).items()
        ]

    def _described(self) -> dict[str, object]:
        capabilities: dict[str, object] = {"tools": {}, "resources": {}, "extensions": {TASKS: {}}}
        return {
            "supportedVersions": SUPPORTED,
            "capabilities": capabilities,
            "instructions": INSTRUCTIONS,
        }

    def _initialized(self, call: HttpCall, request: McpRequest) -> dict[str, object]:
        """Begin with a client before 2026-07-28. Nothing is remembered: the session id says what the client can do."""
        said = request.read(InitializeParams)
        call.exchange.about[MCP_SESSION_ID.name] = session_id(
            said.capabilities, nonce=secrets.token_hex(16)
        )
        tasks: dict[str, object] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {
            "protocolVersion": agreed(said.version),
            "capabilities": {"tools": {}, "resources": {}, "tasks": tasks},
            "serverInfo": server_shown(VERSION),
            "instructions": INSTRUCTIONS,
        }

    # ── what needs no answer ──

    async def _hear(self, call: HttpCall, said: RpcNotification) -> None:
        """A client before 2026-07-28 may cancel a request of its session, wherever that is played."""
        session = call.exchange.headers.get(MCP_SESSION_ID.name, "")
        if said.method == "notifications/cancelled" and session:
            request = McpRequest(id=0, method=said.method, params=said.params)
            about = request.read(_Cancelled).requestId
            found = None
            if about is not None:
                found = await self._turns.find(call.tenant, session, about)
            if found is not None:
                by = call.caller.key_id or ""
                await self._sessions.operations.cancel(call.tenant, found, by=by)
        await call.exchange.answer(202, b"", media_type="text/plain")

    async def _decide(self, call: HttpCall, reply: McpReply) -> None:
        """A client before 2026-07-28 answers a question that a stream has asked, of this server or another one."""
        turn_id = turn_in(reply.id) if isinstance(reply.id, str) else None
        asked = None if turn_id is None else await self._turns.asked(call.tenant, turn_id)
        if asked is not None:
            address = self._guard.client_of(call.exchange)
            try:
                await self._turns.decide(call, asked, reply.result, client=address)
            except (KeyReused, TurnRejected):
                pass  # it was decided already, or something else was said: the stream tells which
        await call.exchange.answer(202, b"", media_type="text/plain")


INSTRUCTIONS = (
    "Each tool is an agent. Say in `message` what you want of it. To go on with a conversation, pass the "
    "`conversation` of its last answer; without one a new conversation begins."
)
