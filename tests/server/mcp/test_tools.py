"""Agents as tools: what clients of both revisions see, and what counts as the same call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.models.model import ModelFailed
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.mcp.peer import CURRENT, PREVIOUS, RpcPeer, answer_in
from tests.server.stubs import HeldTool, Serving, agent, serving


def echo(*said: str) -> ScriptedModel:
    return ScriptedModel(*(says(each) for each in said))


@pytest.fixture(params=[CURRENT, PREVIOUS])
def revision(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    async with serving(agent(echo("one", "two", "three"))) as found:
        yield found


async def test_every_agent_is_a_tool(revision: str) -> None:
    both = agent(echo(), name="root"), agent(echo(), name="a helper/über.1")
    async with serving(*both) as server:
        tools = (await RpcPeer(server, revision=revision).call("tools/list"))["tools"]
        assert [each["name"] for each in tools] == ["root", "a_helper__ber_1"]
        assert tools[1]["title"] == "a helper/über.1"
        assert tools[0]["inputSchema"]["required"] == ["message"]


async def test_an_answer_says_how_to_go_on(server: Serving, revision: str) -> None:
    peer = RpcPeer(server, revision=revision)
    first = await peer.tool("hello")
    assert first["content"][0]["text"] == "one"
    told = first["structuredContent"]
    assert (told["answer"], told["status"], told["version"]) == ("one", "completed", 1)
    assert told["conversation"] in first["content"][1]["text"]
    second = await peer.tool("again", conversation=told["conversation"])
    assert [each["text"] for each in second["content"]] == ["two"]
    assert second["structuredContent"]["version"] == 2


async def test_a_conversation_can_be_named_by_argument_header_or_url(server: Serving) -> None:
    await RpcPeer(server).tool("a", conversation="trip")
    await RpcPeer(server, headers={"X-Conversation-Id": "trip"}).tool("b")
    last = await RpcPeer(server, path="/c/trip/mcp").tool("c")
    assert last["structuredContent"]["version"] == 3
    clash = await RpcPeer(server, path="/c/trip/mcp").tool("d", conversation="other")
    assert clash["isError"]


async def test_what_a_tool_cannot_do_is_a_result_that_the_model_sees(
    server: Serving, revision: str
) -> None:
    peer = RpcPeer(server, revision=revision)
    unknown = "conv_0000000000000000000000000a"
    for name, code in ((unknown, "conversation_not_found"), ("a b", "invalid_conversation_key")):
        refused = await peer.tool("hello", conversation=name)
        assert refused["isError"] and refused["content"][0]["text"]
        assert refused["_meta"]["holdfast/problem"]["code"] == code
    for empty in ({"message": ""}, {"message": 7}, {}):
        refused = await peer.tool(conversation="trip", **empty)
        assert refused["isError"], empty


async def test_a_failed_turn_is_a_result_with_an_error(revision: str) -> None:
    model = ScriptedModel(says("half").failing(ModelFailed("out of order"), at=0), says("whole"))
    async with serving(agent(model)) as server:
        peer = RpcPeer(server, revision=revision)
        failed = await peer.tool("hello", conversation="trip")
        assert failed["isError"] and "structuredContent" not in failed
        assert failed["_meta"]["holdfast/problem"]["code"] == "upstream_error"
        assert (await peer.tool("hello", conversation="trip"))["content"][0]["text"] == "whole"


async def test_the_arguments_of_a_call_without_a_message_are_the_message(server: Serving) -> None:
    peer = RpcPeer(server)
    answer = await peer.tool(query="where is Oslo?", depth=2)
    items = await server.items(answer["structuredContent"]["conversation"])
    assert items[0]["content"][0]["text"] == '{"depth":2,"query":"where is Oslo?"}'
    refused = await peer.tool(query="and Bergen?", conversation="trip")
    assert refused["_meta"]["holdfast/problem"]["code"] == "missing_required_parameter"


async def test_a_key_makes_two_calls_one_and_the_id_of_a_request_does_not(
    server: Serving, revision: str
) -> None:
    peer = RpcPeer(server, revision=revision)
    first = await peer.tool("hello", conversation="trip", key="7d8f")
    assert await peer.tool("hello", conversation="trip", key="7d8f") == first
    other = await peer.tool("something else", conversation="trip", key="7d8f")
    assert other["_meta"]["holdfast/problem"]["code"] == "idempotency_key_reused"
    params = {"name": "root", "arguments": {"message": "hello", "conversation": "trip"}}
    again = [answer_in(await peer.post("tools/call", params, request_id=0)) for _ in range(2)]
    versions = [each["result"]["structuredContent"]["version"] for each in again]
    assert versions == [2, 3]
    assert len(await server.turns("trip")) == 3


async def test_a_client_with_a_token_is_told_of_each_step(revision: str) -> None:
    model = ScriptedModel(says("Let me.", calls=[("look", "{}")]), says("Seen."))
    tool = HeldTool("look", read_only=True, held=False)
    async with serving(agent(model, tool)) as server:
        peer = RpcPeer(server, revision=revision)
        params = {"name": "root", "arguments": {"message": "look"}, "_meta": {"progressToken": "t"}}
        answer = await peer.post("tools/call", params)
        *notices, last = answer.events
        assert last["result"]["content"][0]["text"] == "Let me.\n\nSeen."
        assert [each["params"]["progress"] for each in notices] == list(range(len(notices)))
        assert [each["params"]["message"] for each in notices] == [
            "asking the model",
            "the model wants to use tools",
            "running look",
            "look: ok",
            "asking the model",
            "the model has answered",
        ]


async def test_messages_that_make_no_sense_are_refused_with_the_status_that_goes_with_it(
    server: Serving,
) -> None:
    peer = RpcPeer(server)
    assert await _fault(peer, b"{") == (400, -32700)
    assert await _fault(peer, b"[]") == (400, -32600)
    assert await _fault(peer, b'{"jsonrpc":"2.0","id":1}') == (400, -32600)
    assert await _fault(peer, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}') == (
        400,
        -32600,
    )
    assert (await peer.fault("unknown/method"))[0] == 404
    assert (await peer.fault("ping"))[1]["code"] == -32601
    assert (await peer.fault("tools/call", name="nobody"))[1]["code"] == -32602
    before = RpcPeer(server, revision=PREVIOUS)
    assert (await before.fault("tools/call", name="nobody"))[0] == 200
    assert (await before.fault("server/discover"))[1]["code"] == -32601


async def _fault(peer: RpcPeer, body: bytes) -> tuple[int, int]:
    answer = await peer.server.request("POST", "/mcp", data=body)
    return answer.status, answer.json["error"]["code"]


@pytest.mark.parametrize(
    ("headers", "meta", "code"),
    [
        ({"mcp-protocol-version": "1999-01-01"}, {}, -32020),
        ({"mcp-method": "tools/list"}, {}, -32020),
        ({"mcp-name": "other"}, {}, -32020),
        (
            {"mcp-protocol-version": "v9"},
            {"io.modelcontextprotocol/protocolVersion": "v9"},
            -32022,
        ),
    ],
)
async def test_headers_that_routers_read_have_to_repeat_the_body(
    server: Serving, headers: dict[str, str], meta: dict[str, Any], code: int
) -> None:
    peer = RpcPeer(server, headers=headers)
    params = {"name": "root", "arguments": {"message": "hello"}, "_meta": meta}
    status, error = await peer.fault("tools/call", **params)
    assert (status, error["code"]) == (400, code)
    if code == -32022:
        assert error["data"] == {"supported": [CURRENT, PREVIOUS, "2025-06-18"], "requested": "v9"}


async def test_a_session_id_is_a_value_that_any_server_understands(server: Serving) -> None:
    peer = RpcPeer(server, revision=PREVIOUS)
    begun = await peer.initialize()
    assert (begun["protocolVersion"], begun["serverInfo"]["name"]) == (PREVIOUS, "holdfast")
    heard = await peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert heard.status == 202
    async with serving(agent(echo("elsewhere"))) as another:
        peer.server = another
        assert (await peer.tool("hello"))["content"][0]["text"] == "elsewhere"
    peer.server = server
    peer.headers["mcp-session-id"] = "made-up"
    assert (await peer.fault("ping"))[0] == 404
    for method in ("GET", "DELETE"):
        assert (await server.request(method, "/mcp")).status == 405


async def test_a_key_is_needed_where_keys_are_and_the_answer_says_so() -> None:
    store = MemoryStore()
    async with serving(agent(echo("one")), store=store, auth="required") as server:
        refused = await RpcPeer(server).post("tools/list", {})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json["error"]["data"] == {"code": "invalid_api_key"}
        key = await put_key(store)
        assert await RpcPeer(server, headers=bearer(key)).tool("hello")
    await store.close()
