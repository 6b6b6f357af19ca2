"""Claude Code, with a task that takes a read, an edit, a test and a sub-agent; resumed later, and over a killed server.

It resends its whole history with every request, under the id of its session; its sub-agents and its requests for a
title come under the same id. It counts no retries: what it sends again looks like the first time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.setup.client_snippets import SNIPPETS, ConnectedServer
from holdfast.testing import Gate, Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.clients.catalogue import CLAUDE_CODE
from tests.clients.programs import installed, run
from tests.e2e.world import World
from tests.e2e.world import world as new_world

pytestmark = [pytest.mark.slow, pytest.mark.clients]

TASK = "Mend add.py, run its test, and let an agent review it."
REVIEW = "Review add.py."
WRONG, RIGHT = "return a - b", "return a + b"
TEST = "from add import add\n\nassert add(2, 2) == 4\nprint('the test passed')\n"
SESSION = "11111111-2222-4333-8444-555555555555"


class Coder:
    """The model: it does the task step by step, and tells its steps by the results that it is given."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._ids = count(1)
        self.gate: Gate | None = None
        """Holds the answer after the test has run."""

    def __call__(self, request: UpstreamRequest) -> Script | str:
        messages: list[dict[str, Any]] = request.json["messages"]
        if "response_format" in request.json:
            return '{"title": "Mend add"}'
        said = str([each["content"] for each in messages if each["role"] == "user"])
        results = [each for each in messages if each["role"] == "tool"]
        if REVIEW in said:
            return "It is right now." if results else self._calls("Read", self._file)
        if "Once more" in said:
            return f"I had {len(results)} results."
        step = (
            ("Read", self._file),
            ("Edit", {**self._file, "old_string": WRONG, "new_string": RIGHT}),
            ("Bash", {"command": f"{sys.executable} test_add.py", "description": "Run the test"}),
            (
                "Agent",
                {"description": "Review", "prompt": REVIEW, "subagent_type": "general-purpose"},
            ),
        )[len(results) : len(results) + 1]
        if not step:
            return "All done."
        script = self._calls(*step[0])
        if self.gate is not None and len(results) == 3:
            script = script.waiting(self.gate, at=2)
        return script

    @property
    def _file(self) -> dict[str, str]:
        return {"file_path": str(self._work / "add.py")}

    def _calls(self, name: str, arguments: dict[str, str]) -> Script:
        call_id = f"call_{next(self._ids)}"  # it takes a second call with the same id for the first
        return says(f"Now {name}. ", "So.", calls=[(name, json.dumps(arguments), call_id)])


class Desk:
    """A directory to work in, and Claude Code in it."""

    def __init__(self, here: Path) -> None:
        self.home, self.work = here / "home", here / "work"
        for each in (self.home, self.work):
            each.mkdir()
        (self.work / "add.py").write_text(f"def add(a, b):\n    {WRONG}\n")
        (self.work / "test_add.py").write_text(TEST)

    def connect(self, world: World) -> None:
        """Write the settings that `holdfast connect claude-code` prints."""
        server = ConnectedServer(url=world.url, models=("root",), key="local")
        settings = self.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(SNIPPETS["claude-code"].text(server))

    async def claude(self, world: World, *arguments: str, **environment: str) -> str:
        folder = await installed(CLAUDE_CODE.ready)
        runner = await installed(CLAUDE_CODE.runner)
        program = folder / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"
        return await run(
            [runner[0], str(program), "--dangerously-skip-permissions", *arguments],
            home=self.work,
            HOME=str(self.home),
            IS_SANDBOX="1",
            DISABLE_AUTOUPDATER="1",
            DISABLE_TELEMETRY="1",
            DISABLE_ERROR_REPORTING="1",
            **environment,  # type: ignore[arg-type]
        )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def sessions(world: World) -> dict[str, str]:
    """The names of all conversations, with their ids."""
    listed = (await world.request("GET", "/api/sessions")).json["sessions"]
    return {each["keys"][0]: each["id"] for each in listed}


async def kinds(world: World, name: str) -> list[str]:
    """What a conversation consists of; the items of one kind that follow each other told once, with their number."""
    return [each["type"] for each in await world.items(name)]


MODEL = "claude-opus-4-8"
ALIAS = {"HOLDFAST_MODEL_ALIASES": "claude-*=root"}
STEP = ["assistant", "call", "result"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_claude_code_does_a_task_and_resumes_it(tmp_path: Path, desk: Desk) -> None:
    async with new_world(tmp_path, respond=Coder(desk.work)) as world:
        await world.start()
        desk.connect(world)
        said = await desk.claude(world, "--session-id", SESSION, "-p", TASK)
        assert said.strip() == "All done."
        assert RIGHT in (desk.work / "add.py").read_text()
        assert await kinds(world, SESSION) == ["user", *STEP * 4, "assistant"]
        named = await sessions(world)
        (agent,) = set(named) - {SESSION}
        assert agent.startswith(f"{SESSION}/"), "a sub-agent has a conversation of its own"
        reviewed = await kinds(world, named[agent])
        assert reviewed == ["user", *STEP, "assistant"]
        again = await desk.claude(world, "--resume", SESSION, "-p", "Once more: what did you do?")
        assert again.strip() == "I had 4 results."
        assert await kinds(world, SESSION) == ["user", *STEP * 4, "assistant", "user", "assistant"]
        await world.verify()


async def test_claude_code_goes_on_where_its_server_was_killed(tmp_path: Path, desk: Desk) -> None:
    coder = Coder(desk.work)
    coder.gate = Gate()
    listen = f"127.0.0.1:{free_port()}"
    async with new_world(tmp_path, respond=coder) as world:
        await world.start(listen=listen, **ALIAS)
        theirs = {"ANTHROPIC_BASE_URL": world.url, "ANTHROPIC_API_KEY": "any"}
        task = asyncio.create_task(
            desk.claude(world, "--session-id", SESSION, "--model", MODEL, "-p", TASK, **theirs)
        )
        await coder.gate.reached.wait()
        await world.kill()
        coder.gate = None
        await world.start(listen=listen, **ALIAS)
        assert (await task).strip() == "All done."
        assert await kinds(world, SESSION) == ["user", *STEP * 4, "assistant"]
        await world.verify()
