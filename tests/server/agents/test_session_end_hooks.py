"""`session_end` hooks: told once that a session was deleted, by whichever route, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from holdfast.tools.hooks import Hook, Hooks
from tests.server.stubs import agent, serving


def leaving(directory: Path, command: str = "cat >> log; echo >> log") -> Agent:
    made = agent(ScriptedModel(otherwise=lambda _: "Bye."))
    made.hooks = Hooks(
        every={"session_end": (Hook(command=command),)},
        directory=directory,
        environment={"PATH": "/usr/bin:/bin"},
    )
    return made


def told(directory: Path) -> list[dict[str, str]]:
    path = directory / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("route", ["/api/sessions/{}", "/v1/conversations/{}"])
async def test_a_session_that_is_deleted_has_ended(tmp_path: Path, route: str) -> None:
    async with serving(leaving(tmp_path)) as server:
        said = await server.chat("Hi", to="trip")
        session_id = said.headers["x-session-id"]
        await server.chat("Hi", to="other")
        for _ in range(2):  # deleting it again ends nothing
            await server.request("DELETE", route.format(session_id))
    (once,) = told(tmp_path)
    assert (once["hook_event_name"], once["session_id"]) == ("session_end", session_id)
    assert (once["agent_name"], once["reason"]) == ("root", "deleted")


async def test_nobody_is_told_of_a_conversation_in_which_nothing_was_said(tmp_path: Path) -> None:
    async with serving(leaving(tmp_path)) as server:
        made = await server.request("POST", "/v1/conversations", data=b"{}")
        gone = await server.request("DELETE", f"/v1/conversations/{made.json['id']}")
        assert gone.status == 200
    assert told(tmp_path) == []


@pytest.mark.parametrize("command", ["exit 1", "exit 2"])
async def test_it_has_no_say(tmp_path: Path, command: str) -> None:
    async with serving(leaving(tmp_path, command)) as server:
        await server.chat("Hi", to="trip")
        assert (await server.request("DELETE", "/api/sessions/trip")).status == 200
        assert (await server.get("/api/sessions/trip")).status in (404, 410)


async def test_the_log_says_once_that_it_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(leaving(tmp_path, "exit 1")) as server:
        for _ in range(3):
            await server.chat("Hi", to="trip")
            await server.request("DELETE", "/api/sessions/trip")
    told = [each.getMessage() for each in caplog.records if "session_end" in each.getMessage()]
    assert told == ["root: a session_end hook: it fails: ended with exit code 1"]


async def test_deleting_needs_no_agent(tmp_path: Path) -> None:
    """An agent that is not served any more is not told, and nothing is loaded for it."""
    store = MemoryStore()
    async with serving(leaving(tmp_path), store=store) as server:
        await server.chat("Hi", to="trip")
    stranger = agent(ScriptedModel(), name="stranger")
    async with serving(stranger, store=store) as server:
        assert (await server.request("DELETE", "/api/sessions/trip")).status == 200
    assert told(tmp_path) == []
    await store.close()
