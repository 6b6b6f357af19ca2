"""A whole server in the test's own event loop: real HTTP, a memory store, scripted models."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import IO, Any

import aiohttp
import msgspec

from holdfast import limits
from holdfast.agents.agent import Agent, Team
from holdfast.agents.registry import Broken, Listed
from holdfast.config import ApproveInChat, Auth, McpResources
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Permissions, plain_text
from holdfast.core.policy import Policy
from holdfast.core.turns.events import TurnRequest
from holdfast.errors import ModelNotFound
from holdfast.ids import Tenant
from holdfast.loop.player import Player
from holdfast.models.model import Model
from holdfast.observe.recent_log import RecentLog
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.server.access.authentication import Authenticator
from holdfast.server.access.quotas import Quotas
from holdfast.server.agents.directory import Directory, choice_of
from holdfast.server.app import App
from holdfast.server.http.connection_register import ConnectionRegister
from holdfast.server.http.listen_sockets import listen
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.server.processes.server_process import HttpServer
from holdfast.server.turns.turn_failures import with_failure_codes
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.session_requests import AgentChoice, Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store import Store
from holdfast.tools.tool import Tool, ToolOutput, ToolRun, ToolSpec
from holdfast.wire.problems import BusyStatus
from tests.server.conformance import demand_described

SILENT = Policy()


class StubDirectory:
    """Agents by name, all of one source."""

    def __init__(self, *agents: Agent) -> None:
        self._agents = {each.name: each for each in agents}
        self.team = Team(self._agents, entry=agents[0].name, digest="d1")

    async def refresh(self) -> None:
        pass

    def entries(self, tenant: Tenant | None = None) -> tuple[Listed, ...]:
        return tuple(Listed(id=name, agent=name, source="stub") for name in self._agents)

    def broken(self, tenant: Tenant | None = None) -> tuple[Broken, ...]:
        return ()

    def choose(self, ask: Ask, snapshot: Snapshot | None = None) -> AgentChoice:
        model = (snapshot.agent if snapshot else "") or ask.agent
        if model not in self._agents:
            raise ModelNotFound(model, known=tuple(self._agents))
        return choice_of(self._agents[model], ask, source_key="stub", source_digest="d1")

    def history_items_max(self, snapshot: Snapshot) -> int | None:
        found = self._agents.get(snapshot.agent)
        return found.history_items_max if found else None

    def resident(self, source_key: str, agent: str, *, source_name: str = "") -> Agent | None:
        return self._agents.get(agent)

    def team_for(self, request: TurnRequest) -> AbstractContextManager[Team]:
        return nullcontext(self.team)


class StubTools:
    """Tools that do what a function says."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = tools

    async def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def close(self) -> None:
        pass


class HeldTool:
    """A tool that has acted once it has begun, and does not end before it is let go."""

    def __init__(self, name: str = "act", *, read_only: bool = False, held: bool = True) -> None:
        self.spec = ToolSpec(
            name=name,
            description="does something",
            parameters='{"type":"object"}',
            read_only=read_only,
        )
        self.runs = 0
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        if not held:
            self.let_go.set()

    async def run(self, run: ToolRun) -> ToolOutput:
        self.runs += 1
        self.begun.set()
        await self.let_go.wait()
        return ToolOutput(content=plain_text("done"))


def agent(model: Model, *tools: Tool, name: str = "root", policy: Policy = SILENT) -> Agent:
    return Agent(
        name,
        model,
        instruction="be nice",
        toolsets=(StubTools(*tools),) if tools else (),
        permissions=Permissions(allow=("*",)),
        policy=policy,
    )


# ── the server ───────────────────────────────────────────────────────────────────────────────


