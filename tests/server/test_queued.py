"""Background responses for a conversation that is busy: queued at once, played when it is free."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import limits
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.stubs import Answer, Serving, agent, serving, until

TRIP = {"X-Conversation-Id": "trip"}


async def queue(server: Serving, said: Any, *, headers: dict[str, str] | None = None) -> str:
    answer = await server.respond(said, background=True, headers={**TRIP, **(headers or {})})
    assert (answer.status, answer.json["status"]) == (200, "queued"), answer.body
    assert answer.headers["x-session-id"]
    assert "x-conversation-base" not in answer.headers
    name: str = answer.json["id"]
    return name


async def status(server: Serving, name: str) -> str:
    found: str = (await server.get(f"/v1/responses/{name}")).json["status"]
    return found


async def followed(server: Serving, name: str) -> list[Any]:
    return (await server.get(f"/v1/responses/{name}?stream=true")).named_events


async def cancel(server: Serving, name: str) -> Answer:
    return await server.request("POST", f"/v1/responses/{name}/cancel")


def turn_of(name: str) -> str:
    return name.replace("resp_", "turn_")


async def test_it_is_queued_then_in_progress_then_completed() -> None:
    first, second = Gate(), Gate()
    model = ScriptedModel(says("One.").waiting(first, at=0), says("Two.").waiting(second, at=1))
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await first.reached.wait()
        name = await queue(server, "two")
        assert await status(server, name) == "queued"
        shown = (await server.get(f"/api/turns/{turn_of(name)}")).json
        assert (shown["state"], shown["ended_by"]) == ("queued", None)
        assert [each["state"] for each in await server.turns("trip")] == ["queued", "open"]

        following = asyncio.create_task(followed(server, name))
        first.release()
        assert (await talking).text == "One."
        await second.reached.wait()
        assert await status(server, name) == "in_progress"
        second.release()
        events = await following
        assert await status(server, name) == "completed"
        assert events == await followed(server, name)
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[:4] == ["created", "queued", "in_progress", "output_item.added"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [each.content for each in model.messages(1)] == ["one", "One.", "two"]


async def test_a_stream_says_that_it_waits_and_goes_on() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."))
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        streaming = asyncio.create_task(
            server.respond("two", background=True, stream=True, headers=TRIP)
        )
        await until(lambda: bool(server.sessions._owner.waited_for))
        gate.release()
        await talking
        events = (await streaming).named_events
    assert [each["type"] for each in events[:2]] == ["response.created", "response.queued"]
    assert events[-1]["response"]["status"] == "completed"


async def test_it_is_cancelled_at_once_and_leaves_nothing() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Three."))
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        name = await queue(server, "two", headers={"Idempotency-Key": "k"})
        answers = await asyncio.gather(*(cancel(server, name) for _ in range(3)))
        assert {(each.status, each.json["status"]) for each in answers} == {(200, "cancelled")}
        again = await server.respond(
            "two", background=True, headers={**TRIP, "Idempotency-Key": "k"}
        )
        assert (again.json["id"], again.json["status"]) == (name, "cancelled")
        by_turn = await server.request("POST", f"/api/turns/{turn_of(name)}/cancel")
        assert by_turn.json["state"] == "discarded"
        gate.release()
        await talking
        assert (await server.chat("three", to="trip")).text == "Three."
    assert [each.content for each in model.messages(1)] == ["one", "One.", "three"]


async def test_a_keyed_retry_joins_it() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."))
    keyed = {"Idempotency-Key": "k"}
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        name = await queue(server, "two", headers=keyed)
        again = await server.respond("two", background=True, headers={**TRIP, **keyed})
        assert (again.json["id"], again.json["status"]) == (name, "queued")
        other = await server.respond("no", background=True, headers={**TRIP, **keyed})
        assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
        gate.release()
        await talking
        assert (await followed(server, name))[-1]["response"]["status"] == "completed"
    assert len(model.prompts) == 2


async def test_deleting_the_conversation_ends_it() -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0))
    keyed = {"Idempotency-Key": "k"}
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        name = await queue(server, "two", headers=keyed)
        await server.request("DELETE", "/api/sessions/trip")
        gate.release()
        await talking
        shown = (await server.get(f"/api/turns/{turn_of(name)}")).json
        assert (shown["state"], shown["ended_by"]) == ("discarded", "deleted")
        again = await server.respond("two", background=True, headers={**TRIP, **keyed})
        assert again.status == 410


@pytest.mark.parametrize("said", ["reject", "interrupt"])
async def test_what_is_said_about_a_busy_conversation_is_heeded(said: str) -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), says("Two."))
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        if said == "reject":
            headers = {**TRIP, "X-On-Busy": said}
            answer = await server.respond("two", background=True, headers=headers)
            assert (answer.status, answer.error["code"]) == (409, "conversation_locked")
            gate.release()
            assert (await talking).text == "One."
        else:
            name = await queue(server, "two", headers={"X-On-Busy": said})
            assert (await talking).error["code"] == "turn_cancelled"
            assert (await followed(server, name))[-1]["response"]["status"] == "completed"


async def test_more_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        name = await queue(server, "two")
        for limit, code_status in (
            ("background_queued_tenant_max", (429, "concurrency_limit_exceeded")),
            ("background_queued_max", (503, "background_queue_full")),
        ):
            with monkeypatch.context() as context:
                context.setattr(limits, limit, 1)
                refused = await server.respond("three", background=True, headers=TRIP)
                assert (refused.status, refused.error["code"]) == code_status
                free = {"X-Conversation-Id": "free"}
                assert (await server.respond("four", background=True, headers=free)).status == 200
        gate.release()
        await talking
        assert (await followed(server, name))[-1]["response"]["status"] == "completed"


async def test_the_next_server_on_the_store_plays_it() -> None:
    store, gate = MemoryStore(), Gate()
    model = ScriptedModel(says("One.").waiting(gate, at=0), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), store=store) as server:
        talking = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        name = await queue(server, "two")
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    async with serving(agent(model), store=store) as server:
        assert (await followed(server, name))[-1]["response"]["status"] == "completed"
    await store.close()


async def test_results_that_somebody_else_has_brought_meanwhile_are_told_so() -> None:
    """It answers a call; whoever was before it has answered that one."""
    gate = Gate()
    tool = {"type": "function", "name": "locate", "parameters": {"type": "object"}}
    model = ScriptedModel(
        says(calls=[("locate", "{}")]), says("Here.").waiting(gate, at=0), says("No.")
    )
    async with serving(agent(model)) as server:
        asked = await server.respond("where?", headers=TRIP, tools=[tool])
        (call,) = [each for each in asked.json["output"] if each["type"] == "function_call"]
        result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "Oslo"}]
        first = asyncio.create_task(server.respond(result, headers=TRIP, tools=[tool]))
        await gate.reached.wait()
        name = await queue(server, result)
        gate.release()
        assert (await first).status == 200
        last = (await followed(server, name))[-1]["response"]
        assert (last["status"], last["error"]["code"]) == ("failed", "invalid_prompt")
        assert "answered while it waited" in last["error"]["message"]
        turn = (await server.get(f"/api/turns/{turn_of(name)}")).json
        assert (turn["ended_by"], turn["state"]) == ("superseded", "discarded")
    assert len(model.prompts) == 2
