"""What an operator sees: numbers without names, a log with names and without secrets, and who did what."""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import tool
from holdfast.core.turns.events import Usage
from holdfast.errors import StoreUnavailable
from holdfast.ids import Tenant
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import FakeUpstream, Gate, ScriptedModel, fails, says
from tests.observe.test_events import Log, log
from tests.server.access.test_authentication import _lose, bearer, put_key
from tests.server.stubs import Answer, Serving, agent, another, serving, until
from tests.server.test_busy import held

__all__ = ["log"]

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


async def numbers(server: Serving) -> dict[str, float]:
    """All samples, by name and labels as they are written."""
    return read(await server.get("/metrics"))


def read(answer: Answer) -> dict[str, float]:
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.body.decode())
    return {
        f"{each.name}{each.labels or ''}": each.value
        for family in families
        for each in family.samples
    }


async def test_turns_are_counted_by_how_they_ended() -> None:
    used = Usage(input_tokens=7, output_tokens=3, cost_micros=5_000)
    store = MemoryStore()
    model = ScriptedModel(says("Yes.", usage=used), otherwise=lambda _: "Yes.")
    async with serving(agent(model), store=store) as server:
        once = {"Idempotency-Key": "k"}
        for _ in range(2):
            await server.chat("Hi", to="a", headers=once)
        await server.chat("Hi", to="b", stream=True)
        _lose(store)
        await server.chat("Hi", to="b", headers={"x-stainless-retry-count": "1"}, stream=True)
        await server.chat("Hi")
        model.will(fails(status=400))
        await server.chat("Hi", to="b")
        await server.chat("Hi", model="nobody")
        found = await numbers(server)
    turns = "holdfast_turns_total{'ended_by': %r, 'fate': %r}"
    assert found[turns % ("completed", "committed")] == 3
    assert found[turns % ("model_error", "discarded")] == 1
    admitted = {
        how: found[f"holdfast_admissions_total{{'how': '{how}'}}"]
        for how in ("began", "stateless", "joined", "replayed", "recognised", "steered")
    }
    assert admitted == {
        "began": 3,
        "stateless": 1,
        "joined": 0,
        "replayed": 1,
        "recognised": 1,
        "steered": 0,
    }
    chat = "holdfast_requests_total{'route': 'POST /v1/chat/completions', 'status': '%d'}"
    assert (found[chat % 404], found[chat % 200]) == (1, 5)
    assert found["holdfast_turn_seconds_count"] == 4
    assert found["holdfast_commit_seconds_count"] == 4
    assert found["holdfast_first_words_seconds_count"] == 2
    assert found["holdfast_tokens_total{'kind': 'input'}"] == 7
    assert found["holdfast_tokens_total{'kind': 'output'}"] == 3
    assert found["holdfast_cost_total"] == 0.005


@tool(read_only=True)
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_models_and_tools_are_counted_by_name() -> None:
    used = Usage(input_tokens=7, output_tokens=3, cost_micros=5_000)
    model = ScriptedModel(says("", calls=[("add", '{"a": 1, "b": 2}')], usage=used), "Three.")
    async with serving(agent(model, add)) as server:
        await server.chat("What is 1 + 2?", to="a")
        model.will(fails(status=400))
        await server.chat("And 3?", to="a")
        found = await numbers(server)
    answers = (
        "holdfast_model_answers_total"
        "{'agent': 'root', 'model': 'model', 'outcome': %r, 'provider': 'scripted'}"
    )
    assert (found[answers % "answered"], found[answers % "failed"]) == (2, 1)
    about = "'model': 'model', 'provider': 'scripted'}"
    assert found[f"holdfast_model_tokens_total{{'agent': 'root', 'kind': 'input', {about}"] == 7
    assert found[f"holdfast_model_cost_total{{'agent': 'root', {about}"] == 0.005
    assert found["holdfast_tool_calls_total{'agent': 'root', 'outcome': 'ok', 'tool': 'add'}"] == 1
    assert found["holdfast_agent_turns_total{'agent': 'root', 'ended_by': 'completed'}"] == 1
    assert found["holdfast_store_sessions"] == 1 and found["holdfast_store_bytes"] > 0


