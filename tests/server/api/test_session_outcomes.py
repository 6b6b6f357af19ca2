"""How sessions stand: running, waiting, broken off, failed; which are forks; and what today has cost."""

from __future__ import annotations

import asyncio
import base64
import time
from functools import partial

import msgspec

from holdfast.core.turns.events import Usage
from holdfast.ids import Minter, SessionId, Tenant, TurnId, Version
from holdfast.server.api.costs import CostsApi
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import TurnRow
from holdfast.testing import ScriptedModel, fails, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, Serving, agent, serving
from tests.store.builders import ACME

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(70_000)).decode()


async def standing(server: Serving, more: str = "") -> dict[str, str]:
    found = (await server.get(f"/api/sessions?outcomes=true{more}")).json["sessions"]
    return {each["keys"][0] if each["keys"] else "fork": each["outcome"] for each in found}


async def test_a_list_says_how_each_session_stands() -> None:
    act, hold = HeldTool("act", held=False), HeldTool("hold")
    breaks = (says(calls=[("act", "{}")]), fails(status=500))
    model = ScriptedModel(
        "Fine.", *breaks, "Well.", fails(status=500), "Well.", says(calls=[("hold", "{}")])
    )
    async with serving(agent(model, act, hold)) as server:
        await server.chat("1", to="fine")
        await server.chat("2", to="broken")
        await server.chat("3", to="failing")
        await server.chat("4", to="failing")
        await server.chat("5", to="busy")
        running = asyncio.create_task(server.chat("6", to="busy"))
        await hold.begun.wait()
        expected = {"fine": "done", "broken": "unfinished", "failing": "failed", "busy": "running"}
        assert await standing(server) == expected
        assert set(await standing(server, "&outcome=failed")) == {"broken", "failing"}
        assert set(await standing(server, "&outcome=unfinished")) == {"broken"}
        assert await standing(server, "&outcome=failed&agent=nobody") == {}
        assert set(await standing(server, "&outcome=failed&key_prefix=fa")) == {"failing"}
        assert await standing(server, "&outcome=failed&busy=true") == {}
        assert await standing(server, "&q=3") == {"failing": "failed"}
        assert await standing(server, "&q=3&outcome=failed") == {"failing": "failed"}
        assert await standing(server, "&q=3&outcome=waiting") == {}
        plain = (await server.get("/api/sessions")).json["sessions"]
        assert all("outcome" not in each for each in plain), "nobody else pays for it"
        assert (await server.get("/api/sessions?outcome=odd")).status == 400
        hold.let_go.set()
        await running


async def test_a_decision_says_who_made_it_and_when_and_a_fork_of_what_it_is_one() -> None:
    store, pay = MemoryStore(), HeldTool("pay", held=False)
    key = await put_key(store, Tenant("acme"), "admin", nth=1)
    model = ScriptedModel(says("May I?", calls=[("pay", "{}")]), "Paid.")
    async with serving(careful(model, pay), store=store, auth="required") as server:
        asked = await server.chat("Pay", to="trip", headers=bearer(key))
        listing = "/api/sessions?outcomes=true&outcome=waiting"
        (waits,) = (await server.request("GET", listing, headers=bearer(key))).json["sessions"]
        assert waits["outcome"] == "waiting" and waits["forked_from"] is None
        path = f"/api/turns/{asked.headers['x-turn-id']}/approvals"
        (call,) = (await server.request("GET", path, headers=bearer(key))).json["approvals"]
        decision = msgspec.json.encode({"decisions": {call["id"]: {"approve": True}}})
        headers = {**bearer(key), "idempotency-key": "once"}
        begun = await server.request("POST", path, data=decision, headers=headers)
        again = await server.request("POST", path, data=decision, headers=headers)
        assert again.json["id"] == begun.json["id"]
        await server.request("GET", f"/api/turns/{begun.json['id']}/events", headers=bearer(key))
        shown = await server.request("GET", "/api/sessions/trip/history", headers=bearer(key))
        (flag,) = shown.json["annotations"]["flags"]
        verdict, by, at_ms = flag["value"].split()
        me = (await server.request("GET", "/api/me", headers=bearer(key))).json
        assert (flag["item"], flag["name"]) == (call["id"], "approvals.decided")
        assert (verdict, by) == ("approved", me["key"]) and int(at_ms) > 1e12
        fork = await server.request("POST", "/api/sessions/trip/fork", headers=bearer(key))
        assert fork.json["forked_from"] == waits["id"]


