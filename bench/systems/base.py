"""What a system looks like to the scenarios: a process that is started on a folder, asked over HTTP, and killed.

A *system* is Holdfast, or something that people use in its place, set up as its documentation recommends. It talks
to one upstream that records what it is sent, and has one agent, `clerk`, with one tool, `charge`, which tells the
same recorder that it has run. Everything else that a scenario knows about it comes out of two doors: what it answers,
and what it shows of a conversation afterwards.

    system.start(place)         a process, ready to answer; started again on the same folder, it is a restart
    running.ask(asked)          one turn, from the request to the end of its answer; cancelled, the client hangs up
    running.history(name)       what the system says that it holds
    running.kill()              SIGKILL, to it and to whatever it has started

A system that cannot do something says `NotOffered`; the row says so, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import aiohttp
import msgspec

READY_S = 120.0
"""How long a system may take until it answers."""

ANSWER_S = 60.0
"""How long a client waits for the end of an answer. One that has not come by then is a failed one."""

INSTRUCTIONS = "You are a clerk. Charge people when they ask you to."
TOOL = "charge"
TOOL_ABOUT = "Charge somebody. It costs them money."


class NotOffered(Exception):
    """The system has nothing like it. The message says what was looked for."""


class Asked(msgspec.Struct, frozen=True):
    """One request of a client."""

    conversation: str
    text: str
    stream: bool = False
    attempt: int = 0
    """0 for the first; an SDK counts its own retries."""
    key: str | None = None
    """An idempotency key, for systems that know what that is."""
    before: tuple[str, ...] = ()
    """What the client has said before, and tells again; for systems that can be told more than what is new."""


class Request(msgspec.Struct, frozen=True):
    """A request on the wire: a POST of JSON."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def raw(self) -> bytes:
        """Every byte of it."""
        named = {"Host": "127.0.0.1", "Content-Type": "application/json", **dict(self.headers)}
        named["Content-Length"] = str(len(self.body))
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


class Answer(msgspec.Struct, frozen=True):
    """What the client has been told."""

    status: int
    text: str
    failure: str = ""
    """Why this is no answer: an error status, an error event, or a stream that broke off."""

    @property
    def ok(self) -> bool:
        return not self.failure

    def __str__(self) -> str:
        return f"{self.status} {self.text!r}" if self.ok else f"{self.status} {self.failure}"


class Said(msgspec.Struct, frozen=True):
    """One message of a conversation, as a model is sent it or as a system shows it."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[str, ...] = ()
    """The ids of the calls that it makes."""
    answers: str | None = None
    """The id of the call whose result it is."""
    marked: bool = False
    """It says of itself that it was broken off."""

    def __str__(self) -> str:
        text = self.text if len(self.text) < 90 else f"{self.text[:87]}…"
        extra = f" calls {', '.join(self.calls)}" if self.calls else ""
        extra += f" for {self.answers}" if self.answers else ""
        return f"{self.role}{extra}{' (marked as broken off)' if self.marked else ''}: {text!r}"


class Place(msgspec.Struct):
    """Where a system is started: its folder, and whom it talks to."""

    folder: Path
    upstream: str
    """The base URL of an OpenAI API, with `/v1`."""
    effects: str
    """Where the tool posts to when it runs."""
    files: str
    """A URL under which the files of the folder can be fetched."""
    port: int
    deadline_s: float | None = None
    """The longest that a turn may take, for systems that can be told so."""
    model: str = "recorder"
    """What the agent's model is called; the upstream of the speed groups answers by it."""
    moved: bool = False
    """Whether the agent has a new address: the next version of the same agent."""
    postgres: str | None = None
    """A database of its own, for systems that want one."""


Read = Callable[[aiohttp.ClientResponse], Awaitable[Answer]]
"""What a system's answer says: a client that knows its wire."""


class Running:
    """A system that runs. What it is asked differs from one to the next; how it dies does not."""

    def __init__(self, place: Place, process: asyncio.subprocess.Process, said: IO[bytes]) -> None:
        self.place = place
        self.url = f"http://127.0.0.1:{place.port}"
        self.process = process
        self._said = said
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
        )

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        """One turn. `told` is called with each piece of a streamed answer."""
        raise NotImplementedError

    async def post(self, request: Request, read: Read) -> Answer:
        """A request, and what `read` makes of a 200. Everything else that can come of it is a failed answer."""

        async def posted() -> Answer:
            headers = {"Content-Type": "application/json", **dict(request.headers)}
            async with self.http.post(
                self.url + request.path, data=request.body, headers=headers
            ) as response:
                if response.status != 200:
                    return Answer(response.status, "", failure=(await response.text())[:300])
                return await read(response)

        return await self.in_time(posted())

    async def in_time(self, answer: Awaitable[Answer]) -> Answer:
        """An answer, if it comes. A connection that is lost, and one on which nothing comes, are failed answers."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return Answer(0, "", failure=f"there was no end of it in {ANSWER_S:.0f} s")
        except aiohttp.ClientError as error:
            return Answer(0, "", failure=f"the connection was lost: {error!r}")

    async def history(self, conversation: str) -> tuple[Said, ...]:
        """What is stored of a conversation; raises NotOffered if nothing is."""
        raise NotImplementedError

    async def cancel(self, conversation: str) -> str:
        """Stop the turn that runs, on purpose; what the system said to that."""
        raise NotOffered("way to stop a turn")

    @property
    def pid(self) -> int:
        return self.process.pid

    async def kill(self) -> None:
        """SIGKILL, to the whole group."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """As an operator would: SIGTERM, and patience."""
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        await self.http.close()
        self._signal(how)
        try:
            async with asyncio.timeout(15):
                await self.process.wait()
        except TimeoutError:
            pass
        self._signal(signal.SIGKILL)  # to whatever is left of the group
        await self.process.wait()
        self._said.close()

    def _signal(self, how: signal.Signals) -> None:
        try:
            os.killpg(self.pid, how)
        except ProcessLookupError:
            pass  # all of them have ended

    def last_words(self) -> str:
        """The end of what the process has printed."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-3000:]


