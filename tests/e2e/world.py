"""A real server process, a recording upstream, and what one can do to them.

Everything is judged from outside: by what the upstream was sent, and by what a restarted server answers.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from openai import AsyncOpenAI

from holdfast.models.base import ModelFailed
from holdfast.testing import FakeUpstream, Gate, Reply, Script, refuses, says
from holdfast.testing.upstream import Request
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
    toolsets:
      - type: script
        shell:
          act:
            cmd: 'echo ran >> "$RAN"; while [ ! -e "$GO" ]; do sleep 0.02; done; echo acted'
            description: Does something.
            env:
              RAN: {here}/ran
              GO: {here}/go
          look:
            cmd: 'echo ran >> "$RAN"; echo seen'
            description: Sees something.
            read_only: true
            env:
              RAN: {here}/ran
"""

Respond: TypeAlias = Callable[[Request], Reply | Script | str]

REFUSALS = {
    "too often": refuses(429, code="rate_limit_exceeded", headers={"retry-after": "45"}),
    "too long": refuses(400, code="context_length_exceeded"),
    "not allowed": refuses(400, code="content_policy_violation"),
    "wrong key": refuses(401, code="invalid_api_key"),
    "no such model": refuses(404, code="model_not_found"),
    "overloaded": refuses(503, kind="server_error"),
}
"""What the upstream refuses, by what the user says."""


class World:
    """A directory with a store and an agent file, an upstream, and a server that comes and goes."""

    def __init__(self, here: Path, *, respond: Respond | None = None) -> None:
        self.here = here
        self.upstream = FakeUpstream(otherwise=respond or self._respond)
        self.gates: dict[str, Gate] = {}
        """By what the user says: the answer to it is held in the middle until the gate is released."""
        self.pace_s = 0.0
        self.started_in_s = 0.0
        self.output = ""
        self.url = ""
        self._process: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None

    # ── the upstream ──

    def _respond(self, request: Request) -> Reply | Script | str:
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
        """Start the server, and wait until it says that it is ready."""
        began = time.perf_counter()
        self._process = await self.run(
            "serve", str(self.here / "agent.yaml"), "--listen", listen, **environment
        )
        assert self._process.stdout is not None
        lines: list[str] = []
        while "Stop with" not in (lines[-1] if lines else ""):
            line = (await self._process.stdout.readline()).decode()
            assert line, f"the server ended with {await self._process.wait()}: {''.join(lines)}"
            lines.append(line)
            if found := re.search(r"http://\S+", line):
                self.url = self.url if found[0] in self.url else found[0]
                self.started_in_s = time.perf_counter() - began
        self.output = "".join(lines)
        self.url = next(iter(re.findall(r"listening\s+(\S+)", self.output)))

    async def run(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        """Any command, on this store."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast",
            *arguments,
            cwd=self.here,
            env={**os.environ, "HOLDFAST_STORE": f"sqlite:///{self.here}/store.db", **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the server in this way, and say how it ended."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(how)
        code = await self._process.wait()
        self._process = None
        return code

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)

    def signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)

    async def restart(self, **environment: str) -> None:
        if self._process is not None:
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
        return AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="any", **{"max_retries": 0, **options}
        )

    async def chat(
        self,
        *messages: str | dict[str, Any],
        to: str | None = None,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Answer:
        said_by = {**({"X-Conversation-Id": to} if to else {}), **(headers or {})}
        return await self.request(
            "POST", "/v1/chat/completions", headers=said_by, data=chat_body(*messages, **body)
        )

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        async with self.http.request(method, self.url + path, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def streaming(
        self, said: str, *, to: str, **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A stream that has begun. Leaving it early closes the connection."""
        response = await self.http.post(
            f"{self.url}/v1/chat/completions",
            data=chat_body(said, stream=True),
            headers={"X-Conversation-Id": to, **headers},
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

    # ── the tool ──

    @property
    def runs(self) -> int:
        """How often the tool has run."""
        path = self.here / "ran"
        return len(path.read_text().split()) if path.exists() else 0

    def let_tools_go(self) -> None:
        (self.here / "go").touch()


async def until(happened: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Wait for something that happens in another process, where nobody can tell us of it."""
    async with asyncio.timeout(within_s):
        while True:
            if happened():
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def world(here: Path, *, respond: Respond | None = None) -> AsyncIterator[World]:
    """A world whose server is not started yet. Its upstream answers as it is scripted, or by `respond`."""
    found = World(here, respond=respond)
    async with found.upstream, aiohttp.ClientSession() as http:
        found._http = http
        text = AGENT.format(base_url=found.upstream.base_url, here=here)
        (here / "agent.yaml").write_text(text)
        try:
            yield found
        finally:
            if found._process is not None:
                await found.kill()
