"""Real server processes, a recording upstream, and what one can do to them.

Everything is judged from outside: by what the upstream was sent, and by what a restarted server answers.

A world has one server on a file, or several replicas on one database. Those have a balancer before them, and clients
that make a connection for each request: a retry, a cancel or a watcher meets another process than the request that
it is about.

The servers of a world may also be workers: one command, several processes on one port, over a file or a database.
Which of them answers is up to the kernel; `at` names one by its number, and finds it by asking.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import aiohttp
import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from holdfast.ids import LOCAL, TurnId
from holdfast.models.model import ModelFailed
from holdfast.store.store_url import open_existing
from holdfast.testing import FakeUpstream, Gate, Reply, Script, refuses, says
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.balancer import Balancer
from tests.e2e.launcher import Launched, launched
from tests.server.stubs import Answer, chat_body

AGENT = """
models:
  fake:
    provider: fake
    model: any
    base_url: {base_url}
agents:
  root:
    model: fake
    instruction: Be brief.
    fallback:
      retries: -1
    permissions:
      allow: [act]
      ask: [order]
    toolsets:
      - type: script
        shell:
          act:
            cmd: 'echo ran >> "$RAN"; while [ ! -e "$GO" ]; do sleep 0.02; done; echo acted'
            description: Does something.
            roots: [{here}/tools]
            env:
              RAN: {here}/tools/ran
              GO: {here}/tools/go
          order:
            cmd: 'echo ran >> "$RAN"; echo ordered'
            description: Has to be asked about.
            roots: [{here}/tools]
            env:
              RAN: {here}/tools/ran
          look:
            cmd: 'echo ran >> "$RAN"; echo seen'
            description: Sees something.
            read_only: true
            roots: [{here}/tools]
            env:
              RAN: {here}/tools/ran
