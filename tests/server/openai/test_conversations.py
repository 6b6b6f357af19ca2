"""`/v1/conversations`: sessions that are made, read and added to without asking anybody anything."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Begin, BeginOutcome
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.stubs import Answer, HeldTool, Serving, agent, serving


def yes() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


async def post(server: Serving, path: str, body: Any = None, **headers: str) -> Answer:
    data = None if body is None else msgspec.json.encode(body)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.request("POST", f"/v1/conversations{path}", headers=sent, data=data)


async def made(server: Serving, *items: dict[str, Any], **metadata: str) -> str:
    answer = await post(server, "", {"items": items, "metadata": metadata})
    assert answer.status == 200, answer.body
    found: str = answer.json["id"]
    return found


async def listed(server: Serving, name: str, query: str = "order=asc") -> list[Any]:
    answer = await server.get(f"/v1/conversations/{name}/items?{query}")
    found: list[Any] = answer.json["data"]
    return found


def words(items: list[Any]) -> list[str]:
    return [each["content"][0]["text"] for each in items if each["type"] == "message"]


async def test_a_conversation_is_made_read_changed_and_deleted() -> None:
    async with serving(agent(yes())) as server:
        empty = await post(server, "")
        name = await made(server, said("Hi"), topic="travel")
        found = await server.get(f"/v1/conversations/{name}")
        changed = await post(server, f"/{name}", {"metadata": {"place": "Oslo"}})
        attributes = (await server.get(f"/api/sessions/{name}")).json["attributes"]
        gone = await server.request("DELETE", f"/v1/conversations/{name}")
        after = await server.get(f"/v1/conversations/{name}")
        later = await server.respond("Hi", conversation=name)
    assert set(empty.json) == {"id", "object", "created_at", "metadata"}
    assert empty.json["object"] == "conversation" and empty.json["metadata"] == {}
    assert isinstance(empty.json["created_at"], int)
    assert found.json["metadata"] == {"topic": "travel"}
    assert changed.json["metadata"] == attributes == {"place": "Oslo"}
    assert gone.json == {"id": name, "object": "conversation.deleted", "deleted": True}
    assert (after.status, after.error["message"]) == (
        404,
        f"Conversation with id '{name}' not found.",
    )
    assert later.status == 410


async def test_a_response_goes_on_with_what_was_added() -> None:
    model = yes()
    store = MemoryStore()
    async with serving(agent(model), store=store) as server:
        name = await made(server, said("Rhyme.", "system"), said("Hi"), said("Hello.", "assistant"))
        await server.respond("And?", conversation=name)
        added = await post(server, f"/{name}/items", {"items": [said("Note this.", "assistant")]})
        await server.respond("Still there?", conversation=name)
        items = await listed(server, name)
        session = (await server.get(f"/api/sessions/{name}")).json
    assert words(items) == [
        "Rhyme.",
        "Hi",
        "Hello.",
        "And?",
        "Yes.",
        "Note this.",
        "Still there?",
        "Yes.",
    ]
    assert added.json["object"] == "list" and words(added.json["data"]) == ["Note this."]
    assert added.json["first_id"] == added.json["last_id"] == items[5]["id"]
    assert [each.content for each in model.messages()][-2:] == ["Note this.", "Still there?"]
    assert session["version"] == 4 and session["agent"] == "root"
    assert len(model.prompts) == 2
    assert not [each async for each in verify(store) if isinstance(each, Finding)]
    await store.close()


async def test_an_empty_conversation_is_there_and_begins_with_its_first_response() -> None:
    async with serving(agent(yes())) as server:
        name = (await post(server, "")).json["id"]
        assert await listed(server, name) == []
        answer = await server.respond("Hi", conversation=name)
        assert words(await listed(server, name)) == ["Hi", "Yes."]
    assert answer.json["conversation"] == {"id": name}


async def test_items_come_in_pages_newest_first_and_can_be_had_one_by_one() -> None:
    async with serving(agent(yes())) as server:
        name = await made(server, *(said(str(n)) for n in range(20)))
        pages, after = [], ""
        while True:
            query = f"limit=8{f'&after={after}' if after else ''}"
            page = (await server.get(f"/v1/conversations/{name}/items?{query}")).json
            pages.append(words(page["data"]))
            if not page["has_more"]:
                break
            after = page["last_id"]
        first = (await listed(server, name))[0]
        one = await server.get(f"/v1/conversations/{name}/items/{first['id']}")
        bare = await server.get(f"/v1/conversations/{name}/items/{first['id'][:30]}")
        none = await server.get(f"/v1/conversations/{name}/items/msg_1")
    assert [len(each) for each in pages] == [8, 8, 4]
    assert [each for page in pages for each in page] == [str(n) for n in reversed(range(20))]
    assert one.json == bare.json == first
    assert (none.status, none.error["message"]) == (404, "Item with id 'msg_1' not found.")


async def test_a_deleted_item_is_hidden_with_its_partner_and_the_history_keeps_it() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        name = await made(
            server,
            said("Oslo?"),
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "-3"},
            said("Cold.", "assistant"),
        )
        kinds = [each["type"] for each in await listed(server, name)]
        output = (await listed(server, name))[2]
        answer = await server.request("DELETE", f"/v1/conversations/{name}/items/{output['id']}")
        left = await listed(server, name)
        again = await server.request("DELETE", f"/v1/conversations/{name}/items/{output['id']}")
        await server.respond("And?", conversation=name)
        kept = await server.items(name)
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert (answer.json["object"], answer.json["id"]) == ("conversation", name)
    assert words(left) == ["Oslo?", "Cold."] and len(left) == 2
    assert again.status == 404
    assert [each.role for each in model.messages()] == ["user", "assistant", "user"]
    assert [each["type"] for each in kept[:4]] == ["user", "call", "result", "assistant"]


async def test_adding_under_a_key_adds_once() -> None:
    async with serving(agent(yes())) as server:
        new = {"items": [said("Hi")]}
        twice = [await post(server, "", new, Idempotency_Key="a") for _ in range(2)]
        reused = await post(server, "", {"metadata": {"a": "b"}}, Idempotency_Key="a")
        name = twice[0].json["id"]
        body = {"items": [said("More.")]}
        pages = [await post(server, f"/{name}/items", body, Idempotency_Key="b") for _ in range(2)]
        other = await post(server, f"/{name}/items", {"items": [said("X")]}, Idempotency_Key="b")
        items = await listed(server, name)
    assert twice[0].json == twice[1].json
    assert (reused.status, reused.error["code"]) == (422, "idempotency_key_reused")
    assert pages[0].json == pages[1].json
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert words(items) == ["Hi", "More."]


async def test_adding_waits_for_the_turn_that_runs_or_is_refused() -> None:
    gate = Gate()
    model = ScriptedModel(says("Yes.").waiting(gate, at=0))
    async with serving(agent(model)) as server:
        name = (await post(server, "")).json["id"]
        slow = asyncio.create_task(server.respond("Hi", conversation=name))
        await gate.reached.wait()
        body = {"items": [said("Later.")]}
        busy = await post(server, f"/{name}/items", body, X_On_Busy="reject")
        adding = asyncio.create_task(post(server, f"/{name}/items", body))
        gate.release()
        await slow
        await adding
        items = await listed(server, name)
        stale = await post(server, f"/{name}/items", body, If_Match='"1"')
    assert (busy.status, busy.error["code"]) == (409, "conversation_locked")
    assert words(items) == ["Hi", "Yes.", "Later."]
    assert (stale.status, stale.error["code"]) == (412, "version_mismatch")


async def test_the_agents_own_tools_are_listed_on_request_only() -> None:
    tool = HeldTool("look", held=False)
    model = ScriptedModel(says(calls=[("look", "{}")]), "Done.")
    async with serving(agent(model, tool)) as server:
        name = (await post(server, "")).json["id"]
        await server.respond("Look", conversation=name)
        plain = await listed(server, name)
        shown = await listed(server, name, "order=asc&include=holdfast.tool_calls")
    assert [each["type"] for each in plain] == ["message", "message"]
    assert [each["type"] for each in shown] == ["message", "mcp_call", "message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        ("", {"items": [said("x")] * 21}, "items", "invalid_value"),
        ("", {"metadata": {"a" * 65: "x"}}, "metadata", "invalid_value"),
        ("", {"metadata": {"a": 1}}, "metadata", "invalid_type"),
        (
            "",
            {"items": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]},
            "items",
            "unknown_tool_call",
        ),
        ("/{}", {}, "metadata", "missing_required_parameter"),
        ("/{}/items", {}, "items", "missing_required_parameter"),
        ("/{}/items", {"items": []}, "items", "missing_required_parameter"),
        ("/{}/items", {"items": [{"role": "user"}]}, "items", "no_new_user_message"),
    ],
)
async def test_what_does_not_fit_is_refused_and_leaves_nothing(
    path: str, body: Any, param: str, code: str
) -> None:
    async with serving(agent(yes())) as server:
        name = (await post(server, "")).json["id"]
        answer = await post(server, path.format(name), body)
        assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, code)
        assert (await server.get("/api/sessions")).json["sessions"] == []


async def test_a_retry_finishes_what_an_attempt_that_was_cut_short_has_begun() -> None:
    """The conversation was made, and its items were not added: asked again, it is not left empty."""
    store = MemoryStore()
    body = {"items": [said("Hi")], "metadata": {"topic": "travel"}}
    async with serving(agent(yes()), store=store) as server:
        begin, asked = store.begin, asyncio.Event()

        async def unable(ask: Begin) -> BeginOutcome:
            asked.set()
            raise StoreUnavailable("away")

        store.begin = unable  # type: ignore[method-assign]
        failed = await post(server, "", body, Idempotency_Key="a")
        store.begin = begin  # type: ignore[method-assign]
        made = await post(server, "", body, Idempotency_Key="a")
        name = made.json["id"]
        changed = await post(server, f"/{name}", {"metadata": {"topic": "home"}})
        again = await post(server, "", body, Idempotency_Key="a")
        items = await listed(server, name)
    assert asked.is_set() and failed.status == 503
    assert made.json["metadata"] == {"topic": "travel"}
    assert again.json == changed.json
    assert words(items) == ["Hi"]
    await store.close()
