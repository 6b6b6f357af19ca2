"""Calls that wait for an approval, as forms of the client: in both revisions, on any server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.testing import ScriptedModel, says
from tests.server.mcp.peer import ELICITS, PREVIOUS, RpcPeer
from tests.server.stubs import HeldTool, Serving, serving
from tests.server.test_chat_approvals import careful

ACCEPT: dict[str, Any] = {"action": "accept", "content": {"anything": 1}}
DECLINE = {"action": "decline"}


@asynccontextmanager
async def asking(*calls: str) -> AsyncIterator[tuple[Serving, HeldTool]]:
    tool = HeldTool("pay", held=False)
    wanted = [("pay", each, f"call_{n}") for n, each in enumerate(calls or ("{}",))]
    model = ScriptedModel(says("May I?", calls=wanted), says("Done."), says("Done again."))
    async with serving(careful(model, tool)) as server:
        yield server, tool


@pytest.mark.parametrize(("reply", "runs"), [(ACCEPT, 1), (DECLINE, 0), ({"action": "cancel"}, 0)])
async def test_a_form_decides_about_a_call(reply: dict[str, Any], runs: int) -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS)
        asked = await peer.tool("pay", conversation="trip")
        assert asked["resultType"] == "input_required"
        form = asked["inputRequests"]["pay"]["params"]
        assert "This call has not run" in form["message"]
        assert form["requestedSchema"]["properties"] == {}
        told = {"inputResponses": {"pay": reply}, "requestState": asked["requestState"]}
        answer = await peer.tool("pay", conversation="trip", **told)
        assert answer["structuredContent"]["answer"] == "Done."
        assert tool.runs == runs
        again = await peer.tool("pay", conversation="trip", **told)
        assert (again["structuredContent"], tool.runs) == (answer["structuredContent"], runs)


async def test_a_second_decision_about_a_call_is_refused() -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS)
        state = (await peer.tool("pay"))["requestState"]
        await peer.tool("pay", requestState=state, inputResponses={"pay": DECLINE})
        other = await peer.tool("pay", requestState=state, inputResponses={"pay": ACCEPT})
        assert other["_meta"]["holdfast/problem"]["code"] == "idempotency_key_reused"
        assert tool.runs == 0


async def test_only_the_question_that_was_asked_can_be_answered() -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS)
        params: dict[str, Any] = {"name": "root", "arguments": {"message": "pay"}}
        asked = await peer.call("tools/call", **params, inputResponses={"pay": ACCEPT})
        assert asked["resultType"] == "input_required"  # an answer before the question is none
        state = asked["requestState"]
        again = await peer.call(
            "tools/call", **params, requestState=state, inputResponses={"other": ACCEPT}
        )
        assert again["inputRequests"] == asked["inputRequests"]
        wrong = {"inputResponses": {"pay": ACCEPT}, "requestState": state + "-x"}
        assert (await peer.fault("tools/call", **params, **wrong))[1]["code"] == -32602
        odd = {"inputResponses": {"pay": 7}, "requestState": state}
        assert (await peer.fault("tools/call", **params, **odd))[1]["code"] == -32602
        assert tool.runs == 0


async def test_several_calls_are_decided_in_one_form() -> None:
    async with asking('{"kr":1}', '{"kr":2}') as (server, tool):
        peer = RpcPeer(server, ELICITS)
        asked = await peer.tool("pay")
        (name, question), *_ = asked["inputRequests"].items()
        first, second = question["params"]["requestedSchema"]["properties"]
        reply = {"action": "accept", "content": {first: True, second: "yes"}}
        await peer.tool("pay", requestState=asked["requestState"], inputResponses={name: reply})
        assert tool.runs == 1


async def test_a_client_without_forms_reads_the_question() -> None:
    async with asking() as (server, _):
        answer = await RpcPeer(server).tool("pay")
        told = answer["structuredContent"]
        assert told["status"] == "waiting_for_approval"
        assert "This call has not run" in told["answer"]


@pytest.mark.parametrize(("reply", "runs"), [(ACCEPT, 1), (DECLINE, 0)])
async def test_a_client_before_2026_is_asked_on_its_stream_and_may_answer_to_any_server(
    reply: dict[str, Any], runs: int
) -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS, revision=PREVIOUS)
        await peer.initialize()
        async with _streamed(peer, "pay") as events:
            asked = await anext(events)
            assert asked["method"] == "elicitation/create"
            said = {"jsonrpc": "2.0", "id": asked["id"], "result": reply}
            assert (await peer.send(said)).status == 202
            answer = await anext(events)
        assert answer["result"]["structuredContent"]["answer"] == "May I?\n\nDone."
        assert tool.runs == runs
        assert (await peer.send(said)).status == 202  # told again, it changes nothing
        assert tool.runs == runs


async def test_a_stream_goes_on_when_the_decision_is_made_elsewhere() -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS, revision=PREVIOUS)
        await peer.initialize()
        async with _streamed(peer, "pay") as events:
            turn_id = (await anext(events))["id"]
            path = f"/api/turns/{turn_id}/approvals"
            (call,) = (await server.get(path)).json["approvals"]
            decided = msgspec.json.encode({"decisions": {call["id"]: {"approve": True}}})
            assert (await server.request("POST", path, data=decided)).status == 202
            answer = await anext(events)
        assert answer["result"]["structuredContent"]["status"] == "completed"
        assert tool.runs == 1


async def test_a_stream_ends_when_something_else_is_said_meanwhile() -> None:
    async with asking() as (server, tool):
        peer = RpcPeer(server, ELICITS, revision=PREVIOUS)
        await peer.initialize()
        async with _streamed(peer, "pay") as events:
            await anext(events)
            await server.chat("never mind", to="trip")
            answer = await anext(events)
        assert answer["result"]["structuredContent"]["answer"].startswith("May I?")
        assert tool.runs == 0


@asynccontextmanager
async def _streamed(peer: RpcPeer, said: str) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a call, as they come."""
    message = {
        "jsonrpc": "2.0",
        "id": "call",
        "method": "tools/call",
        "params": {"name": "root", "arguments": {"message": said, "conversation": "trip"}},
    }
    async with (
        asyncio.timeout(30),
        peer.server.http.post(
            f"{peer.server.url}/mcp", json=message, headers=peer.headers
        ) as response,
    ):

        async def events() -> AsyncIterator[Any]:
            async for line in response.content:
                if line.startswith(b"data: "):
                    yield msgspec.json.decode(line.removeprefix(b"data: "))

        yield events()
