"""`/api`, and the questions that load balancers ask."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.agents.agent import Agent
from holdfast.core.turns.events import Usage
from holdfast.models.price import Price
from holdfast.models.usage import MeteredModel
from holdfast.testing import Gate, ScriptedModel, says
from tests.loop.stage import task
from tests.server.stubs import Serving, agent, serving, until
from tests.server.test_busy import held, the_turn


def answers() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


async def post(server: Serving, path: str, **body: Any) -> Any:
    return await server.request("POST", path, data=msgspec.json.encode(body))


async def test_agents_are_listed() -> None:
    async with serving(agent(answers()), agent(answers(), name="helper")) as server:
        answer = await server.get("/api/agents")
    assert [each["id"] for each in answer.json["agents"]] == ["root", "helper"]


async def test_sessions_are_listed_and_found_by_key_and_by_id() -> None:
    async with serving(agent(answers())) as server:
        for name in ("a", "b", "c"):
            await server.chat(f"about {name}", to=name)
        page = await server.get("/api/sessions?limit=2")
        rest = await server.get(f"/api/sessions?limit=2&cursor={page.json['cursor']}")
        by_key = await server.get("/api/sessions/b")
        by_id = await server.get(f"/api/sessions/{by_key.json['id']}")
    assert [each["keys"] for each in page.json["sessions"]] == [["c"], ["b"]]
    assert [each["keys"] for each in rest.json["sessions"]] == [["a"]]
    assert rest.json["cursor"] is None
    assert by_key.json == by_id.json
    assert by_key.json["title"] == "about b"
    assert by_key.json["version"] == 1
    assert by_key.headers["etag"] == '"1"'


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/sessions/unknown", 404, "conversation_not_found"),
        ("/api/sessions/unknown/items", 404, "conversation_not_found"),
        ("/api/sessions/unknown/turns", 404, "conversation_not_found"),
        ("/api/sessions/conv_" + "0" * 26, 404, "conversation_not_found"),
        ("/api/sessions/conv_bad", 400, "invalid_conversation_key"),
        ("/api/sessions?limit=0", 400, "invalid_value"),
        ("/api/sessions?limit=x", 400, "invalid_value"),
        ("/api/sessions?limit=%C2%B2", 400, "invalid_value"),  # a digit to Python, and no number
        ("/api/sessions?busy=yes", 400, "invalid_value"),
        ("/api/sessions?anonymous=1", 400, "invalid_value"),
        ("/api/sessions?cursor=%3F%3F", 400, "invalid_cursor"),
        ("/api/turns/turn_" + "0" * 26, 404, "turn_not_found"),
        ("/api/turns/what", 404, "turn_not_found"),
        ("/api/turns/turn_" + "0" * 26 + "/events", 404, "turn_not_found"),
    ],
)
async def test_what_is_not_there_or_cannot_be_is_said(path: str, status: int, code: str) -> None:
    async with serving(agent(answers())) as server:
        answer = await server.get(path)
    assert (answer.status, answer.error["code"]) == (status, code)


async def test_a_session_can_be_titled_and_given_attributes() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("one", to="trip")
        answer = await server.request(
            "PATCH",
            "/api/sessions/trip",
            data=b'{"title":"Oslo","attributes":{"colour":"red","size":"s"}}',
        )
        less = await server.request(
            "PATCH", "/api/sessions/trip", data=b'{"attributes":{"size":null}}'
        )
        long = await server.request(
            "PATCH",
            "/api/sessions/trip",
            data=msgspec.json.encode({"attributes": {"x": "y" * 600}}),
        )
        odd = await server.request("PATCH", "/api/sessions/trip", data=b'{"colour":"red"}')
    assert answer.json["title"] == "Oslo"
    assert less.json["attributes"] == {"colour": "red"}
    assert (long.status, long.error["param"]) == (400, "attributes")
    assert odd.status == 400


async def test_a_deleted_session_is_gone_and_its_key_is_free() -> None:
    async with serving(agent(answers())) as server:
        first = await server.chat("one", to="trip")
        session_id = first.headers["x-session-id"]
        deleted = await server.request("DELETE", "/api/sessions/trip")
        by_id = await server.get(f"/api/sessions/{session_id}")
        said_to = await server.chat("two", to=session_id)
        again = await server.chat("two", to="trip")
    assert deleted.json == {"id": session_id, "deleted": True}
    assert (by_id.status, by_id.error["code"]) == (410, "conversation_gone")
    assert (said_to.status, said_to.error["code"]) == (410, "conversation_gone")
    assert again.headers["x-session-id"] != session_id


async def test_deleting_a_session_ends_its_open_turn() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        await server.request("DELETE", "/api/sessions/trip")
        answer = await first
    assert (answer.status, answer.error["code"]) == (410, "conversation_gone")


async def test_a_session_can_be_forked_rewound_and_reset() -> None:
    model = answers()
    async with serving(agent(model)) as server:
        first = await server.chat("one", to="trip")
        await server.chat("two", to="trip")
        fork = await post(server, "/api/sessions/trip/fork", version=1)
        await server.chat("three", to=fork.json["id"])
        rewound = await post(server, "/api/sessions/trip/rewind", version=1)
        await server.chat("four", to="trip")
        reset = await server.request("POST", "/api/sessions/trip/reset")
        await server.chat("five", to="trip")
        old = await server.items(first.headers["x-session-id"])
        unnamed = await post(server, "/api/sessions/trip/rewind")
        by_id = await post(server, f"/api/sessions/{first.headers['x-session-id']}/reset")
        beyond = await post(server, "/api/sessions/trip/fork", version=99)
    assert [each.content for each in model.messages(2)] == ["one", "Yes.", "three"]
    assert [each.content for each in model.messages(3)] == ["one", "Yes.", "four"]
    assert [each.content for each in model.messages(4)] == ["five"]
    assert (
        len({first.headers["x-session-id"], *(e.json["id"] for e in (fork, rewound, reset))}) == 4
    )
    assert len(old) == 4
    assert (unnamed.status, by_id.status, beyond.status) == (400, 400, 404)


async def test_items_and_turns_of_a_session() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("one", to="trip")
        items = await server.items("trip")
        (turn,) = await server.turns("trip")
        found = await server.get(f"/api/turns/{turn['id']}")
        listed = await server.get("/api/sessions/trip/turns")
    assert [each["type"] for each in items] == ["user", "assistant"]
    assert found.json == turn
    assert (turn["state"], turn["ended_by"], turn["version"]) == ("committed", "completed", 1)
    assert listed.json["usage"] == turn["usage"]
    assert turn["usage"]["cost_micros"] == 0, "nobody said what it costs"


async def test_a_session_costs_what_its_turns_cost() -> None:
    used = Usage(input_tokens=100, output_tokens=10)
    price = Price(input=Decimal(3), output=Decimal("0.5"))
    model = MeteredModel(ScriptedModel(says("a", usage=used), says("b", usage=used)), price)
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        await server.chat("two", to="trip")
        costs = [turn["usage"]["cost_micros"] for turn in await server.turns("trip")]
        listed = await server.get("/api/sessions/trip/turns")
    assert costs == [305, 305]
    assert listed.json["usage"]["cost_micros"] == 610
    assert listed.json["usage"]["input_tokens"] == 200


async def test_a_turn_costs_what_its_sub_agents_cost_too() -> None:
    """Each by the price of its own model; the sum is that of whole numbers."""
    used = Usage(input_tokens=100, output_tokens=10)
    root = ScriptedModel(says(calls=[task("scout")], usage=used), says("Quiet.", usage=used))
    scout = ScriptedModel(says("All quiet.", usage=used))
    dear = Price(input=Decimal(3), output=Decimal(15))
    cheap = Price(input=Decimal("0.15"), output=Decimal("0.6"))
    async with serving(
        Agent("root", MeteredModel(root, dear), sub_agents=("scout",)),
        Agent("scout", MeteredModel(scout, cheap)),
    ) as server:
        await server.chat("Is it?", to="trip")
        (turn,) = await server.turns("trip")
    assert turn["usage"]["cost_micros"] == 450 + 450 + 21


async def test_events_are_numbered_and_can_be_resumed() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        turn_id = await the_turn(server)
        watching = asyncio.create_task(server.get(f"/api/turns/{turn_id}/events"))
        gate.release()
        await first
        *events, last = (await watching).events
        middle = events[2]["n"]
        *later, end = (
            await server.get(f"/api/turns/{turn_id}/events?starting_after={middle}")
        ).events
        odd = await server.get(f"/api/turns/{turn_id}/events?starting_after=x")
    assert [each["n"] for each in events] == list(range(len(events)))
    assert later == events[3:]
    assert last == end and last["turn"]["state"] == "committed"
    assert (odd.status, odd.error["param"]) == (400, "starting_after")


async def test_a_watcher_that_leaves_changes_nothing() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        path = f"{server.url}/api/turns/{await the_turn(server)}/events"
        async with server.http.get(path) as response:
            await response.content.readany()
        gate.release()
        assert (await first).status == 200


async def test_an_unknown_turn_cannot_be_cancelled() -> None:
    async with serving(agent(answers())) as server:
        answer = await server.request("POST", f"/api/turns/turn_{'0' * 26}/cancel")
    assert (answer.status, answer.error["code"]) == (404, "turn_not_found")


async def test_a_task_that_fails_is_shown_and_does_not_turn_requests_away() -> None:
    async def fail() -> None:
        raise ValueError("a mistake of ours")

    async with serving(agent(answers())) as server:
        supervisor = server.sessions.supervisor
        failing = supervisor.keep("sources", fail)
        await until(lambda: bool(supervisor.failing))
        ready = await server.get("/readyz")
        metrics = (await server.get("/metrics")).body.decode()
        await supervisor.stop(failing)
        assert (await server.get("/readyz")).json == {"status": "ready"}
    assert (ready.status, ready.json) == (200, {"status": "ready", "failing": ["sources"]})
    assert 'holdfast_task_failures_total{task="sources"} 1.0' in metrics
    assert 'holdfast_task_failures_total{task="heart"} 0.0' in metrics
    assert "holdfast_tasks_failing 1.0" in metrics


async def test_health_and_readiness() -> None:
    async with serving(agent(answers())) as server:
        assert (await server.get("/healthz")).status == 200
        assert (await server.request("HEAD", "/healthz")).status == 200
        assert (await server.get("/readyz")).status == 200
        live_until = server.sessions.lease._live_until
        server.sessions.lease._live_until = float("-inf")
        lost = await server.get("/readyz")
        server.sessions.lease._live_until = live_until
        server.app.drain()
        draining = await server.get("/readyz")
    assert (draining.status, draining.json) == (503, {"status": "draining"})
    assert lost.status == 503 and "store" in lost.json["status"]


# ── stopping ─────────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_stops_lets_answers_finish_and_begins_nothing() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip", stream=True))
        await gate.reached.wait()
        waiting = asyncio.create_task(server.chat("two", to="trip"))
        lane = next(iter(server.sessions._admissions._lanes._lanes.values()))
        await until(lambda: bool(lane.waiting))
        server.server.stop()
        await until(lambda: server.sessions._owner._draining)
        gate.release()
        answer, refused = await first, await waiting
    assert answer.streamed == "Let me think."
    assert refused.status == 503 and refused.headers["x-should-retry"] == "true"


async def test_a_server_in_a_hurry_ends_turns_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "drain_grace_s", 0.05)
    monkeypatch.setattr(limits, "ending_grace_s", 0.5)
    gate = Gate()
    model = ScriptedModel(otherwise=lambda prompt: says("Let me ", "think.").waiting(gate, at=1))
    async with serving(agent(model)) as server:
        streams = [
            asyncio.create_task(server.chat("one", to="trip", stream=True)),
            asyncio.create_task(server.chat("one", stream=True)),
            asyncio.create_task(server.chat("one", to="other", headers={"Idempotency-Key": "k"})),
        ]
        await until(lambda: model.speaking >= 3)
        server.server.stop()
        named, stateless, keyed = [await each for each in streams]
    for each in (named, stateless):
        assert each.events[-1]["error"]["code"] == "server_shutting_down"
        assert "Nothing was stored" in each.events[-1]["error"]["message"]
    assert (keyed.status, keyed.error["code"]) == (503, "server_shutting_down")
    assert keyed.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("items_max", [None, 2, 4, 100])
async def test_the_models_view_is_what_the_model_is_sent(items_max: int | None) -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    made = agent(model)
    made.history_items_max = items_max
    async with serving(made) as server:
        for n in range(5):
            await server.chat(f"Question {n}", to="trip")
        answer = await server.get("/api/sessions/trip/items?view=model")
        everything = await server.get("/api/sessions/trip/items")
        await server.chat("The last", to="trip")
    *sent, _ = [each.content for each in model.messages(-1) if each.role != "system"]
    shown = [each["content"][0]["text"] for each in answer.json["items"]]
    assert shown == sent
    assert len(everything.json["items"]) == 10
