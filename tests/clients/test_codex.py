"""Codex, with a task that takes a command: over HTTP, where it tells everything again with each request, and over a
WebSocket, where it sends what is new and nothing is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.testing import Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.clients.catalogue import CODEX
from tests.clients.programs import installed, run
from tests.e2e.world import World
from tests.e2e.world import world as new_world

pytestmark = [pytest.mark.slow, pytest.mark.clients]

CONFIG = """
model = "root"
model_provider = "holdfast"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.holdfast]
name = "Holdfast"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = {socket}
"""

TASK = "Make a file made.txt that says hello."


def respond(request: UpstreamRequest) -> Script | str:
    """Ask for a command, then say that it was done."""
    if request.json["messages"][-1]["role"] == "tool":
        return "All done."
    return says("On it.", calls=[("exec_command", json.dumps({"cmd": "echo hello > made.txt"}))])


async def codex(world: World, home: Path, *, socket: bool) -> str:
    config = CONFIG.format(url=world.url, socket=str(socket).lower())
    (home / "config.toml").write_text(config)
    work = home / "work"
    work.mkdir()
    program = CODEX.folder / "node_modules/@openai/codex/bin/codex.js"
    runner = await installed(CODEX.runner)
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    command = [runner[0], str(program), "exec", *options, TASK]
    return await run(command, home=work, CODEX_HOME=str(home))


@pytest.mark.parametrize("socket", [False, True], ids=["http", "websocket"])
async def test_codex_does_what_it_is_told_and_asks_twice(tmp_path: Path, socket: bool) -> None:
    """A client that retries what did not fail would ask for ever."""
    async with new_world(tmp_path, respond=respond) as world:
        await world.start()
        home = tmp_path / "codex"
        home.mkdir()
        said = await codex(world, home, socket=socket)
        assert (home / "work" / "made.txt").read_text() == "hello\n"
        assert said.strip().endswith("All done.")
        assert len(world.upstream.requests) == 2
        told = [each["content"] for each in world.upstream.requests[1].json["messages"]]
        assert any(TASK in str(each) for each in told)
        listed = await world.request("GET", "/api/sessions?anonymous=true")
        assert listed.json["sessions"] == []
