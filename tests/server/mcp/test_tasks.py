"""Tasks: calls that their clients come back for, in both revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import limits
from holdfast.models.model import ModelFailed
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.mcp.peer import ELICITS, PREVIOUS, TASKS, RpcPeer
from tests.server.stubs import HeldTool, Serving, agent, serving, until
from tests.server.test_chat_approvals import careful


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is a task at once, unless it is answered already."""
    monkeypatch.setattr(limits, "mcp_task_after_s", 0.0)


@pytest.fixture
async def held() -> AsyncIterator[tuple[Serving, Gate]]:
    gate = Gate()
    model = ScriptedModel(says("one", " two").waiting(gate, at=1), says("three"))
    async with serving(agent(model)) as server:
        yield server, gate


async def ended(peer: RpcPeer, task_id: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while (task := await peer.call("tasks/get", taskId=task_id))["status"] == "working":
            pass
    return task


async def test_a_call_that_takes_its_time_is_a_task(held: tuple[Serving, Gate]) -> None:
    server, gate = held
    peer = RpcPeer(server, TASKS)
    begun = await peer.tool("hello", conversation="trip")
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    assert begun["ttlMs"] > 0 and begun["createdAt"].endswith("+00:00")
    working = await peer.call("tasks/get", taskId=begun["taskId"])
    assert working["status"] == "working" and "result" not in working
    gate.release()
    task = await ended(peer, begun["taskId"])
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"]["answer"] == "one two"


async def test_the_same_key_leads_to_the_same_task(held: tuple[Serving, Gate]) -> None:
    server, gate = held
    peer = RpcPeer(server, TASKS)
    first = await peer.tool("hello", conversation="trip", key="7d8f")
    assert (await peer.tool("hello", conversation="trip", key="7d8f"))["taskId"] == first["taskId"]
    gate.release()
    await ended(peer, first["taskId"])
    assert len(await server.turns("trip")) == 1


async def test_a_task_can_be_cancelled_and_cancelling_it_again_changes_nothing(
    held: tuple[Serving, Gate],
) -> None:
    server, gate = held
    peer = RpcPeer(server, TASKS)
    task_id = (await peer.tool("hello", conversation="trip"))["taskId"]
    await gate.reached.wait()
    for _ in range(2):
        assert "status" not in await peer.call("tasks/cancel", taskId=task_id)
    assert (await ended(peer, task_id))["status"] == "cancelled"
    assert (await server.turns("trip"))[0]["ended_by"] == "cancelled"


async def test_a_task_of_another_tenant_or_none_is_unknown(held: tuple[Serving, Gate]) -> None:
    peer = RpcPeer(held[0], TASKS)
    for task_id in ("nonsense", "turn_0000000000000000000000000a"):
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            status, error = await peer.fault(method, taskId=task_id)
            assert (status, error["code"]) == (400, -32602)


async def test_only_a_client_that_declares_tasks_gets_and_asks_for_one() -> None:
    async with serving(agent(ScriptedModel(says("one")))) as server:
        peer = RpcPeer(server)
        assert (await peer.tool("hello", task={}))["content"][0]["text"] == "one"
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            status, error = await peer.fault(method, taskId="turn_0000000000000000000000000a")
            assert (status, error["code"]) == (400, -32021)
            assert error["data"]["requiredCapabilities"] == TASKS


async def test_a_failed_turn_is_a_completed_task_and_a_bug_of_ours_a_failed_one() -> None:
    class Broken(ScriptedModel):
        def stream(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("a bug")

    failing = ScriptedModel(says("x").failing(ModelFailed("out of order"), at=0))
    both = agent(failing), agent(Broken(), name="broken")
    async with serving(*both) as server:
        peer = RpcPeer(server, TASKS)
        task = await _task(peer, await peer.tool("hello"))
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        task = await _task(peer, await peer.tool("hello", name="broken"))
        assert task["status"] == "failed" and "result" not in task
        assert task["error"]["data"] == {"code": "internal_error"}


async def _task(peer: RpcPeer, result: dict[str, Any]) -> dict[str, Any]:
    return await ended(peer, result["taskId"])


async def test_a_task_waits_for_the_decision_of_its_clients_user() -> None:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(says("May I?", calls=[("pay", "{}")]), says("Done."))
    async with serving(careful(model, tool)) as server:
        peer = RpcPeer(server, {**TASKS, **ELICITS})
        task_id = (await peer.tool("pay"))["taskId"]
        asked = await ended(peer, task_id)
        assert asked["status"] == "input_required"
        assert asked["inputRequests"]["pay"]["method"] == "elicitation/create"
        for answers in ({"other": {"action": "accept"}}, {"pay": {"action": "accept"}}):
            await peer.call("tasks/update", taskId=task_id, inputResponses=answers)
        await until(lambda: tool.runs == 1)
        done = await ended(peer, task_id)
        assert done["result"]["structuredContent"]["answer"] == "May I?\n\nDone."
        await peer.call(
            "tasks/update", taskId=task_id, inputResponses={"pay": {"action": "decline"}}
        )
        assert await ended(peer, task_id) == done


async def test_a_client_before_2026_asks_for_a_task_and_waits_for_its_result(
    held: tuple[Serving, Gate],
) -> None:
    server, gate = held
    peer = RpcPeer(server, revision=PREVIOUS)
    begun = (await peer.tool("hello", conversation="trip", task={"ttl": 1000}))["task"]
    assert (begun["status"], begun["pollInterval"] > 0) == ("working", True)
    waiting = asyncio.create_task(peer.call("tasks/result", taskId=begun["taskId"]))
    gate.release()
    told = await waiting
    assert told["content"][0]["text"] == "one two"
    related = told["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": begun["taskId"]}
    task = await peer.call("tasks/get", taskId=begun["taskId"])
    assert task["status"] == "completed" and "result" not in task
    assert (await peer.fault("tasks/cancel", taskId=begun["taskId"]))[1]["code"] == -32602
    second = await peer.tool("again", conversation="trip", task={})
    assert second["task"]["status"] == "working"


async def test_a_client_that_leaves_before_it_knows_its_task_leaves_no_turn_running(
    held: tuple[Serving, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "mcp_task_after_s", 60.0)
    server, gate = held
    calling = asyncio.create_task(RpcPeer(server, TASKS).tool("hello", conversation="trip"))
    await gate.reached.wait()
    calling.cancel()
    turn = await server.ended_turn((await server.turns("trip"))[0]["id"])
    assert turn["ended_by"] == "cancelled"
