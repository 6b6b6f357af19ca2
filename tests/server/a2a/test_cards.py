"""Who is told of which agents, and what keys and quotas do to clients of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from a2a.client.errors import A2AClientError

from holdfast.config import Quota
from holdfast.ids import Tenant
from holdfast.server.access.quotas import Quotas
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.a2a.sdk_peer import EVERY_WAY, Binding, Version, peer, text_of
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Answer, Serving, StubDirectory, agent, serving

PUBLIC = "/.well-known/agent-card.json"
ACME = Tenant("acme")


def two(*names: str) -> StubDirectory:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    return StubDirectory(*(agent(model, name=each) for each in names))


def named_in(card: dict[str, Any]) -> list[str]:
    (extension,) = card["capabilities"]["extensions"]
    return [each["id"] for each in extension["params"]["agents"]]


async def test_only_published_agents_have_a_public_card_and_are_named_in_one() -> None:
    directory = two("butler", "shop/clerk", "secret")
    published = ("shop/*", "butler", "nothing")
    async with serving(directory=directory, published=published) as server:
        first = (await server.get(PUBLIC)).json
        assert (first["name"], named_in(first)) == ("shop/clerk", ["shop/clerk", "butler"])
        assert first["url"] == f"{server.url}/a2a/shop%2Fclerk"
        own = (await server.get(f"/a2a/shop%2Fclerk{PUBLIC}")).json
        assert own == first
        hidden = await server.get(f"/a2a/secret{PUBLIC}")
        absent = await server.get(f"/a2a/absent{PUBLIC}")
        assert (hidden.status, hidden.body) == (absent.status, absent.body)
        assert hidden.status == 404
        extended = (await server.get("/a2a/secret/extendedAgentCard")).json
        assert named_in(extended) == ["butler", "shop/clerk", "secret"]


async def test_nothing_is_published_until_the_operator_says_so() -> None:
    async with serving(directory=two("butler")) as server:
        assert (await server.get(PUBLIC)).status == 404
        assert (await server.get(f"/a2a/butler{PUBLIC}")).status == 404
        assert (await rpc(server, "butler", "GetExtendedAgentCard", {})).json["result"]["name"]


async def rpc(server: Serving, agent: str, method: str, params: Any, **headers: str) -> Answer:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    data = msgspec.json.encode(body)
    return await server.request("POST", f"/a2a/{agent}", headers=headers, data=data)


@EVERY_WAY
async def test_a_key_is_asked_for_and_the_card_says_so(way: tuple[Binding, Version]) -> None:
    store = MemoryStore()
    key = await put_key(store, ACME, "chat", nth=1)
    directory = two("root")
    async with serving(
        directory=directory, store=store, auth="required", published=("*",)
    ) as server:
        async with peer(server.url, way=way) as stranger:
            assert stranger.card.security_schemes["bearer"].http_auth_security_scheme.scheme
            assert stranger.card.security_requirements
            with pytest.raises(A2AClientError, match="401"):
                await stranger.send("hello", messageId="1")
        text = bearer(key)["Authorization"].removeprefix("Bearer ")
        async with peer(server.url, way=way, key=text) as other:
            assert text_of(await other.send("hello", messageId="1")) == "Yes."
            assert (await other.extended_card())["name"] == "root"


async def test_a_key_without_read_lists_only_what_it_has_sent() -> None:
    store = MemoryStore()
    keys = [await put_key(store, ACME, *scopes, nth=n) for n, scopes in enumerate(SCOPES, start=1)]
    async with serving(directory=two("root"), store=store, auth="required") as server:
        for n, key in enumerate(keys):
            message = {"messageId": f"{n}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            sent = await rpc(server, "root", "SendMessage", {"message": message}, **bearer(key))
            assert "result" in sent.json
        seen = [
            (await rpc(server, "root", "ListTasks", {}, **bearer(key))).json["result"]["totalSize"]
            for key in keys
        ]
        assert seen == [1, 1, 3]


SCOPES = (("chat",), ("chat",), ("chat", "read"))


async def test_turns_streams_and_watchers_are_bounded_as_elsewhere() -> None:
    gate = Gate()
    model = ScriptedModel(says("Long.").waiting(gate, at=0), otherwise=lambda _: "Yes.")
    bounds = Quotas(tenant=Quota(turns=1))
    async with serving(agent(model), quotas=bounds) as server:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        first = asyncio.create_task(rpc(server, "root", "SendMessage", {"message": message}))
        await gate.reached.wait()
        other = {**message, "messageId": "2"}
        refused = (await rpc(server, "root", "SendMessage", {"message": other})).json["error"]
        assert refused["code"] == -32000
        (info,) = refused["data"]
        assert info["reason"] == "CONCURRENCY_LIMIT_EXCEEDED"
        assert info["metadata"]["shouldRetry"] == "true"
        gate.release()
        assert (await first).json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_proxy_that_the_operator_trusts_says_which_address_cards_have() -> None:
    said = {"X-Forwarded-Host": "agents.example", "X-Forwarded-Proto": "https"}
    for proxies, address in (
        (frozenset({"127.0.0.1"}), "https://agents.example/a2a/root"),
        (frozenset(), None),
    ):
        guard = OriginGuard(proxies=proxies)
        async with serving(directory=two("root"), published=("*",), guard=guard) as server:
            card = (await server.request("GET", PUBLIC, headers=said)).json
            assert card["url"] == (address or f"{server.url}/a2a/root")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Fly"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}', -32001),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {}}}',
            -32602,
        ),
    ],
)
async def test_a_request_that_is_not_one_is_told_by_the_codes_of_json_rpc(
    body: bytes, code: int
) -> None:
    async with serving(directory=two("root")) as server:
        answer = await server.request("POST", "/a2a/root", data=body)
        assert answer.status == (400 if code == -32700 else 200)
        assert answer.json["error"]["code"] == code
        assert answer.json["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("said", "method", "code"),
    [
        ("1.0", "GetTask", -32001),
        ("1.0.2", "GetTask", -32001),
        ("0.3", "tasks/get", -32001),
        ("", "tasks/get", -32001),
        ("2.0", "GetTask", -32009),
        ("0.3", "GetTask", -32009),
        ("1.0", "tasks/get", -32603),
    ],
)
async def test_a_version_that_is_said_must_be_the_one_that_is_used(
    said: str, method: str, code: int
) -> None:
    async with serving(directory=two("root")) as server:
        headers = {"A2A-Version": said} if said else {}
        answer = await rpc(server, "root", method, {"id": "x"}, **headers)
        assert answer.json["error"]["code"] == code
        if said:
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"id": "x"}}
            path = f"/a2a/root?A2A-Version={said}"
            again = await server.request("POST", path, data=msgspec.json.encode(body))
            assert again.json == answer.json


async def test_an_agent_that_is_gone_takes_no_message_but_its_tasks_are_there() -> None:
    async with serving(directory=two("root")) as server:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        sent = (await rpc(server, "root", "SendMessage", {"message": message})).json["result"]
        again = {**message, "messageId": "2"}
        refused = await rpc(server, "gone", "SendMessage", {"message": again})
        assert refused.json["error"]["data"][0]["metadata"]["code"] == "model_not_found"
        assert (await server.get("/a2a/gone/extendedAgentCard")).status == 404
        assert (await server.get(f"/a2a/gone/tasks/{sent['task']['id']}")).status == 200


async def test_two_keys_that_count_their_messages_do_not_meet() -> None:
    store = MemoryStore()
    keys = [await put_key(store, ACME, "chat", nth=n) for n in (1, 2)]
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with serving(directory=two("root"), store=store, auth="required") as server:
        found = {
            (await rpc(server, "root", "SendMessage", {"message": message}, **bearer(key))).json[
                "result"
            ]["task"]["id"]
            for key in (*keys, *keys)
        }
        assert len(found) == 2
