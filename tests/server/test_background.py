"""Responses that nobody waits for: accepted at once, played as far as there is room, each of them once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Answer, Serving, agent, another, serving, until


async def status(server: Serving, name: str) -> str:
    found: str = (await server.get(f"/v1/responses/{name}")).json["status"]
    return found


async def queue(server: Serving, said: Any, **body: Any) -> str:
    answer = await server.respond(said, background=True, **body)
    assert answer.status == 200 and answer.json["status"] == "queued", answer.body
    name: str = answer.json["id"]
    return name


async def followed(server: Serving, name: str) -> list[Any]:
    return (await server.get(f"/v1/responses/{name}?stream=true")).named_events


async def cancel(server: Serving, name: str) -> Answer:
    return await server.request("POST", f"/v1/responses/{name}/cancel")


async def test_what_has_no_room_waits_and_is_played_in_order() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."), says("Three."))
    async with serving(agent(model), background_max=1) as server:
        first = await queue(server, "one")
        await gate.reached.wait()
        second, third = await queue(server, "two"), await queue(server, "three")
        assert [await status(server, each) for each in (first, second, third)] == [
            "in_progress",
            "queued",
            "queued",
        ]
        gate.release()
        events = [await followed(server, each) for each in (first, second, third)]
    assert [[m.content for m in model.messages(n)] for n in range(3)] == [
        ["one"],
        ["two"],
        ["three"],
    ]
    for each in events:
        names = [event["type"].removeprefix("response.") for event in each]
        assert names[:4] == ["created", "queued", "in_progress", "output_item.added"]
        assert [event["sequence_number"] for event in each] == list(range(len(each)))
        assert each[-1]["response"]["status"] == "completed"


async def test_a_stream_of_one_that_waits_says_so_and_goes_on_when_it_is_played() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."), says("Three."))
    async with serving(agent(model), background_max=1) as server:
        await queue(server, "one")
        await gate.reached.wait()
        second = await queue(server, "two")
        watching = asyncio.create_task(followed(server, second))
        streamed = asyncio.create_task(server.respond("three", background=True, stream=True))
        await until(lambda: server.sessions.load().turns == 1)
        gate.release()
        seen = await watching
        assert seen == await followed(server, second)
        assert (await streamed).named_events[-1]["response"]["status"] == "completed"
    assert len(model.prompts) == 3


async def test_whoever_comes_later_does_not_go_first() -> None:
    """A place that has just become free is for those who wait, however many come meanwhile."""
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), background_max=1) as server:
        names = [await queue(server, "0")]
        await gate.reached.wait()
        names.append(await queue(server, "1"))
        gate.release()
        names += [await queue(server, str(n)) for n in range(2, 12)]
        for name in names:
            assert (await followed(server, name))[-1]["response"]["status"] == "completed"
        assert not server.sessions._owner.others_wait
    heard = [model.messages(n)[-1].content for n in range(len(model.prompts))]
    assert heard == [str(n) for n in range(12)]


@pytest.mark.parametrize("times", [1, 3])
async def test_one_that_waits_is_cancelled_at_once_and_for_good(times: int) -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."))
    async with serving(agent(model), background_max=1) as server:
        first = await queue(server, "one")
        await gate.reached.wait()
        second = await queue(server, "two")
        answers = await asyncio.gather(*(cancel(server, second) for _ in range(times)))
        assert {(each.status, each.json["status"]) for each in answers} == {(200, "cancelled")}
        names = [each["type"] for each in await followed(server, second)]
        assert names == ["response.created", "response.queued", "response.failed"]
        gate.release()
        assert (await followed(server, first))[-1]["response"]["status"] == "completed"
        assert (await cancel(server, first)).json["status"] == "completed"
        assert await status(server, second) == "cancelled"
        assert (await cancel(server, another(second))).status == 404
    assert len(model.prompts) == 1


async def test_no_tenant_is_kept_waiting_by_anothers_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tenants with 500 each filled the queue for everybody, and one with long turns all the room."""
    monkeypatch.setattr(limits, "background_queued_max", 2)
    store, gate = MemoryStore(), Gate()
    acme, rival = await put_key(store), await put_key(store, Tenant("rival"), nth=2)
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), store=store, auth="required", background_max=1) as server:
        await queue(server, "one", headers=bearer(rival))
        await gate.reached.wait()
        for each in ("two", "three"):
            await queue(server, each, headers=bearer(rival))
        full = await server.respond("four", background=True, headers=bearer(rival))
        assert (full.status, full.error["code"]) == (503, "background_queue_full")
        ours = await queue(server, "five", headers=bearer(acme))
        async with asyncio.timeout(10):
            path = f"/v1/responses/{ours}?stream=true"
            answer = await server.request("GET", path, headers=bearer(acme))
        assert answer.named_events[-1]["response"]["status"] == "completed"
        gate.release()


async def test_more_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), background_max=1) as server:
        await queue(server, "one")
        await gate.reached.wait()
        keyed = {"Idempotency-Key": "k"}
        second = await queue(server, "two", headers=keyed)
        for name, status, code in (
            ("background_queued_tenant_max", 429, "concurrency_limit_exceeded"),
            ("background_queued_max", 503, "background_queue_full"),
        ):
            with monkeypatch.context() as context:
                context.setattr(limits, name, 1)
                refused = await server.respond("three", background=True)
                assert (refused.status, refused.error["code"]) == (status, code)
                assert refused.headers["x-should-retry"] == "true"
                assert (await server.respond("four")).status == 200
                again = await server.respond("two", background=True, headers=keyed)
                assert (again.json["id"], again.json["status"]) == (second, "queued")
        gate.release()
        assert (await followed(server, second))[-1]["response"]["status"] == "completed"


async def test_whoever_needs_a_conversation_has_what_waits_in_it_played_first() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."), says("Three."))
    async with serving(agent(model), background_max=1) as server:
        await queue(server, "one")
        await gate.reached.wait()
        trip = {"X-Conversation-Id": "trip"}
        await queue(server, "two", headers={**trip, "X-Turn-Policy": "crash=discard"})
        answer = await server.chat("three", to="trip")
        assert answer.text == "Three."
        gate.release()
    assert [each.content for each in model.messages(2)] == ["two", "Two.", "three"]


async def test_what_waits_is_played_by_the_next_server_on_the_store() -> None:
    store, gate = MemoryStore(), Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), store=store, background_max=1) as server:
        first = await queue(server, "one")
        await gate.reached.wait()
        second = await queue(server, "two", headers={"X-Turn-Policy": "crash=discard"})
    async with serving(agent(model), store=store) as server:
        for name in (first, second):
            assert (await followed(server, name))[-1]["response"]["status"] == "completed"
    await store.close()


async def test_one_that_could_not_be_handed_over_is_queued_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is durable by then: telling its client to come back would play it twice."""
    monkeypatch.setattr(limits, "store_retry_s", 0.0)
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."))
    async with serving(agent(model), background_max=1) as server:
        await queue(server, "one")
        await gate.reached.wait()
        with monkeypatch.context() as context:
            context.setattr(server.sessions.store, "release", _away)
            second = await queue(server, "two")
        gate.release()
        assert (await followed(server, second))[-1]["response"]["status"] == "completed"
    assert len(model.prompts) == 2


async def _away(fence: object) -> None:
    raise StoreUnavailable("away")
