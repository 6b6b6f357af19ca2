"""Conversations as resources: those of the key that began them here, unless the operator says otherwise."""

from __future__ import annotations

import pytest

from holdfast.config import McpResources
from holdfast.ids import Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.server.access.test_authentication import ACME, bearer, put_key
from tests.server.mcp.peer import CURRENT, PREVIOUS, RpcPeer
from tests.server.stubs import agent, serving


@pytest.mark.parametrize("revision", [CURRENT, PREVIOUS])
async def test_a_key_reads_the_conversations_that_it_began_here(revision: str) -> None:
    store = MemoryStore()
    model = ScriptedModel(*(says(f"answer {n}") for n in range(6)))
    async with serving(agent(model), store=store, auth="required") as server:
        keys = [await put_key(store, ACME, "chat", nth=n) for n in (1, 2)]
        rival = await put_key(store, Tenant("rival"), "admin", nth=3)
        mine, other, stranger = (
            RpcPeer(server, revision=revision, headers=bearer(each)) for each in (*keys, rival)
        )
        await mine.tool("one", conversation="trip")
        began = (await mine.tool("two"))["structuredContent"]["conversation"]
        await other.tool("three", conversation="trip")  # to continue is not to begin
        await server.chat("four", to="chat", headers=bearer(keys[0]))
        listed = (await mine.call("resources/list"))["resources"]
        assert sorted(each["title"] for each in listed) == ["one", "two"]
        (uri,) = (each["uri"] for each in listed if each["title"] == "two")
        assert uri == f"holdfast://conversations/{began}"
        (read,) = (await mine.call("resources/read", uri=uri))["contents"]
        assert read["text"] == "User: two\n\nAssistant: answer 1"
        missing = f"{uri[:-1]}{'0' if uri[-1] != '0' else '1'}"
        for peer in (other, stranger):
            assert (await peer.call("resources/list"))["resources"] == []
            _, hidden = await peer.fault("resources/read", uri=uri)
            _, absent = await peer.fault("resources/read", uri=missing)
            assert hidden["code"] == absent["code"] == (-32602 if revision == CURRENT else -32002)
            assert hidden["message"] == absent["message"]
    await store.close()


@pytest.mark.parametrize(
    ("whose", "scope", "seen"), [("all", "read", 2), ("all", "chat", 1), ("own", "read", 1)]
)
async def test_other_conversations_need_the_scope_and_the_setting(
    whose: McpResources, scope: str, seen: int
) -> None:
    store = MemoryStore()
    model = ScriptedModel(says("a"), says("b"))
    async with serving(agent(model), store=store, auth="required", mcp_resources=whose) as server:
        key = await put_key(store, ACME, "chat", scope)
        await server.chat("elsewhere", to="chat", headers=bearer(key))
        peer = RpcPeer(server, headers=bearer(key))
        await peer.tool("here", conversation="trip")
        assert len((await peer.call("resources/list"))["resources"]) == seen
    await store.close()


async def test_lists_go_on_where_a_page_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.mcp.resources.PAGE", 2)
    model = ScriptedModel(*(says("a") for _ in range(6)))
    async with serving(agent(model)) as server:
        peer = RpcPeer(server)
        for n in range(3):
            await peer.tool("named", conversation=f"n{n}")
            await peer.tool("nameless")
        found, cursor = [], None
        while True:
            page = await peer.call("resources/list", **({"cursor": cursor} if cursor else {}))
            found += [each["uri"] for each in page["resources"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 6
        assert (await peer.fault("resources/list", cursor="named nonsense"))[1]["code"] == -32602


async def test_the_mark_of_the_door_cannot_be_set_by_a_client() -> None:
    async with serving(agent(ScriptedModel(says("a")))) as server:
        await server.chat("hello", to="trip")
        answer = await server.request(
            "PATCH", "/api/sessions/trip", data=b'{"attributes":{"holdfast.door":"mcp -"}}'
        )
        assert (answer.status, answer.error["code"]) == (400, "invalid_value")
        assert (await RpcPeer(server).call("resources/list"))["resources"] == []