"""

Respond: TypeAlias = Callable[[UpstreamRequest], Reply | Script | str]

REFUSALS = {
    "too often": refuses(429, code="rate_limit_exceeded", headers={"retry-after": "45"}),
    "too long": refuses(400, code="context_length_exceeded"),
    "not allowed": refuses(400, code="content_policy_violation"),
    "wrong key": refuses(401, code="invalid_api_key"),
    "no such model": refuses(404, code="model_not_found"),
    "overloaded": refuses(503, kind="server_error"),
}
"""What the upstream refuses, by what the user says."""


LEASE_S = 5
"""Short: on a database nobody knows that a process is dead before its lease has ended."""


class World:
    """A directory with an agent file, a store, an upstream, and servers that come and go."""

    def __init__(
        self,
        here: Path,
        *,
        respond: Respond | None = None,
        database: str | None = None,
        workers: int = 1,
    ) -> None:
        self.here = here
        self.store = database or f"sqlite:///{here}/store.db"
        self.database = database
        self.fresh = False
        """Whether each process has an interpreter of its own, as for a user, instead of a fork of one that is warm."""
        self.workers = Staff() if workers > 1 else None
        self._workers = workers
        self.replicas = 2 if database and workers == 1 else 1
        self.upstream = FakeUpstream(otherwise=respond or self._respond)
        self.gates: dict[str, Gate] = {}
        """By what the user says: the answer to it is held in the middle until the gate is released."""
        self.pace_s = 0.0
        self.started_in_s = 0.0
        """Without the time in which they, or we, could have gone on and others had the processors."""
        self.output = ""
        """What the first server has said."""
        self.urls: list[str] = []
        """Where each server listens."""
        self.url = ""
        """Where clients find a server."""
        self._processes: list[Process | Launched] = []
        self._balancer: Balancer | None = None
        self._http: aiohttp.ClientSession | None = None

    # ── the upstream ──

    def _respond(self, request: UpstreamRequest) -> Reply | Script | str:
        last = request.json["messages"][-1]
        said = str(last["content"])
        if last["role"] == "tool":
            return f"The tool says: {said.strip()}"
        if said == "fail":
            return refuses(500, message="out of order")
        if said in REFUSALS:
            return REFUSALS[said]
        if said == "fail late":
            return says("Half an ", "answer.").failing(ModelFailed("out of order"), at=1)
        if said.startswith("order"):
            return says("May I?", calls=[("order", "{}")])
        if said.startswith("act"):
            return says("On it.", calls=[("act", "{}")])
        script = says(*(f"{word} " for word in f"This is the whole answer to {said}".split()))
        if said in self.gates:
            script = script.waiting(self.gates[said], at=len(script.steps) // 2)
        return Reply(script=script, pace_s=self.pace_s)

    def hold(self, said: str) -> Gate:
        """Hold the answer to this in the middle."""
        self.gates[said] = Gate()
        return self.gates[said]

    @property
    def sent(self) -> list[list[str]]:
        """What the upstream was sent, request by request, without instructions and answers."""
        return [
            [str(m["content"]) for m in each.json["messages"] if m["role"] == "user"]
            for each in self.upstream.requests
        ]

    # ── the server ──

    async def start(self, *, listen: str = "127.0.0.1:0", **environment: str) -> None:
        """Start every server, and wait until each says that it is ready."""
        began = time.perf_counter() - _kept_waiting_s(os.getpid())
        if self.workers is not None:
            environment = {"HOLDFAST_LOG_FORMAT": "json", **environment}
        self._processes = [
            await self._serve(listen=listen, **environment) for _ in range(self.replicas)
        ]
        if self.workers is not None:
            self.url = await self.workers.read(self._processes[0])
            self.urls = [self.url] * self._workers
            return
        said = [await _said_at_start(each) for each in self._processes]
        everybody = (os.getpid(), *(each.pid for each in self._processes))
        waited_s = sum(map(_kept_waiting_s, everybody))
        self.started_in_s = time.perf_counter() - began - waited_s
        self.output = said[0]
        self.urls = [_address_in(each) for each in said]
        self.url = self.urls[0]
        if self._balancer is not None:
            self._balancer.urls = self.urls
            self.url = self._balancer.url

    async def _serve(
        self, *, listen: str = "127.0.0.1:0", **environment: str
    ) -> Process | Launched:
        agent = str(self.here / "agent.yaml")
        asked = ("serve", agent, "--listen", listen, "--workers", str(self._workers))
        return await self.run(*asked, **environment)

    async def run(self, *arguments: str, **environment: str) -> Process | Launched:
        """Any command, on this store."""
        settings = {
            "HOLDFAST_STORE": self.store,
            "HOLDFAST_LISTEN": "127.0.0.1:0",  # the default port may be in use on this machine
            "HOLDFAST_LEASE_TTL_S": str(LEASE_S),
            "HOLDFAST_A2A_AGENTS": "root",
        }
        env = {**os.environ, **settings, **environment}
        if not self.fresh:
            return await launched(*arguments, cwd=self.here, env=env)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", *arguments),
            cwd=self.here,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the servers in this way, and say how they ended: 0 if all of them did well."""
        self.signal(how)
        codes = [await each.wait() for each in self._processes]
        self._processes = []
        return max(codes, key=abs)

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)

    async def restart_one(self, at: int) -> None:
        """Stop one of several servers, and start another one in its place."""
        self.signal(signal.SIGTERM, at)
        assert await self._processes[at].wait() == 0
        self._processes[at] = await self._serve()
        self.urls[at] = _address_in(await _said_at_start(self._processes[at]))

    async def kill_one(self, at: int) -> None:
        """Kill one of several servers."""
        if self.workers is not None:
            pid = self.workers.members[at].pid
            os.kill(pid, signal.SIGKILL)
            await self.workers.until(lambda staff: pid in staff.ended)
            return
        self.signal(signal.SIGKILL, at)
        await self._processes[at].wait()

    def signal(self, which: signal.Signals, at: int | None = None) -> None:
        """Send a signal to every server, or to the one that `at` names."""
        assert self._processes, "it runs"
        for each in self._processes if at is None else [self._processes[at]]:
            if each.returncode is None:
                each.send_signal(which)

    async def restart(self, **environment: str) -> None:
        if self._processes:
            assert await self.stop() == 0
        await self.start(**environment)

    async def verify(self) -> None:
        """Every promise that a store can show holds."""
        process = await self.run("db", "verify")
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    # ── clients ──

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None
        return self._http

    def openai(self, **options: Any) -> AsyncOpenAI:
        alone = self.replicas == 1 and self.workers is None
        keep = httpx2.Limits(max_keepalive_connections=None if alone else 0)
        return AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key="any",
            http_client=DefaultAsyncHttpxClient(limits=keep),
            **{"max_retries": 0, **options},
        )

    async def chat(
        self,
        *messages: str | dict[str, Any],
        to: str | None = None,
        headers: Mapping[str, str] | None = None,
        at: int | None = None,
        **body: Any,
    ) -> Answer:
        said_by = {**({"X-Conversation-Id": to} if to else {}), **(headers or {})}
        data = chat_body(*messages, **body)
        return await self.request("POST", "/v1/chat/completions", at=at, headers=said_by, data=data)

    async def request(
        self, method: str, path: str, *, at: int | None = None, **options: Any
    ) -> Answer:
        """Ask any server, or the one that `at` names."""
        url = self.url if at is None else self.urls[at]
        async with self._connection(at) as http:
            async with http.request(method, url + path, **options) as response:
                return Answer(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def _connection(self, at: int | None) -> AsyncIterator[aiohttp.ClientSession]:
        """A client whose next request goes to any server, or to the one that `at` names."""
        if self.workers is None or at is None:
            yield self.http
            return
        wanted = self.workers.members[at].node
        async with AsyncExitStack() as opened:
            async with asyncio.timeout(120):
                while True:
                    connector = aiohttp.TCPConnector(limit=1)
                    http = await opened.enter_async_context(
                        aiohttp.ClientSession(connector=connector)
                    )
                    async with http.get(f"{self.url}/healthz") as response:
                        if (await response.json())["node"] == wanted:
                            break
            yield http

    @asynccontextmanager
    async def streaming(
        self,
        said: str,
        *,
        to: str,
        at: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A stream that has begun, at any server or at the one that `at` names. Leaving it early closes the
        connection."""
        url = self.url if at is None else self.urls[at]
        response = await self.http.post(
            f"{url}/v1/chat/completions",
            data=chat_body(said, stream=True),
            headers={"X-Conversation-Id": to, **(headers or {})},
        )
        try:
            yield response
        finally:
            response.close()

    async def items(self, name: str) -> list[dict[str, Any]]:
        answer = await self.request("GET", f"/api/sessions/{name}/items")
        return answer.json["items"] if answer.status == 200 else []

    async def turns(self, name: str) -> list[dict[str, Any]]:
        answer = await self.request("GET", f"/api/sessions/{name}/turns")
        return answer.json["turns"] if answer.status == 200 else []

    async def ended(self, name: str) -> dict[str, Any]:
        """The newest turn of a conversation, once it has ended."""
        newest = (await self.turns(name))[0]
        answer = await self.request("GET", f"/api/turns/{newest['id']}/events")
        found: dict[str, Any] = answer.events[-1]["turn"]
        return found

    async def signalled(self, turn_id: str) -> None:
        """Wait until somebody has said something to this turn."""
        store = await open_existing(self.store)
        try:
            async with asyncio.timeout(120):
                while await store.find_signal(LOCAL, TurnId(turn_id), 1) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await store.close()

    # ── the tool ──

    @property
    def runs(self) -> int:
        """How often the tool has run."""
        path = self.here / "tools" / "ran"
        return len(path.read_text().split()) if path.exists() else 0

    def let_tools_go(self) -> None:
        (self.here / "tools" / "go").touch()


class Member(NamedTuple):
    """A worker that has said that it is ready."""

    pid: int
    node: str


class Staff:
    """What the workers of a server say about themselves, in its log."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        """By their numbers; those of the newest ones."""
        self.ended: set[int] = set()
        self.lines: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None

    async def read(self, process: Process | Launched) -> str:
        """Read the log from now on; returns where the server listens once it says so."""
        self.members, self.lines = {}, []
        self._reading = asyncio.create_task(self._read(process))
        await self.until(lambda staff: staff.said("server.ready"))
        return str(self.said("server.ready")[0]["url"])

    def said(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.lines if each["event"] == event]

    async def until(self, happened: Callable[[Staff], object]) -> None:
        async with asyncio.timeout(120), self._news:
            await self._news.wait_for(lambda: happened(self))

    async def _read(self, process: Process | Launched) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            assert line.startswith(b"{"), line
            said = json.loads(line)
            self.lines.append(said)
            match said["event"]:
                case "worker.ready":
                    self.members[said["worker"]] = Member(said["pid"], said["node"])
                case "worker.ended":
                    self.ended.add(said["pid"])
            async with self._news:
                self._news.notify_all()


async def until(happened: Callable[[], bool], *, within_s: float = 120.0) -> None:
    """Wait for something that happens in another process, where nobody can tell us of it."""
    async with asyncio.timeout(within_s):
        while True:
            if happened():
                return
            await asyncio.sleep(0.005)


def _kept_waiting_s(pid: int) -> float:
    """How long the threads of a process could have gone on, and others did. 0 where nobody counts that."""
    waited_ns = 0
    for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has ended meanwhile
            waited_ns += int(each.read_text().split()[1])
    return waited_ns / 1e9


def _address_in(said: str) -> str:
    found: str = re.findall(r"listening\s+(\S+)", said)[0]
    return found


async def _said_at_start(process: Process | Launched) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    while "Stop with" not in (lines[-1] if lines else ""):
        line = (await process.stdout.readline()).decode()
        assert line, f"the server ended with {await process.wait()}: {''.join(lines)}"
        lines.append(line)
    return "".join(lines)


@asynccontextmanager
async def world(
    here: Path,
    *,
    respond: Respond | None = None,
    database: str | None = None,
    workers: int = 1,
) -> AsyncIterator[World]:
    """A world whose servers are not started yet. Its upstream answers as it is scripted, or by `respond`.

    With a database there are two servers on it; otherwise there is one, on a file. With `workers` there is one
    server of several processes.
    """
    found = World(here, respond=respond, database=database, workers=workers)
    several = database is not None or workers > 1
    async with AsyncExitStack() as entered:
        await entered.enter_async_context(found.upstream)
        if found.replicas > 1:
            found._balancer = await entered.enter_async_context(Balancer.started())
        # A connection for each request: so each goes to the next server.
        connector = aiohttp.TCPConnector(force_close=several)
        found._http = await entered.enter_async_context(aiohttp.ClientSession(connector=connector))
        text = AGENT.format(base_url=found.upstream.base_url, here=here)
        (here / "agent.yaml").write_text(text)
        (here / "tools").mkdir(exist_ok=True)  # commands make no files beside what the server reads
        try:
            yield found
        finally:
            if found._processes:
                await found.kill()