async def test_a_store_that_does_not_answer_leaves_the_other_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()

    async def fail() -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "stats", fail)
    async with serving(agent(ScriptedModel()), store=store) as server:
        found = await numbers(server)
    assert found["holdfast_turns_running"] == 0
    assert "holdfast_store_bytes" not in found


async def test_the_last_warnings_can_be_read_over_the_api_without_secrets() -> None:
    async with serving(agent(ScriptedModel())) as server:
        for n in range(300):
            logging.getLogger("holdfast.test").warning("it fails: %d, sk-%s", n, "x" * 20)
        answer = await server.get("/api/log")
    records = answer.json["records"]
    assert len(records) == 200
    assert (records[0]["level"], records[0]["words"]) == ("warning", "it fails: 299, …")


async def test_what_is_going_on_can_be_seen_while_it_does() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip", stream=True))
        await gate.reached.wait()
        busy = await numbers(server)
        gate.release()
        await first
        idle = await numbers(server)
    names = ("holdfast_turns_running", "holdfast_lanes", "holdfast_watchers")
    assert [busy[name] for name in names] == [1, 1, 1]
    assert [idle[name] for name in names] == [0, 0, 0]
    assert idle["holdfast_lease_live"] == 1


async def test_no_number_has_an_id_or_a_name_that_a_client_chose() -> None:
    async with serving(agent(ScriptedModel(otherwise=lambda _: "Yes."))) as server:
        await server.chat("Hi", to="SECRETNAME")
        await server.get("/api/sessions/SECRETNAME")
        await server.get("/api/SECRETNAME")
        await server.request("SECRETNAME", "/v1/models")
        body = (await server.get("/metrics")).body.decode()
    assert "SECRETNAME" not in body
    assert not re.search(r"\b(conv|turn|req|key|node)_[0-9a-z]{24}", body)


async def test_metrics_need_a_key_with_their_scope_once_there_are_keys() -> None:
    store = MemoryStore()
    talker, admin, watcher = [
        await put_key(store, Tenant("ops"), scope, nth=n)
        for n, scope in enumerate(("chat", "admin", "metrics"), start=1)
    ]
    async with serving(agent(ScriptedModel()), store=store, auth="auto") as server:
        asked = [
            await server.request("GET", "/metrics", headers=bearer(key))
            for key in (talker, admin, watcher)
        ]
        other = await server.request("GET", "/api/sessions", headers=bearer(watcher))
    assert [each.status for each in asked] == [403, 200, 200] and other.status == 403


# ── the log ──────────────────────────────────────────────────────────────────────────────────


async def test_a_socket_and_each_request_over_it_have_names_of_their_own_in_the_log(
    log: Log,
) -> None:
    async with serving(agent(ScriptedModel("One.", "Two."))) as server:
        async with server.http.ws_connect(f"{server.url}/v1/responses") as socket:
            for said in ("one", "two"):
                await socket.send_json({"type": "response.create", "model": "root", "input": said})
                while "response.completed" not in (await socket.receive()).data[:60]:
                    pass
            opened = socket._response.headers["x-request-id"]
        await until(lambda: any(each.get("status") == 101 for each in log.lines))
    lines = [each for each in log.lines if each["event"] == "request.answered"]
    assert [(each["route"], each["status"]) for each in lines] == [
        ("MESSAGE /v1/responses", 200),
        ("MESSAGE /v1/responses", 200),
        ("GET /v1/responses", 101),
    ]
    names = [each["request"] for each in lines]
    assert len(set(names)) == 3 and names[-1] == opened


async def test_a_turn_can_be_followed_through_the_log_by_its_request_and_trace(log: Log) -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        answer = await server.chat("Hi", to="trip", headers=TRACED)
    mine = [each for each in log.lines if each.get("request") == answer.headers["x-request-id"]]
    assert {each["event"] for each in mine} == {"turn.began", "turn.ended", "request.answered"}
    assert {each["trace"] for each in mine} == {TRACE}
    turns = {each.get("turn") for each in mine if str(each["event"]).startswith("turn.")}
    assert turns == {answer.headers["x-turn-id"]}


