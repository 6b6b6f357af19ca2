"""Sessions find their agents at another address, on another machine, or are moved by a person. Promises 8, 11, 13."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.config import TenantAgents
from holdfast.ids import Tenant
from holdfast.models.demo.demo_model import DemoModel
from holdfast.server.agents.source_directory import load_directory
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Answer, Serving, agent, serving

TEAM = "agents: {root: {model: demo/parrot, handoffs: [helper]}, helper: {model: demo/parrot}}\n"
ALONE = "agents: {clerk: {model: demo/parrot}}\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in (("team", TEAM), ("alone", ALONE)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@asynccontextmanager
async def from_files(
    *sources: str, store: MemoryStore, tenants: TenantAgents | None = None, **how: Any
) -> AsyncIterator[Serving]:
    directory = await load_directory(
        sources,
        make_model=lambda config: DemoModel(pace_s=0),
        tenants=tenants or TenantAgents(),
    )
    try:
        async with serving(directory=directory, store=store, **how) as server:
            yield server
    finally:
        await directory.close()


async def post(
    server: Serving, path: str, headers: dict[str, str] | None = None, **body: Any
) -> Answer:
    return await server.request("POST", path, headers=headers, data=msgspec.json.encode(body))


async def rebind(
    server: Serving, name: str, model: str, headers: dict[str, str] | None = None
) -> Answer:
    return await post(server, f"/api/sessions/{name}/rebind", headers, model=model)


async def test_a_session_whose_source_is_gone_is_moved_by_the_command_in_its_refusal(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with from_files(f"shop={files / 'team.yaml'}", store=store) as server:
        await server.chat("Hi", to="trip", model="root")
        before = await server.items("trip")
        shown = (await server.get("/api/sessions/trip")).json
    assert shown["source"] == "shop"
    async with from_files(str(files / "alone.yaml"), store=store) as server:
        refused = await server.chat("Hi", to="trip", model="clerk")
        with caplog.at_level(logging.INFO, "holdfast.audit"):
            moved = await rebind(server, "trip", "clerk")
        assert await server.items("trip") == before
        answer = await server.chat("Hi", to="trip", model="clerk")
        again = await rebind(server, "trip", "clerk")
    assert (refused.status, refused.error["code"]) == (409, "agent_not_found")
    assert f"`holdfast sessions rebind {shown['id']} --to clerk`" in refused.error["message"]
    assert (moved.status, moved.json["source"], moved.json["version"]) == (200, "alone.yaml", 1)
    assert (answer.status, again.status) == (200, 200)
    (line,) = [each for each in caplog.records if each.getMessage() == "session.rebind"]
    fields = vars(line)["fields"]
    assert (fields["about"], fields["source"], fields["to"]) == (shown["id"], "shop", "alone.yaml")


async def test_all_sessions_of_a_source_are_moved_together(files: Path) -> None:
    store = MemoryStore()
    async with from_files(str(files), store=store) as server:
        for name in ("a", "b"):
            await server.chat("Hi", to=name, model="root")
        await server.chat("Hi", to="c", model="clerk")
        await server.respond("Hi", model="root")
        move: dict[str, Any] = {"source": "team.yaml", "model": "clerk"}
        first = await post(server, "/api/sessions/rebind", **move)
        second = await post(server, "/api/sessions/rebind", **move)
        unnamed = await post(server, "/api/sessions/rebind", **move, anonymous=True)
        listed = (await server.get("/api/sessions")).json["sessions"]
        answer = await server.chat("Hi", to="a", model="clerk")
    assert (len(first.json["rebound"]), len(unnamed.json["rebound"])) == (2, 1)
    assert second.json == {"rebound": [], "busy": [], "cursor": None}
    assert {each["source"] for each in listed} == {"alone.yaml"}
    assert answer.status == 200


async def test_a_session_keeps_its_agent_where_the_new_source_has_it(files: Path) -> None:
    store = MemoryStore()
    (files / "next").mkdir()
    (files / "next" / "crew.yaml").write_text(TEAM)
    async with from_files(str(files / "team.yaml"), store=store) as server:
        await server.chat("Hi", to="trip", model="helper")
    async with from_files(str(files / "next"), store=store) as server:
        await rebind(server, "trip", "root")
        answer = await server.chat("Hi", to="trip", model="helper")
        (turn, *_) = await server.turns("trip")
    assert (answer.status, turn["agent"]) == (200, "helper")


async def test_only_the_operator_of_a_tenant_moves_its_sessions_and_only_to_its_agents(
    files: Path,
) -> None:
    store, ours, rival = MemoryStore(), Tenant("ours"), Tenant("rival")
    allowed = TenantAgents(rules=(("ours", ("root", "helper")), ("rival", ("clerk",))))
    chats = await put_key(store, ours, "chat", "read", nth=1)
    admin = await put_key(store, ours, "admin", nth=2)
    other = await put_key(store, rival, "admin", nth=3)
    async with from_files(str(files), store=store, tenants=allowed, auth="required") as server:
        begun = await server.chat("Hi", to="trip", model="root", headers=bearer(chats))
        name = begun.headers["x-session-id"]
        answers = [
            await rebind(server, name, "helper", headers=bearer(chats)),
            await rebind(server, name, "clerk", headers=bearer(admin)),
            await rebind(server, name, "clerk", headers=bearer(other)),
            await rebind(server, name, "root", headers=bearer(admin)),
        ]
        move: dict[str, Any] = {"source": "team.yaml", "model": "clerk"}
        every = await post(server, "/api/sessions/rebind", bearer(other), **move)
        shown = await server.request("GET", f"/api/sessions/{name}", headers=bearer(admin))
    assert [each.status for each in answers] == [403, 404, 404, 200]
    assert "clerk" not in answers[1].error["message"].partition("there are")[2]
    assert every.json["rebound"] == []
    assert shown.json["source"] == "team.yaml"


async def test_a_running_turn_ends_with_the_agents_that_it_began_with() -> None:
    gate = Gate()
    model = ScriptedModel(says("One."), says("Two.").waiting(gate, at=0))
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        talking = asyncio.create_task(server.chat("two", to="trip"))
        await gate.reached.wait()
        refused = await rebind(server, "trip", "root")
        gate.release()
        assert (await talking).text == "Two."
    assert (refused.status, refused.error["code"]) == (409, "conversation_locked")


async def test_an_export_goes_on_on_another_machine(files: Path, tmp_path: Path) -> None:
    here, there = MemoryStore(), MemoryStore()
    (tmp_path / "elsewhere").mkdir()
    for old, new in (("team", "crew"), ("alone", "alone")):
        (files / f"{old}.yaml").rename(tmp_path / "elsewhere" / f"{new}.yaml")
        (files / f"{old}.yaml").write_text(TEAM if old == "team" else ALONE)
    async with from_files(f"bot={files / 'team.yaml'}", str(files / "alone.yaml"), store=here) as a:
        await a.chat("Hi", to="named", model="root")
        await a.chat("Hi", to="plain", model="clerk")
        exports = [await a.get(f"/api/sessions/{name}/export") for name in ("named", "plain")]
    elsewhere = tmp_path / "elsewhere"
    async with from_files(
        f"bot={elsewhere / 'crew.yaml'}", str(elsewhere / "alone.yaml"), store=there
    ) as b:
        for export in exports:
            assert str(files).encode() not in export.body
            await b.request("POST", "/api/sessions/import", data=export.body)
        answers = [
            await b.chat("Hi", to=name, model=model)
            for name, model in (("named", "root"), ("plain", "clerk"))
        ]
    assert [each.status for each in answers] == [200, 200], answers[0].body
