"""Items that only other servers act on: kept over requests, listings and exports, and never stored twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta, ToolCallDelta
from holdfast.store.memory_store import MemoryStore
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import Script, ScriptedModel
from holdfast.wire.openai.responses.foreign_items import SHOWN_KINDS
from tests.server.stubs import Serving, agent, serving
from tests.wire.openai.documented_types import items

ACTED_ON = {"message", "function_call", "function_call_output", "item_reference"}
KINDS = sorted(set(items()) - ACTED_ON)
KEPT: list[dict[str, Any]] = [
    {**items()[kind][0], "id": f"{kind}_{n}"} for n, kind in enumerate(KINDS)
]
"""An item of each type, under an id of its own."""
HELLO = {"role": "user", "content": "Hello"}


def yes() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


async def listed(server: Serving, path: str) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    query = "?order=asc&limit=7"
    while True:
        page = (await server.get(path + query)).json
        found += page["data"]
        if not page["has_more"]:
            return found
        query = f"?order=asc&limit=7&after={page['last_id']}"


async def test_every_type_of_item_is_listed_as_it_came_and_shown_or_named() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.respond([*KEPT, HELLO])
        given = await listed(server, f"/v1/responses/{first.json['id']}/input_items")
        assert given[:-1] == KEPT
        line = first.headers["x-session-id"]
        whole = await listed(server, f"/v1/conversations/{line}/items")
        # The client resends everything, in another order of members, and asks something new.
        again = [dict(reversed(each.items())) for each in KEPT]
        answer = {"role": "assistant", "content": "Yes."}
        more = {"type": "hologram_call", "id": "holo_1"}
        second = await server.respond(
            [*again, HELLO, answer, more, {"role": "user", "content": "And?"}], conversation=line
        )
        new = await listed(server, f"/v1/responses/{second.json['id']}/input_items")
        by_id = await server.get(f"/v1/conversations/{line}/items/{KEPT[3]['id']}")
        refers = {"type": "item_reference", "id": KEPT[3]["id"]}
        third = await server.respond(
            [refers, {"role": "user", "content": "So?"}], conversation=line
        )
    hidden = [f"input[{n}]" for n, kind in enumerate(KINDS) if kind not in SHOWN_KINDS]
    assert first.headers["x-ignored-params"] == ", ".join(hidden)
    prompt = str(model.prompts[0])
    assert all((f"[{kind}: " in prompt) is (kind in SHOWN_KINDS) for kind in KINDS)
    assert whole[:-2] == KEPT
    assert [each.get("content", each["id"]) for each in new] == [
        "holo_1",
        [{"type": "input_text", "text": "And?"}],
    ]
    assert "x-conversation-diverged" not in second.headers
    assert by_id.json == KEPT[3] and third.status == 200


async def test_a_chat_message_keeps_parts_of_other_kinds() -> None:
    model = yes()
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "Look"},
        {"type": "hologram", "beam": [1, None]},
        {"type": "text", "text": "!"},
    ]
    smell = {"role": "user", "content": [{"type": "smell", "of": "roses"}]}
    call = {"id": "c1", "type": "custom", "custom": {"name": "draw", "input": 'a "rose"'}}
    told: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "drawn"},
    ]
    async with serving(agent(model)) as server:
        first = await server.chat(*told, smell, {"role": "user", "content": parts}, to="trip")
        line = first.headers["x-session-id"]
        whole = await listed(server, f"/v1/conversations/{line}/items")
        nothing = await server.chat(smell, to="other")
        malformed = await server.chat({"role": "user", "content": [{"type": 7}]}, to="other")
        body = b'{"model":"root","messages":[{"role":"user","content":[{"type":"\xff"}]}]}'
        broken = await server.request("POST", "/v1/chat/completions", data=body)
    assert first.headers["x-ignored-params"] == "messages[2].content[0], messages[3].content[1]"
    shown = [each["content"] for each in whole if each["type"] == "message"]
    text = [{"type": "input_text", "text": each["text"]} for each in (parts[0], parts[2])]
    assert shown[:2] == [smell["content"], [text[0], parts[1], text[1]]]
    assert (whole[0]["name"], whole[0]["arguments"]) == ("draw", '{"input":"a \\"rose\\""}')
    assert (nothing.status, nothing.error["code"]) == (400, "no_new_user_message")
    assert malformed.status == broken.status == 400


async def test_further_members_of_the_parts_of_a_chat_message_are_kept() -> None:
    """Such as marks for another server's cache, which some clients put on every text."""
    mark = {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}, "n": 1.5}
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Look", **mark}, picture]
    model = yes()
    async with serving(agent(model)) as server:
        plain = {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}
        said = (plain, {"role": "user", "content": parts})
        first = await server.chat(*said, to="trip")
        again = await server.chat(
            *said, {"role": "assistant", "content": "Yes."}, "And?", to="trip"
        )
        whole = await listed(server, f"/v1/conversations/{first.headers['x-session-id']}/items")
    ignored = "messages[1].content[0].cache_control, messages[1].content[1].n"
    assert first.headers["x-ignored-params"] == again.headers["x-ignored-params"] == ignored
    shown = [each["content"] for each in whole if each.get("role") == "user"]
    assert shown[0][0] == {"type": "input_text", "text": "Look", **mark}
    assert shown[0][1]["type"] == "input_image" and shown[0][1]["n"] == 1.5
    assert len(shown) == 2, "the message that came again is there once"


