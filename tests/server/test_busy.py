"""A session that is busy: wait, reject, interrupt, steer. And turns whose client has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.ids import TurnId
from holdfast.sessions.operations import StillRunning
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.server.stubs import Answer, HeldTool, Serving, agent, chat_body, serving, until


def answers() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


def held(gate: Gate, *, at: int = 1) -> ScriptedModel:
    """A model whose first answer is held in the middle; the others are given at once."""
    model = answers()
    model.will(says("Let me ", "think.").waiting(gate, at=at))
    return model


async def test_a_follow_up_waits_and_sees_what_the_first_one_said() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        second = asyncio.create_task(server.chat("two", to="trip"))
        await asyncio.sleep(0)
        gate.release()
        assert (await first).text == "Let me think."
        assert (await second).headers["x-conversation-base"] == "1"
    assert [each.content for each in model.messages(1)] == ["one", "Let me think.", "two"]


async def test_reject_is_a_409_that_says_when_to_come_back() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        second = await server.chat("two", to="trip", headers={"X-On-Busy": "reject"})
        gate.release()
        await first
    assert (second.status, second.error["code"]) == (409, "conversation_locked")
    assert second.headers["x-should-retry"] == "true"
    assert float(second.headers["retry-after"]) >= 1
    assert second.headers["x-conversation-id"] == "trip"


async def test_busy_can_be_said_as_the_hosted_service_says_it() -> None:
    """Some clients know a busy conversation by this answer and by no other."""
    gate = Gate()
    async with serving(agent(held(gate)), busy_status=400) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        second = await server.chat("two", to="trip", headers={"X-On-Busy": "reject"})
        gate.release()
        await first
    assert (second.status, second.error) == (
        400,
        {
            "message": "Another process is currently operating on this conversation. "
            "Please retry in a few seconds.",
            "type": "invalid_request_error",
            "param": "conversation",
            "code": "conversation_locked",
        },
    )
    assert second.headers["x-should-retry"] == "true"
    assert float(second.headers["retry-after"]) >= 1


async def test_too_many_waiters_are_a_409_too() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        many = [
            asyncio.create_task(server.chat("two", to="trip"))
            for _ in range(limits.lane_waiting_max + 1)
        ]
        done, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        gate.release()
        statuses = sorted([(await each).status for each in (first, *many)])
    assert [each.result().status for each in done] == [409]
    assert statuses == [200] * (limits.lane_waiting_max + 1) + [409]


async def test_interrupt_ends_the_running_turn_and_goes_next() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        second = await server.chat("two", to="trip", headers={"X-On-Busy": "interrupt"})
        cancelled = await first
    assert (cancelled.status, cancelled.error["code"]) == (409, "turn_cancelled")
    assert cancelled.headers["x-should-retry"] == "false"
    assert second.headers["x-conversation-base"] == "1"
    said = [str(each.content) for each in model.messages(1)]
    assert said[:2] == ["one", "Let me "] and said[-1] == "two"


async def test_steer_is_answered_by_the_turn_that_it_is_said_to() -> None:
    tool = HeldTool(read_only=True)
    model = answers()
    model.will(says(calls=[("act", "{}")]))
    async with serving(agent(model, tool)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await tool.begun.wait()
        second = asyncio.create_task(
            server.chat("also this", to="trip", headers={"X-On-Busy": "steer"})
        )
        await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        tool.let_go.set()
        one, two = await first, await second
    assert one.headers["x-turn-id"] == two.headers["x-turn-id"]
    assert one.text == two.text == "Yes."
    assert [each.content for each in model.messages(1)][-1] == "also this"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_steer_with_a_key_has_one_answer_however_often_it_is_sent(stream: bool) -> None:
    """While the turn runs, and after it has ended. The turn itself was begun without a key."""
    tool = HeldTool(read_only=True)
    model = answers()
    model.will(says(calls=[("act", "{}")]))
    steering = {"X-On-Busy": "steer", "Idempotency-Key": "k-1"}
    async with serving(agent(model, tool)) as server:

        async def steer(said: str = "also this") -> Answer:
            return await server.chat(said, to="trip", headers=steering, stream=stream)

        first = asyncio.create_task(server.chat("one", to="trip", stream=stream))
        await tool.begun.wait()
        during = [asyncio.create_task(steer())]
        await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        during.append(asyncio.create_task(steer()))
        tool.let_go.set()
        tries = [await each for each in (first, *during)] + [await steer()]
        other = await steer("something else")
        (turn,) = await server.turns("trip")
    assert {each.status for each in tries} == {200}
    assert {each.headers["x-turn-id"] for each in tries} == {turn["id"]}
    assert {each.streamed if stream else each.text for each in tries} == {"Yes."}
    assert [each.content for each in model.messages(1)].count("also this") == 1
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")


async def test_a_steer_with_a_key_that_was_never_heard_begins_its_own_turn() -> None:
    gate = Gate()
    model = held(gate)
    steering = {"X-On-Busy": "steer", "Idempotency-Key": "k-1"}
    async with serving(agent(model)) as server:
        first = asyncio.create_task(
            server.chat("one", to="trip", headers={"X-Turn-Policy": "cancel=keep"})
        )
        await gate.reached.wait()
        steered = asyncio.create_task(server.chat("also this", to="trip", headers=steering))
        await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        (running,) = await server.turns("trip")
        await server.request("POST", f"/api/turns/{running['id']}/cancel")
        cancelled, heard = await first, await steered
        again = await server.chat("also this", to="trip", headers=steering)
    assert cancelled.error["code"] == "turn_cancelled"
    assert heard.text == again.text == "Yes."
    assert heard.headers["x-turn-id"] == again.headers["x-turn-id"] != running["id"]


async def test_an_unknown_busy_policy_is_refused() -> None:
    async with serving(agent(answers())) as server:
        answer = await server.chat("one", to="trip", headers={"X-On-Busy": "shout"})
    assert (answer.status, answer.error["param"]) == (400, "x-on-busy")


async def test_concurrent_first_requests_make_one_session() -> None:
    async with serving(agent(answers())) as server:
        many = await asyncio.gather(*(server.chat(str(n), to="trip") for n in range(8)))
    assert {each.status for each in many} == {200}
    assert len({each.headers["x-session-id"] for each in many}) == 1
    assert sorted(each.headers["x-conversation-base"] for each in many) == list("01234567")
    assert sum("x-conversation-created" in each.headers for each in many) == 1


# ── policies ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["cancel=maybe", "nap=keep", "cancel", "cancel=finish"])
async def test_a_policy_that_does_not_exist_is_refused(policy: str) -> None:
    async with serving(agent(answers())) as server:
        answer = await server.chat("one", to="trip", headers={"X-Turn-Policy": policy})
    assert (answer.status, answer.error["code"]) == (400, "invalid_turn_policy")
    assert answer.error["param"] == "x-turn-policy"


async def test_the_nearest_policy_wins() -> None:
    """The server says keep, the agent says discard, the request says finish."""
    for headers, expected in [
        ({}, "discarded"),
        ({"X-Turn-Policy": "disconnect=keep"}, "committed"),
    ]:
        gate = Gate()
        speaker = agent(held(gate), policy=Policy(disconnect="discard"))
        async with serving(speaker, policy=Policy(disconnect="keep")) as server:
            turn = await left(server, gate, stream=True, headers=headers)
        assert turn["state"] == expected


# ── clients that go away ─────────────────────────────────────────────────────────────────────


async def left(
    server: Serving, gate: Gate, *, stream: bool, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Ask, go away in the middle of the answer, and say what became of the turn."""
    body = chat_body("one", stream=stream)
    async with aiohttp.ClientSession() as http:
        asked = asyncio.create_task(
            http.post(
                server.url + "/v1/chat/completions",
                data=body,
                headers={"X-Conversation-Id": "trip", **(headers or {})},
            )
        )
        await gate.reached.wait()
        if stream:
            (await asked).close()
        else:
            asked.cancel()
            await asyncio.wait({asked})
    (turn,) = await server.turns("trip")
    return await server.ended_turn(turn["id"])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_is_noticed_at_once_and_leaves_nothing(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its going, and not by what could not be said to it any more."""
    for silence in ("stream_patience_s", "heartbeat_s", "write_stall_s"):
        monkeypatch.setattr(limits, silence, 3600.0)
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        async with asyncio.timeout(60):
            turn = await left(server, gate, stream=stream)
        after = await server.chat("after", to="trip")
    assert (turn["state"], turn["ended_by"]) == ("discarded", "disconnected")
    assert model.left_early == 1
    assert after.status == 200
    assert [each.content for each in model.messages(1)] == ["after"]


async def test_a_turn_that_has_acted_is_kept_when_its_client_goes() -> None:
    tool = HeldTool()
    model = answers()
    model.will(says(calls=[("act", "{}")]))
    async with serving(agent(model, tool)) as server:
        gate = Gate()
        gate.reached = tool.begun
        turn = await left(server, gate, stream=False)
        items = await server.items("trip")
    assert (turn["state"], turn["ended_by"]) == ("committed", "disconnected")
    assert [each["outcome"] for each in items if each["type"] == "result"] == ["unknown"]


async def test_a_turn_with_a_key_is_finished_without_its_client() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        key = {"Idempotency-Key": "k"}
        asking = asyncio.create_task(left(server, gate, stream=False, headers=key))
        await gate.reached.wait()
        await until(
            lambda: (
                not (server.sessions._owner.playing and server.sessions._owner.playing[0]._clients)
            )
        )
        gate.release()
        turn = await asking
        again = await server.chat("one", to="trip", headers=key, stream=False)
    assert (turn["state"], turn["ended_by"]) == ("committed", "completed")
    assert again.text == "Let me think."
    assert len(model.prompts) == 1


async def test_a_client_that_goes_while_it_waits_leaves_the_lane() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        second = asyncio.create_task(server.chat("two", to="trip"))
        lane = next(iter(server.sessions._admissions._lanes._lanes.values()))
        await until(lambda: bool(lane.waiting))
        second.cancel()
        await until(lambda: not lane.waiting)
        gate.release()
        await first
        third = await server.chat("three", to="trip")
    assert third.headers["x-conversation-base"] == "1"
    assert [each.content for each in model.messages(1)] == ["one", "Let me think.", "three"]


# ── cancelling ───────────────────────────────────────────────────────────────────────────────


async def the_turn(server: Serving) -> str:
    """The turn that is being played."""
    (live,) = server.sessions._owner.playing
    return str(live.fence.turn_id)


async def test_a_waiting_client_of_a_cancelled_turn_gets_a_409() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip", headers={"Idempotency-Key": "k"}))
        await gate.reached.wait()
        turn_id = await the_turn(server)
        cancelled = await server.request("POST", f"/api/turns/{turn_id}/cancel")
        again = await server.request("POST", f"/api/turns/{turn_id}/cancel")
        answer = await first
        retried = await server.chat("one", to="trip", headers={"Idempotency-Key": "k"})
    assert (cancelled.status, cancelled.json["ended_by"]) == (200, "cancelled")
    assert (again.status, again.json) == (200, cancelled.json)
    for each in (answer, retried):
        assert (each.status, each.error["code"]) == (409, "turn_cancelled")
        assert each.headers["x-should-retry"] == "false"


async def test_a_stream_of_a_cancelled_turn_ends_with_that_error() -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:
        first = asyncio.create_task(server.chat("one", to="trip", stream=True))
        await gate.reached.wait()
        await server.request("POST", f"/api/turns/{await the_turn(server)}/cancel")
        answer = await first
        items = await server.items("trip")
    assert answer.status == 200
    assert answer.events[-1]["error"]["code"] == "turn_cancelled"
    assert b"[DONE]" not in answer.body
    assert [each["type"] for each in items] == ["user", "assistant", "interruption"]


async def test_a_turn_that_does_not_let_go_is_a_202_for_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    async with serving(agent(held(gate))) as server:

        async def ignored(tenant: object, turn_id: TurnId, **_: object) -> StillRunning:
            return StillRunning(turn_id=turn_id)

        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        monkeypatch.setattr(server.sessions.operations, "cancel", ignored)
        answer = await server.request("POST", f"/api/turns/{await the_turn(server)}/cancel")
        gate.release()
        assert (await first).status == 200
    assert (answer.status, answer.json["state"]) == (202, "open")


async def test_a_turn_that_ignores_a_cancel_is_taken_from_whoever_plays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "cancel_grace_s", 0.0)
    let_go, begun = asyncio.Event(), asyncio.Event()

    class Deaf(HeldTool):
        async def run(self, run: ToolRun) -> ToolOutput:
            begun.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            return ToolOutput(content=())

    model = answers()
    model.will(says(calls=[("act", "{}")]))
    async with serving(agent(model, Deaf())) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await begun.wait()
        answer = await server.request("POST", f"/api/turns/{await the_turn(server)}/cancel")
        let_go.set()
        waited = await first
    assert (answer.status, answer.json["ended_by"]) == (200, "cancelled")
    assert (waited.status, waited.error["code"]) == (409, "turn_cancelled")