async def test_every_decision_about_a_turn_is_one_event(log: Log) -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        turn = (await server.get("/api/sessions/trip")).json["open_turn"]
        busy = await server.chat("two", to="trip", headers={"X-On-Busy": "reject"})
        await server.request("POST", f"/api/turns/{turn}/cancel")
        await first
        await server.chat(" ", to="trip")
    mine = [
        (each["event"], each.get("code") or each.get("kind") or each.get("fate"))
        for each in log.lines
        if str(each["event"]).startswith("turn.")
    ]
    assert mine == [
        ("turn.began", None),
        ("turn.refused", "conversation_locked"),
        ("turn.signalled", "cancel"),
        ("turn.ended", "committed"),
        ("turn.cancel", None),  # in the audit log
        ("turn.refused", "no_new_user_message"),
    ]
    (refused,) = [each for each in log.lines if each.get("code") == "conversation_locked"][:1]
    assert refused["request"] == busy.headers["x-request-id"]


async def test_a_turn_that_failed_leaves_its_code_in_the_log(log: Log) -> None:
    model = ScriptedModel(fails(status=503), fails(status=503))
    async with serving(agent(model)) as server:
        answers = [await server.chat("Hi", to="trip", stream=stream) for stream in (False, True)]
    (code, *_) = {each.error["code"] for each in answers[:1]}
    lines = [each for each in log.lines if each["event"] == "request.answered"]
    assert [each["code"] for each in lines] == [code, code]


async def test_a_trace_goes_on_to_the_model_and_nothing_does_without_one() -> None:
    async with FakeUpstream("Hello.", "Hello.") as upstream:
        model = OpenAIModel("gpt-5", base_url=f"{upstream.url}/v1")
        async with serving(agent(model)) as server:
            await server.chat("Hi", to="a", headers=TRACED)
            await server.chat("Hi", to="b")
        await model.close()
    told = [each.headers.get("traceparent", "") for each in upstream.requests]
    assert told[0].startswith(f"00-{TRACE}-") and told[0] != TRACED["traceparent"]
    assert told[1] == ""


async def test_no_secret_is_in_the_log_whatever_goes_wrong(log: Log) -> None:
    store = MemoryStore()
    good, bad = await put_key(store, nth=1), await put_key(store, Tenant("b"), "read", nth=2)
    await store.revoke_api_key(bad.key_id)

    def broken(_: object) -> str:
        raise RuntimeError(f"could not use {good}")

    async with serving(agent(ScriptedModel(otherwise=broken)), store=store, auth="auto") as server:
        for key in (good, bad, another(str(good))):
            await server.chat("Hi", to="trip", headers=bearer(key))
            await server.request("GET", f"/api/sessions/{key}?key={key}", headers=bearer(key))
            await server.request("GET", "/v1/models", headers={"Authorization": f"Basic {key}"})
    assert len(log.lines) > 9
    assert good.secret not in log.text and bad.secret not in log.text
    assert str(good.key_id) in log.text


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("DELETE", "/api/sessions/trip", "session.delete"),
        ("GET", "/api/sessions/trip/export", "session.export"),
        ("POST", "/api/sessions/import", "session.import"),
        ("POST", f"/api/turns/turn_{'0' * 26}/approvals", "approval.decide"),
    ],
)
async def test_who_did_what_is_audited_also_if_it_failed(
    log: Log, method: str, path: str, action: str
) -> None:
    store = MemoryStore()
    key = await put_key(store, Tenant("acme"), "admin")
    async with serving(
        agent(ScriptedModel(otherwise=lambda _: "Yes.")), store=store, auth="auto"
    ) as server:
        await server.chat("Hi", to="trip", headers=bearer(key))
        data = msgspec.json.encode({"decisions": {}}) if "approvals" in path else None
        answer = await server.request(method, path, headers=bearer(key), data=data)
    (line,) = [each for each in log.lines if each["log"] == "holdfast.audit"]
    assert (line["event"], line["tenant"], line["key"]) == (action, "acme", str(key.key_id))
    assert (line["status"], line["request"]) == (answer.status, answer.headers["x-request-id"])
    if "trip" in path:
        assert line["about"] == "trip"


async def test_whoever_was_not_let_in_has_no_name_in_the_log(log: Log) -> None:
    store = MemoryStore()
    await put_key(store)
    async with serving(agent(ScriptedModel()), store=store, auth="auto") as server:
        await server.request("DELETE", "/api/sessions/trip")
    lines = [each for each in log.lines if each["event"] in ("request.answered", "session.delete")]
    assert [(each["status"], each["tenant"], each["key"]) for each in lines] == [
        (401, None, None),
        (401, None, None),
    ]
