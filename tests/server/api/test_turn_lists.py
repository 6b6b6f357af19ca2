"""What goes on in all sessions: stuck first turns, calls that wait, turns that broke off or failed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast.core.history.conversation import Snapshot
from holdfast.errors import SessionDamaged
from holdfast.ids import SessionId, Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import SessionInfo
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import HeldTool, Serving, agent, serving
from tests.server.test_chat_approvals import careful


async def turns(server: Serving, state: str, more: str = "") -> list[dict[str, Any]]:
    answer = await server.get(f"/api/turns?state={state}{more}")
    found: list[dict[str, Any]] = answer.json["turns"]
    return found


async def test_a_stuck_first_turn_is_found_with_its_tool_and_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tool = HeldTool("dig")
    async with serving(agent(ScriptedModel(says(calls=[("dig", "{}")])), tool)) as server:
        asking = asyncio.create_task(server.chat("Dig", to="trip"))
        await tool.begun.wait()
        (stuck,) = (await server.get("/api/turns")).json["turns"]
        assert (await server.get("/api/sessions")).json["sessions"] == [], "it has no version yet"
        assert (stuck["state"], stuck["agent"], stuck["tool"]) == ("open", "root", "dig")
        assert stuck["session_key"] == "trip", "people know it by its key"
        assert stuck["node"] == server.sessions.lease.node and stuck["age_s"] >= 0
        with caplog.at_level(logging.INFO, logger="holdfast.audit"):
            stopped = await server.request("POST", f"/api/turns/{stuck['id']}/cancel")
        assert stopped.json["detail"] == "by a client without a key"
        assert await turns(server, "open") == []
        await asking
    assert [each.getMessage() for each in caplog.records] == ["turn.cancel"]


async def test_turns_that_broke_off_or_failed_are_found() -> None:
    act = HeldTool("act", held=False)
    model = ScriptedModel(
        "Fine.",
        fails(status=500),
        says(calls=[("act", "{}")]),
        fails(status=500),
        otherwise=lambda _: "More.",
    )
    async with serving(agent(model, act)) as server:
        await server.chat("1", to="fine")
        await server.chat("2", to="gone")
        await server.chat("3", to="kept")
        (kept,) = await turns(server, "unfinished")
        assert (kept["ended_by"], kept["state"]) == ("model_error", "committed")
        assert (kept["session_title"], kept["session_key"]) == ("3", "kept")
        failed = await turns(server, "failed")
        assert {each["state"] for each in failed} == {"committed", "discarded"}
        assert await turns(server, "failed", "&since=99999999999") == []
        assert len(await turns(server, "failed", "&limit=1")) == 1
        await server.request("POST", f"/api/turns/{kept['id']}/continue")
        await server.chat("4", to="kept")
        assert await turns(server, "unfinished") == []


async def test_what_waits_for_a_person_is_an_inbox() -> None:
    pay = HeldTool("pay", held=False)
    asks = says("May I?", calls=[("pay", '{"kr":5}')])
    model = ScriptedModel(asks, asks, "Fine.", otherwise=lambda _: "Very well.")
    async with serving(careful(model, pay), approve_in_chat="auto") as server:
        first = await server.chat("Pay", to="trip")
        response = (await server.respond("Pay")).json
        await server.chat("Hello", to="other")
        inbox = (await server.get("/api/approvals")).json["approvals"]
        assert {each["turn_id"] for each in inbox} == {
            first.headers["x-turn-id"],
            response["id"].replace("resp_", "turn_"),
        }
        assert {(each["name"], each["arguments"]) for each in inbox} == {("pay", '{"kr":5}')}
        assert {(each["session_title"], each["session_key"]) for each in inbox} == {
            ("Pay", "trip"),
            ("Pay", None),
        }
        assert len(await turns(server, "waiting")) == 2
        await server.request("POST", "/api/sessions/trip/fork")
        assert len(await turns(server, "waiting")) == 2, "a fork cannot use it"
        await server.chat("yes", to="trip")
        assert [
            each["turn_id"] for each in (await server.get("/api/approvals")).json["approvals"]
        ] == [response["id"].replace("resp_", "turn_")]


class PartlyDamaged(MemoryStore):
    """A store in which one session cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ""

    async def info(self, tenant: Tenant, session_id: SessionId) -> SessionInfo | None:
        if session_id == self.lost:
            raise SessionDamaged(session_id, "cut short")
        return await super().info(tenant, session_id)

    async def snapshot(
        self, tenant: Tenant, session_id: SessionId, *args: Any, **more: Any
    ) -> Snapshot | None:
        if session_id == self.lost:
            raise SessionDamaged(session_id, "cut short")
        return await super().snapshot(tenant, session_id, *args, **more)


async def test_a_request_on_damage_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The store tells of damage by an event, once; a traceback for each request would bury it."""
    store = PartlyDamaged()
    async with serving(agent(ScriptedModel(says("Hello"))), store=store) as server:
        await server.chat("Hi", to="lost")
        store.lost = (await server.get("/api/sessions/lost")).json["id"]
        refused = await server.get(f"/api/sessions/{store.lost}")
    assert (refused.status, refused.json["error"]["code"]) == (500, "conversation_damaged")
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
    await store.close()


async def test_a_damaged_session_leaves_the_lists_to_the_others() -> None:
    store = PartlyDamaged()
    asks = says("May I?", calls=[("pay", "{}")])
    server_of = careful(ScriptedModel(otherwise=lambda _: asks), HeldTool("pay"))
    async with serving(server_of, store=store) as server:
        for name in ("lost", "sound"):
            await server.chat("Pay", to=name)
        store.lost = (await server.get("/api/sessions/lost")).json["id"]
        inbox = (await server.get("/api/approvals")).json["approvals"]
        waiting = await turns(server, "waiting")
        sessions = (await server.get("/api/sessions?outcome=waiting")).json["sessions"]
    assert [each["session_key"] for each in inbox] == ["sound"]
    assert [each["session_key"] for each in waiting] == ["sound", None]
    assert [each["keys"] for each in sessions] == [["sound"]]
    await store.close()


async def test_no_tenant_sees_what_goes_on_at_another() -> None:
    store, gate = MemoryStore(), Gate()
    mine = bearer(await put_key(store, Tenant("acme"), "admin", nth=1))
    theirs = bearer(await put_key(store, Tenant("globex"), "admin", nth=2))
    async with serving(
        agent(ScriptedModel(says("a").waiting(gate, at=0))), store=store, auth="required"
    ) as server:
        asking = asyncio.create_task(server.chat("Hi", to="trip", headers=mine))
        await gate.reached.wait()
        own = await server.request("GET", "/api/turns", headers=mine)
        other = await server.request("GET", "/api/turns", headers=theirs)
        gate.release()
        await asking
        numbers = await server.request("GET", "/metrics", headers=mine)
    assert (len(own.json["turns"]), other.json["turns"]) == (1, [])
    assert numbers.status == 200, "admin includes metrics"
    await store.close()


async def test_a_parameter_that_a_route_of_ours_does_not_have_is_refused() -> None:
    async with serving(agent(ScriptedModel("Hi."))) as server:
        misspelt = await server.get("/api/turns?stat=open")
        wrong = await server.get("/api/turns?state=closed")
        late = await server.get("/api/turns?since=yesterday")
        theirs = await server.get("/v1/models?beta=true")
    assert (misspelt.status, misspelt.error["code"]) == (400, "unknown_parameter")
    assert misspelt.error["param"] == "stat" and "since" in misspelt.error["message"]
    assert {wrong.error["param"], late.error["param"]} == {"state", "since"}
    assert theirs.status == 200