class System:
    """How one system is installed, started and named. `start` may be called many times."""

    name: ClassVar[str]
    """As in `make bench-peers PEER=…`."""
    title: ClassVar[str]
    variant: ClassVar[str] = "default"
    """What was chosen where it offers a choice."""
    configured: ClassVar[str]
    """In a sentence: how it is set up, and where its documentation says so."""
    environment: ClassVar[str] = ""
    """The lock in `peers/` that it is installed from; empty for ourselves."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Whose versions are printed."""
    python: ClassVar[str] = ""
    """The interpreter that it needs, if not ours: `3.12`."""
    knows_resends: ClassVar[bool] = False
    """Whether a client can send all that was said, and what is known is not stored again."""
    knows_keys: ClassVar[bool] = False
    """Whether it documents an idempotency key."""
    knows_deadline: ClassVar[bool] = False
    """Whether it can be told how long a turn may take; the small server around libraries keeps one for them."""
    knows_agents: ClassVar[bool] = True
    """Whether its agents have an address: if not, who the agent is stands in every request."""
    needs_postgres: ClassVar[bool] = False
    tool: ClassVar[str] = TOOL
    """What it calls the tool when it tells the model of it."""
    runner: ClassVar[type[Running]]

    def command(self, place: Place) -> Sequence[str]:
        """The server alone."""
        raise NotImplementedError

    def with_tool(self, place: Place) -> Sequence[str]:
        """The server, and the tool beside it where that is a process of its own."""
        return self.command(place)

    def request(self, asked: Asked) -> Request:
        """A turn on the wire, for clients that count bytes and decode nothing. Raises NotOffered."""
        raise NotOffered("turn that is one request")

    def env(self, place: Place) -> Mapping[str, str]:
        """What is in its environment beside ours."""
        return {}

    def prepare(self, place: Place) -> None:
        """Write the files that it is started on. Called before every start."""

    async def is_ready(self, running: Running) -> bool:
        """Whether it answers."""
        async with running.http.get(f"{running.url}/healthz") as response:
            return response.status < 500

    async def start(self, place: Place) -> Running:
        self.prepare(place)
        said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by its end)
        process = await asyncio.create_subprocess_exec(
            *self.with_tool(place),
            cwd=place.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**plain_environment(), **self.env(place)},
            start_new_session=True,
        )
        running = self.runner(place, process, said)
        try:
            async with asyncio.timeout(READY_S):
                while not await self._answers(running):  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.05)
        except BaseException:
            words = running.last_words()
            await running.kill()
            print(f"{self.title} does not start:\n{words}", file=sys.stderr)
            raise
        return running

    async def _answers(self, running: Running) -> bool:
        if running.process.returncode is not None:
            raise ConnectionError(f"it ended with {running.process.returncode}")
        try:
            return await self.is_ready(running)
        except (aiohttp.ClientError, OSError):
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")


def plain_environment(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a system is started in: so much of ours as a program needs, the same for everybody. Settings and keys
    that somebody has set for other work, proxies and the paths of our own modules do not reach it."""
    kept = {name: value for name, value in ours.items() if name in KEPT or name.startswith("PIP_")}
    quiet = {"OPENAI_API_KEY": "bench", "DO_NOT_TRACK": "1", "ANONYMIZED_TELEMETRY": "false"}
    return {**kept, **quiet}


# ── reading what systems say ─────────────────────────────────────────────────────────────────


def said_of(messages: Sequence[Mapping[str, Any]]) -> tuple[Said, ...]:
    """Messages in the shape of chat completions, without instructions."""
    found: list[Said] = []
    for each in messages:
        role, marked = each.get("role"), bool(each.get("marked"))
        if role == "user":
            found.append(Said("user", text_of(each.get("content")), marked=marked))
        elif role == "assistant":
            calls = tuple(str(call.get("id")) for call in each.get("tool_calls") or ())
            text = text_of(each.get("content"))
            found.append(Said("assistant", text, calls=calls, marked=marked))
        elif role == "tool":
            text = text_of(each.get("content"))
            found.append(Said("tool", text, answers=str(each.get("tool_call_id"))))
    return tuple(found)


def text_of(content: object) -> str:
    """The text of a message's content: a string, or parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""


async def data_lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The `data:` lines of an event stream, one by one."""
    async for line in response.content:
        if line.startswith(b"data:"):
            yield line[5:].strip().decode()


async def chat_answer(
    asked: Asked, told: Callable[[str], None], response: aiohttp.ClientResponse
) -> Answer:
    """An answer of chat completions, streamed or whole."""
    if not asked.stream:
        return Answer(200, (await response.json())["choices"][0]["message"]["content"] or "")
    text = ""
    async for line in data_lines(response):
        if line == "[DONE]":
            return Answer(200, text)
        event = json.loads(line)
        if "error" in event:
            return Answer(200, text, failure=line[:300])
        for choice in event["choices"]:
            if piece := choice["delta"].get("content"):
                text += piece
                told(piece)
    return Answer(200, text, failure="the stream broke off")