async def test_today_is_added_up_by_agent_once_and_after_a_restart_too() -> None:
    store = MemoryStore()
    used = Usage(input_tokens=10, output_tokens=5, cost_micros=7)
    said = says("Yes.", usage=used)
    async with serving(agent(ScriptedModel(said, said)), store=store) as server:
        await server.chat("1", to="a")
        first = (await server.get("/api/costs")).json
        await server.chat("2", to="a")
        second = (await server.get("/api/costs")).json
    hold = HeldTool("hold")
    late = ScriptedModel(says(calls=[("hold", "{}")], usage=used), "Done.")
    async with serving(agent(late, hold), store=store) as server:
        assert (await server.get("/api/costs")).json == second
        running = asyncio.create_task(server.chat("3", to="b"))
        await hold.begun.wait()
        assert (await server.get("/api/costs")).json == second, "it has not ended"
        hold.let_go.set()
        await running
        third = (await server.get("/api/costs")).json
    assert first["since"] % 86_400 == 0 and first["whole"]
    found = [each["agents"][0]["usage"]["cost_micros"] for each in (first, second, third)]
    assert found == [7, 14, 21]
    assert third["agents"][0]["turns"] == 3 and third["agents"][0]["agent"] == "root"


class LateTurns(MemoryStore):
    """A store with these turns alone."""

    rows: tuple[TurnRow, ...] = ()

    async def recent_turns(  # type: ignore[override]
        self, tenant: Tenant, *, before: TurnId | None = None, limit: int
    ) -> tuple[TurnRow, ...]:
        found = sorted(self.rows, key=lambda each: each.turn_id, reverse=True)
        return tuple(each for each in found if before is None or each.turn_id < before)[:limit]


async def test_a_turn_is_counted_once_whatever_appears_and_disappears_around_it() -> None:
    """Nodes mint ids by their own clocks, and a turn appears after others that were minted later."""
    now_ms = time.time_ns() // 1_000_000
    minters = (
        Minter(now_ms=partial(int, now_ms + at_ms), random_bits=lambda bits: 7)
        for at_ms in (-9, -6, -3, 90_000_000)
    )
    early, middle, late, future = (
        TurnRow(
            tenant=ACME,
            turn_id=each(TurnId),
            session_id=each(SessionId),
            base_head=Version(0),
            state="committed",
        )
        for each in minters
    )
    store = LateTurns()
    costs = CostsApi(store)
    for rows, turns in (
        ((middle, late), 2),
        ((early, middle), 3),  # one came late, and the last one is gone
        ((early, middle, future), 4),
        ((early, middle, late, future), 4),
    ):
        store.rows = rows
        day = await costs._today(ACME)
        assert [number for number, _ in day.agents.values()] == [turns]


async def test_numbers_have_a_past_and_pictures_their_bytes() -> None:
    async with serving(agent(ScriptedModel("A cat."))) as server:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        await server.chat({"role": "user", "content": [picture]}, to="trip")
        (item,) = [each for each in await server.items("trip") if each["type"] == "user"]
        digest = item["content"][0]["source"]["digest"]
        there = await server.get(f"/api/sessions/trip/blobs/{digest}")
        assert there.body == base64.b64decode(PICTURE)
        assert there.headers["content-disposition"] == "attachment"
        gone = await server.get(f"/api/sessions/trip/blobs/{digest[:-4]}0000")
        assert (gone.status, gone.error["code"]) == (404, "blob_not_found")
        numbers = (await server.get("/api/numbers")).json
        assert numbers["samples"][-1]["ends"] == {"completed": 1}
        assert len(numbers["samples"][-1]["commit"]) == len(numbers["bounds_s"]) + 1
