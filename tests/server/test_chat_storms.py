"""Several windows on one chat at once: each prompt is what its window shows, and each answer that came is in a line.

People regenerate, edit, continue and stop answers while others run; programs ask for titles and send a request again
under its key; the server is stopped in the middle of it all, and started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from random import Random

import aiohttp
import msgspec
import pytest

from holdfast.core.turns.deltas import Delta
from holdfast.models.model import Prompt
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Script, ScriptedModel, says
from tests.server.chat_program import Node, joined
from tests.server.stubs import Serving, agent, chat_body, serving
from tests.server.test_chat_trees import Said, is_line
from tests.store.verification.test_verification import findings

WINDOWS, STEPS = 4, 7
DONE = "[DONE]"


class PausingModel(ScriptedModel):
    """Others go on between the words of its answers."""

    def __init__(self, storm: Storm) -> None:
        super().__init__(otherwise=storm.reply)
        self._chance = storm.chance

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        async for deltas in super().stream(prompt):
            for _ in range(self._chance.randrange(30)):
                await asyncio.sleep(0)
            yield deltas


class Storm:
    """A chat, the windows on it, and the server that comes and goes."""

    def __init__(self, seed: int, http: aiohttp.ClientSession) -> None:
        self.chance = Random(seed)
        self.store = MemoryStore()
        self.answers: list[Node] = []
        self.branches: list[Said] = []
        """What a window showed when an answer had come."""
        self.sent: set[tuple[tuple[str, str], ...]] = set()
        self.unexpected: list[Said] = []
        self.statuses: set[int] = set()
        self._http = http
        self._ids = seed % 2 == 1
        self._equal = 0.5 if seed % 3 == 0 else 0.0
        self._model = PausingModel(self)
        self._running = AsyncExitStack()
        self._reading: set[asyncio.Task[None]] = set()
        self._up = asyncio.Event()
        self._n = 0

    # ── the server ──

    async def start(self) -> None:
        made = serving(agent(self._model), store=self.store)
        self.server: Serving = await self._running.enter_async_context(made)
        self._up.set()

    async def stop(self) -> None:
        """Cut all connections, and stop the server."""
        self._up.clear()
        for each in self._reading:
            each.cancel()
        # Connections that it has not accepted by now would stay open.
        await self.server.get("/healthz")
        await self._running.aclose()

    async def rested(self) -> None:
        """Wait until no turn is open."""
        while (await self.server.get("/api/turns?state=open")).json["turns"]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def reply(self, prompt: Prompt) -> Script:
        shown = msgspec.json.decode(b"[" + b",".join(prompt.messages) + b"]")
        said = joined(
            [(each["role"], each["content"]) for each in shown if each["role"] != "system"]
        )
        if tuple(said) not in self.sent:
            self.unexpected.append(said)
        if self.chance.random() < self._equal:
            return says(*self.chance.choice((("Yes.",), ("N", "o."))))
        return says(f"A{len(self._model.prompts)} ", "and ", "more.")

    # ── the windows ──

    async def window(self) -> None:
        for _ in range(STEPS):
            await self._step()

    async def _step(self) -> None:
        self._n += 1
        answers = self.answers
        pick = self.chance.choice(answers) if answers else None
        asked = pick.parent if pick is not None else None
        match self.chance.choice(("say", "say", "last", "last", "again", "edit", "on", "side")):
            case "again" if asked is not None:
                await self._answer(asked)
            case "edit" if asked is not None:
                await self._answer(Node("user", f"E{self._n}", asked.parent))
            case "on" if pick is not None and pick is answers[-1] and asked is not None:
                more, whole = await self._ask(pick.branch, pick)
                # Another window may go on from the first part: it stays as it is.
                self._note(Node("assistant", pick.text + more, asked), whole=whole)
            case "side":
                await self._ask([Node("user", f"### Task: title {self._n}", None)], None)
            case kind:
                after = answers[-1] if kind == "last" and answers else pick
                await self._answer(Node("user", f"Q{self._n}", after))

    async def _answer(self, asked: Node) -> None:
        found = Node("assistant", "", asked)
        found.text, whole = await self._ask(asked.branch, found)
        self._note(found, whole=whole)

    def _note(self, answer: Node, *, whole: bool) -> None:
        if whole:
            self.branches.append(joined([(each.role, each.text) for each in answer.branch]))
        if answer.text:
            self.answers.append(answer)

    async def _ask(self, branch: list[Node], answer: Node | None) -> tuple[str, bool]:
        """The text that has come, and whether that is all of it: a person may stop an answer, and the server may die.
        A request with a key is sent again until it is answered."""
        self.sent.add(tuple(joined([(each.role, each.text) for each in branch])))
        headers = {"X-OpenWebUI-Chat-Id": "chat-1"}
        asked = branch[-1] if branch[-1].role == "user" else branch[-2]
        if self._ids and answer is not None:
            headers["X-History-Parent"] = asked.parent.id if asked.parent else ""
            headers["X-History-Answer"] = answer.id
        leaves = self.chance.choice((*[None] * 8, 0, 2))
        keyed = self.chance.random() < 0.3
        if keyed:
            headers["Idempotency-Key"] = f"k{self._n}-{self.chance.random()}"
        body = chat_body(*(each.sent() for each in branch), stream=True)
        text, whole = await self._read(headers, body, leaves=leaves)
        while keyed and not whole:
            text, whole = await self._read(headers, body, leaves=None)
        return text, whole

    async def _read(
        self, headers: dict[str, str], body: bytes, *, leaves: int | None
    ) -> tuple[str, bool]:
        await self._up.wait()
        pieces: list[str] = []
        reading = asyncio.create_task(self._stream(headers, body, pieces, leaves=leaves))
        self._reading.add(reading)
        await asyncio.wait({reading})
        self._reading.remove(reading)
        if not reading.cancelled():
            reading.result()
        whole = pieces[-1:] == [DONE]
        return "".join(pieces[:-1] if whole else pieces), whole

    async def _stream(
        self, headers: dict[str, str], body: bytes, pieces: list[str], *, leaves: int | None
    ) -> None:
        url = f"{self.server.url}/v1/chat/completions"
        async with self._http.post(url, headers=headers, data=body) as response:
            self.statuses.add(response.status)
            async for line in response.content:
                if leaves == len(pieces):
                    return
                if line.startswith(b"data: {"):
                    choices = msgspec.json.decode(line[6:]).get("choices", ())
                    pieces += (each["delta"].get("content") or "" for each in choices)
                elif line.startswith(b"data:"):
                    pieces.append(line[6:].decode().strip())


@pytest.mark.parametrize("seed", range(8))
async def test_what_windows_at_once_show_is_what_the_model_is_shown(seed: int) -> None:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        storm = Storm(seed, http)
        await storm.start()
        windows = asyncio.gather(*(storm.window() for _ in range(WINDOWS)))
        for answers in (3, 8):
            while len(storm.answers) < answers and not windows.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await storm.stop()
            await storm.start()
        await windows
        await storm.rested()
        server = storm.server
        (listed,) = (await server.get("/api/sessions")).json["sessions"]
        assert listed["keys"] == ["chat-1"]
        lines = (await server.get("/api/sessions/chat-1/family")).json["lines"]
        held = [_said(await server.items(each["id"])) for each in lines]
        await storm.stop()
    assert storm.unexpected == []
    assert storm.statuses <= {200, 503}, "503 as the server stops; nothing else is ever refused"
    for branch in storm.branches:
        assert any(is_line(branch, line) for line in held), f"{branch} is a line"
    assert await findings(storm.store) == []


def _said(items: list[dict[str, object]]) -> Said:
    """What a line's clients have seen."""
    return joined(
        [
            (str(each["type"]), "".join(part["text"] for part in each["content"]))  # type: ignore[attr-defined]
            for each in items
            if each["type"] in ("user", "assistant") and each.get("state") != "set_aside"
        ]
    )