async def test_calls_in_the_form_from_before_there_were_tools_are_calls() -> None:
    """OpenAI's document still has `function_call` and the role `function`. Such calls have no ids."""
    oslo = {"name": "weather", "arguments": '{"city":"Oslo"}'}
    called: dict[str, Any] = {"role": "assistant", "content": None, "function_call": oslo}
    result = {"role": "function", "name": "weather", "content": "rain"}
    past: list[dict[str, Any]] = [HELLO, called, result, called, {**result, "content": "sun"}]
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.chat(*past, to="trip")
        second = await server.chat(
            *past, {"role": "assistant", "content": "Yes."}, "And?", to="trip"
        )
        whole = await listed(server, f"/v1/conversations/{first.headers['x-session-id']}/items")
        nameless = {"role": "function", "content": "rain"}
        wrong = {**called, "function_call": {"name": 7}}
        refused = [await server.chat(HELLO, each) for each in (result, nameless, wrong)]
    told = model.messages()
    ids = [call.id for each in told for call in each.tool_calls or ()]
    assert [each.role for each in told] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant", "user")
    ]
    assert [(each.tool_call_id, each.content) for each in told if each.role == "tool"] == [
        (ids[0], "rain"),
        (ids[1], "sun"),
    ]
    assert len(set(ids)) == 2
    assert "x-ignored-params" not in first.headers
    assert "x-conversation-diverged" not in second.headers
    assert [each["type"] for each in whole] == [
        "message",
        *("function_call", "function_call_output") * 2,
        *("message",) * 3,
    ], "what came again is there once"
    assert [each.status for each in refused] == [400] * 3


async def test_items_are_kept_by_conversations_exports_and_imports() -> None:
    home, elsewhere = MemoryStore(), MemoryStore()
    async with serving(agent(yes()), store=home) as server:
        body = msgspec.json.encode({"items": KEPT[:20]})
        made = await server.request("POST", "/v1/conversations", data=body)
        path = f"/v1/conversations/{made.json['id']}/items"
        body = msgspec.json.encode({"items": [*KEPT[20:], KEPT[0]]})
        added = await server.request("POST", path, data=body)
        before = await listed(server, path)
        exported = await server.get(f"/api/sessions/{made.json['id']}/export")
        hidden = await server.request("DELETE", f"{path}/{KEPT[5]['id']}")
        after = await listed(server, path)
    assert added.status == hidden.status == 200
    assert before[:-1] == KEPT
    # An id that was given twice names the first item; the second one is listed under one of ours.
    assert before[-1] == {**KEPT[0], "id": before[-1]["id"]} != KEPT[0]
    assert after == [each for each in before if each["id"] != KEPT[5]["id"]]
    async with serving(agent(yes()), store=elsewhere) as server:
        taken = await server.request("POST", "/api/sessions/import", data=exported.body)
        assert taken.status == 200, taken.body
        (there,) = taken.json["imported"]
        assert await listed(server, f"/v1/conversations/{there}/items") == before
    for store in (home, elsewhere):
        assert not [each async for each in verify(store) if isinstance(each, Finding)]
        await store.close()


@pytest.mark.parametrize("history", ["append", "follow"])
async def test_a_call_that_was_cut_is_known_when_it_comes_back_and_shown_to_no_model(
    history: str,
) -> None:
    half = ToolCallDelta(index=0, call_id="c1", name="look", arguments='{"city": "Os')
    broken = Script(TextDelta(text="So"), half, FinishDelta(finish="length"))
    model, store = ScriptedModel(broken, otherwise=lambda prompt: "Yes."), MemoryStore()
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    headers = {"X-Conversation-Id": "trip", "X-History": history}
    async with serving(agent(model), store=store) as server:
        first = await server.respond([HELLO], tools=[look], headers=headers)
        assert [each["status"] for each in first.json["output"]] == ["completed", "incomplete"]
        told = [HELLO, *first.json["output"], {"role": "user", "content": "Go on"}]
        second = await server.respond(told, tools=[look], headers=headers)
        assert second.headers["x-conversation-base"] == "1"
        assert second.headers["x-ignored-params"] == "input[2]"
        assert "call" not in [each["type"] for each in (await server.items("trip"))[-2:]]
        elsewhere = await server.respond(told)
        kept = await listed(server, f"/v1/responses/{elsewhere.json['id']}/input_items")
    assert kept[2] == first.json["output"][1]
    assert all("tool_calls" not in str(each.messages) for each in model.prompts)
    assert not [each async for each in verify(store) if isinstance(each, Finding)]