class Answer:
    """One answer, read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which has exactly four keys, or is one of JSON-RPC with our code in its data."""
        error = self.json["error"]
        if "jsonrpc" in self.json:
            return {"message": error["message"], "code": error["data"]["code"]}
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"]
        assert isinstance(error["type"], str)
        assert isinstance(error["code"], str)
        found: dict[str, Any] = error
        return found

    @property
    def problem(self) -> tuple[str, str]:
        """The code and the words of an error, in the form of whatever API answers."""
        error = self.json["error"]
        more = error.get("data") or error.get("details") or error
        return (more[0]["metadata"] if isinstance(more, list) else more)["code"], error["message"]

    @property
    def text(self) -> str:
        said: str = self.json["choices"][0]["message"]["content"]
        return said

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; `[DONE]` stays a string."""
        frames = [each for each in self.body.decode().split("\n\n") if each.strip()]
        found = []
        for frame in frames:
            (line,) = [each for each in frame.split("\n") if not each.startswith(":")]
            assert line.startswith("data: "), line
            data = line.removeprefix("data: ")
            found.append(data if data == "[DONE]" else msgspec.json.decode(data))
        return found

    @property
    def named_events(self) -> list[Any]:
        """The data of a Responses stream's events, each of which has its name twice; `[DONE]` has come."""
        *frames, done = [each for each in self.body.decode().split("\n\n") if each.strip()]
        assert done == "data: [DONE]"
        found = []
        for frame in frames:
            name, data = [each for each in frame.split("\n") if not each.startswith(":")]
            event = msgspec.json.decode(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
        return found

    @property
    def streamed(self) -> str:
        """The text of a stream that succeeded."""
        *chunks, last = self.events
        assert last == "[DONE]"
        return "".join(
            each["choices"][0]["delta"].get("content") or "" for each in chunks if each["choices"]
        )


class Serving:
    """A running server, and a client for it."""

    def __init__(
        self, listener: socket.socket, sessions: Sessions, app: App, server: HttpServer
    ) -> None:
        host, port = listener.getsockname()
        self.listener = listener
        self.url = f"http://{host}:{port}"
        self.sessions = sessions
        self.app = app
        self.server = server
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | IO[bytes] | None = None,
    ) -> Answer:
        async with self.http.request(
            method, self.url + path, headers=headers, data=data
        ) as response:
            body = await response.read()
            demand_described(self.app.routes, method, path, response.status, response.headers, body)
            return Answer(response.status, response.headers, body)

    async def get(self, path: str) -> Answer:
        return await self.request("GET", path)

    async def chat(
        self,
        *messages: str | dict[str, Any],
        to: str | None = None,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Answer:
        """Say something, in the conversation `to` if one is named."""
        return await self.request(
            "POST",
            "/v1/chat/completions",
            headers={**({"X-Conversation-Id": to} if to else {}), **(headers or {})},
            data=chat_body(*messages, **body),
        )

    async def respond(
        self, said: Any, *, headers: Mapping[str, str] | None = None, **body: Any
    ) -> Answer:
        """Ask for a Response."""
        data = msgspec.json.encode({"model": "root", "input": said, **body})
        return await self.request("POST", "/v1/responses", headers=headers, data=data)

    async def turns(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get(f"/api/sessions/{name}/turns")).json["turns"]
        return found

    async def items(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get(f"/api/sessions/{name}/items")).json["items"]
        return found

    async def ended_turn(self, turn_id: str) -> dict[str, Any]:
        """Wait until a turn has ended, and say what it became."""
        answer = await self.get(f"/api/turns/{turn_id}/events")
        found: dict[str, Any] = answer.events[-1]["turn"]
        return found


def another(name: str) -> str:
    """A name as good as this one that is not this one."""
    return name[:-1] + ("0" if name[-1] != "0" else "1")


async def until(happened: Callable[[], bool]) -> None:
    """Wait until the server has come so far. It shares our event loop: letting it run is enough."""
    while True:
        if happened():
            return
        await asyncio.sleep(0)


def chat_body(*messages: str | dict[str, Any], **body: Any) -> bytes:
    said = [
        {"role": "user", "content": each} if isinstance(each, str) else each for each in messages
    ]
    return msgspec.json.encode({"model": "root", "messages": said, **body})


@asynccontextmanager
async def serving(
    *agents: Agent,
    store: Store | None = None,
    policy: Policy = SILENT,
    directory: Directory | None = None,
    guard: OriginGuard | None = None,
    auth: Auth = "off",
    quotas: Quotas | None = None,
    expire_after_s: float | None = None,
    busy_status: BusyStatus = 409,
    background_max: int = limits.background_turns_max,
    register: ConnectionRegister | None = None,
    mcp_resources: McpResources = "own",
    approve_in_chat: ApproveInChat = "off",
    published: tuple[str, ...] = (),
) -> AsyncIterator[Serving]:
    """A server over these agents. A store or directory that is passed in stays open."""
    home: Store = store or MemoryStore()
    directory = directory or StubDirectory(*agents)
    supervisor, recent = TaskSupervisor(), RecentLog()
    with recent.attached(), listen("127.0.0.1", 0) as listener:
        play = with_failure_codes(Player(directory.team_for, tally=supervisor.tally))
        async with Sessions(
            home,
            play,
            choose=directory.choose,
            supervisor=supervisor,
            background_max=background_max,
        ) as sessions:
            app = App(
                sessions,
                directory,
                turns=TurnSettings(policy=policy, expire_after_s=expire_after_s),
                guard=guard,
                authenticator=Authenticator(home, auth),
                quotas=quotas,
                busy_status=busy_status,
                mcp_resources=mcp_resources,
                approve_in_chat=approve_in_chat,
                recent=recent,
                on_loopback=True,
                published=published,
            )
            ready = asyncio.Event()
            server = HttpServer(app, sessions, on_ready=ready.set, register=register)
            running = asyncio.create_task(server.serve(sockets=[listener]))
            await asyncio.wait(
                {running, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
            here = Serving(listener, sessions, app, server)
            try:
                yield here
            finally:
                await here.http.close()
                server.stop()
                server.stop()
                await running
    if store is None:
        await home.close()
