"""Where a scenario plays: a system, the upstream that records what it is sent, the tool that tells when it runs.

The upstream answers by what the user has said last: every message of a scenario is unique, so a plan for it is a plan
for one turn. A plan has one reply for each time that the model is asked in that turn; without one the answer is
`Answer to …`, and a message that says *charge* makes the model call the tool first.

What happens is written down as it happens, line by line; those lines are the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from systems.base import Answer, Asked, Place, Running, Said, System, free_port, said_of

from holdfast.testing import FakeUpstream, Gate, Reply, refuses, says
from holdfast.testing.upstream.replies import UpstreamRequest

PIECES = 4
"""Of an answer, when it is streamed."""

PATIENCE_S = 20.0
"""How long a scenario waits for something that should happen."""


def answer_to(text: str) -> str:
    return f"Answer to {text}, in some words more."


def _pieces(text: str) -> list[str]:
    size = -(-len(text) // PIECES)
    return [text[at : at + size] for at in range(0, len(text), size)]


class Effects:
    """The world outside: hears the tool, and keeps it waiting at a gate if there is one. It also serves what lies in
    the system's folder, for agents that live at a URL."""

    def __init__(self, folder: Path) -> None:
        self.happened = 0
        self.gate: Gate | None = None
        self.url = ""
        self._folder = folder

    async def _charge(self, request: web.Request) -> web.Response:
        await request.read()
        self.happened += 1
        gate = self.gate
        if gate is not None:
            await gate.wait()
        return web.Response(text="charged")

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=(self._folder / request.match_info["name"]).read_bytes())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Effects]:
        application = web.Application()
        application.router.add_post("/charge", self._charge)
        application.router.add_get("/files/{name}", self._file)
        runner = web.AppRunner(application, shutdown_timeout=0.05)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


class Prompt(msgspec.Struct, frozen=True):
    """What the model was sent, once."""

    said: tuple[Said, ...]

    @property
    def last_user(self) -> str:
        return next((each.text for each in reversed(self.said) if each.role == "user"), "")


