"""A client before 2026-07-28 cancels a request of its session, and no other request."""

from __future__ import annotations

import asyncio

from holdfast.testing import Gate, ScriptedModel, says
from tests.server.mcp.peer import PREVIOUS, RpcPeer, answer_in
from tests.server.stubs import agent, serving


async def test_a_cancelled_request_ends_its_turn_and_tells_its_client() -> None:
    gate = Gate()
    model = ScriptedModel(says("one", " two").waiting(gate, at=1))
    async with serving(agent(model)) as server:
        peer, other = (RpcPeer(server, revision=PREVIOUS) for _ in range(2))
        await peer.initialize()
        await other.initialize()
        params = {"name": "root", "arguments": {"message": "hello", "conversation": "trip"}}
        calling = asyncio.create_task(peer.post("tools/call", params, request_id=0))
        await gate.reached.wait()
        for each, request_id in ((other, 0), (peer, 1), (peer, "0"), (peer, 0)):
            assert (await server.turns("trip"))[0]["state"] == "open"
            said = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
            assert (await each.send({"jsonrpc": "2.0", **said})).status == 202
        told = answer_in(await calling)["result"]
        assert told["_meta"]["holdfast/problem"]["code"] == "turn_cancelled"
        assert (await server.turns("trip"))[0]["ended_by"] == "cancelled"