class Stage:
    """One scenario on one system."""

    def __init__(self, system: System, place: Place, effects: Effects) -> None:
        self.system = system
        self.place = place
        self.effects = effects
        self.prompts: list[Prompt] = []
        self.plans: dict[str, list[Reply]] = {}
        self.failing: set[str] = set()
        """Messages for which the model fails every time."""
        self.lines: list[str] = []
        self._running: Running | None = None
        self._asking: list[asyncio.Task[Answer]] = []
        self._numbers = itertools.count(1)

    # ── what happens ──

    def note(self, line: str) -> None:
        self.lines.append(line)

    @property
    def running(self) -> Running:
        assert self._running is not None, "it was started"
        return self._running

    async def start(self, **changes: Any) -> None:
        """Start the system, or start it again."""
        again = "again" if self._running else ""
        self.place = msgspec.structs.replace(self.place, port=free_port(), **changes)
        self._running = await self.system.start(self.place)
        self.note(f"— {self.system.title} is started {again}".rstrip())

    async def kill(self) -> None:
        await self.running.kill()
        self.note("— kill -9")

    async def stop(self) -> None:
        await self.running.stop()
        self.note("— it is stopped, and has ended")

    async def close(self) -> None:
        """Whatever is left of the system goes."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        if self.effects.gate is not None:
            self.effects.gate.release()
        if self._running is not None:
            await self._running.kill()

    async def ask(
        self,
        text: str,
        *,
        conversation: str = "talk",
        stream: bool = False,
        attempt: int = 0,
        key: str | None = None,
        before: tuple[str, ...] = (),
        told: Callable[[str], None] | None = None,
    ) -> Answer:
        """One turn; what came of it is noted."""
        asked = Asked(conversation, text, stream=stream, attempt=attempt, key=key, before=before)
        how = ", streamed" if stream else ""
        how += f", retry {attempt}" if attempt else ""
        how += f", key {key}" if key else ""
        how += f", after {', '.join(before)} again" if before else ""
        self.note(f"client → {text!r}{how}")
        try:
            answer = await self.running.ask(asked, told or (lambda piece: None))
        except asyncio.CancelledError:
            self.note(f"client hangs up on {text!r}")
            raise
        self.note(f"client ← {answer}")
        return answer

    @asynccontextmanager
    async def losing_answers(self) -> AsyncIterator[None]:
        """Requests get through, and what is answered does not: the connection is lost instead."""
        running, straight = self.running, self.running.url

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back, forth = await asyncio.open_connection("127.0.0.1", self.place.port)
            pumping = asyncio.create_task(_pump(reader, forth))
            await back.read(1)  # it answers
            await asyncio.sleep(0.3)
            self.note("the answer is lost on its way")
            pumping.cancel()
            for each in (writer, forth):
                each.transport.abort()

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            running.url = straight
            server.close()

    def asking(self, text: str, **how: Any) -> asyncio.Task[Answer]:
        """The same, in the background: cancel it, and the client has hung up."""
        self._asking.append(asyncio.create_task(self.ask(text, **how)))
        return self._asking[-1]

    async def hang_up(self, task: asyncio.Task[Answer]) -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def cancel(self, conversation: str = "talk") -> None:
        self.note(f"client cancels; it says {await self.running.cancel(conversation)}")

    async def history(self, conversation: str = "talk") -> tuple[Said, ...]:
        """What the system holds; noted."""
        said = await self.running.history(conversation)
        self.note("store:")
        self.lines += [f"    {each}" for each in said] or ["    nothing"]
        return said

    async def soon(self, event: asyncio.Event, what: str) -> None:
        """Wait for something that must come."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await event.wait()
        except TimeoutError:
            raise DidNotHappen(what) from None

    async def settled(self, *, still_s: float = 0.6) -> None:
        """Wait until the system has asked the model nothing more for a while: what goes on behind is then over.
        One that never comes to rest is not waited for."""
        asked, until = -1, time.monotonic() + PATIENCE_S
        while asked != len(self.prompts) and time.monotonic() < until:
            asked = len(self.prompts)
            await asyncio.sleep(still_s)

    # ── what the model does ──

    def plan(self, text: str, *replies: Reply) -> None:
        self.plans[text] = list(replies)

    def respond(self, request: UpstreamRequest) -> Reply:
        prompt = Prompt(said_of(request.json["messages"]))
        self.prompts.append(prompt)
        self.note(f"model ← {len(prompt.said)} messages:")
        self.lines += [f"    {each}" for each in prompt.said]
        return self._reply(prompt)

    def _reply(self, prompt: Prompt) -> Reply:
        text = prompt.last_user
        if any(each in text for each in self.failing):
            self.note("model → 500")
            return FAILS
        planned = next((replies for each, replies in self.plans.items() if each in text), None)
        if planned:
            self.note("model → as planned")
            return planned.pop(0)
        if "charge" in text and prompt.said[-1].role != "tool":
            return self.calls()
        return Reply(script=says(*_pieces(answer_to(text))))

    def calls(self) -> Reply:
        """The model calls the tool."""
        call_id = f"call_{next(self._numbers)}"
        tool = self.system.tool
        self.note(f"model → calls {tool} as {call_id}")
        return Reply(script=says(calls=[(tool, '{"amount": 5}', call_id)]))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


FAILS = refuses(500, code="overloaded", message="scripted to fail")


def stops_at(gate: Gate, text: str, *, after: int = 2) -> Reply:
    """An answer that waits at a gate after some of its pieces."""
    return Reply(script=says(*_pieces(answer_to(text))).waiting(gate, at=after))


def breaks(text: str) -> Reply:
    """An answer whose connection is lost after some of its pieces."""
    return Reply(script=says(*_pieces(answer_to(text))), cut_at=600, cut_by="reset")


class DidNotHappen(Exception):
    """What a scenario waited for did not come: the scenario says nothing about this system."""


@asynccontextmanager
async def staged(system: System, folder: Path, postgres: str | None) -> AsyncIterator[Stage]:
    """A stage, with everything around the system; the system itself is started by the scenario."""
    effects = Effects(folder)
    stage = Stage(system, Place(folder, "", "", "", 0, postgres=postgres), effects)
    async with FakeUpstream(otherwise=stage.respond) as upstream, effects.serving():
        stage.place = msgspec.structs.replace(
            stage.place,
            upstream=upstream.base_url,
            effects=f"{effects.url}/charge",
            files=f"{effects.url}/files",
        )
        try:
            yield stage
        finally:
            await stage.close()
