"""A conversation with rounds of tools goes on however its client groups what was said, in each way to name it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Script, ScriptedModel, says
from tests.server.stubs import Answer, Serving, agent, serving
from tests.store.verification.test_verification import findings
from tests.wire.openai.test_regrouped_histories import (
    Asks,
    Exchange,
    Grouping,
    Piece,
    Round,
    chat_messages,
    conversations,
    response_items,
)

TOOL = {"name": "tell", "parameters": {"type": "object"}}
FORMS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "chat": ("/v1/chat/completions", "messages", [{"type": "function", "function": TOOL}]),
    "responses": ("/v1/responses", "input", [{"type": "function", **TOOL}]),
}


def answer_of(each: Round) -> Script:
    return says(*each.texts, calls=[("tell", "{}", made.call_id) for made in each.calls])


def shown(model: ScriptedModel) -> list[str]:
    """What the model was shown last, in short; neighbouring texts as one, and results in the order of their ids."""
    found: list[str] = []
    results: list[str] = []
    for each in msgspec.json.decode(b"[" + b",".join(model.prompts[-1].messages) + b"]"):
        if each["role"] == "tool":
            results.append(f"{each['tool_call_id']}: {each['content']}")
            continue
        if each["role"] == "system":
            continue
        found, results = [*found, *sorted(results)], []
        found.append(f"{each['role']}: {_words(each['content'] or '')}")
        found += [call["id"] for call in each.get("tool_calls") or ()]
    return [each for each in (*found, *sorted(results)) if each != "assistant: "]


def _words(text: str) -> str:
    return "".join(text.split())


async def send(server: Serving, api: str, pieces: list[Piece], headers: dict[str, str]) -> Answer:
    path, member, tools = FORMS[api]
    told = chat_messages(pieces) if api == "chat" else response_items(pieces)
    data = json.dumps({"model": "root", member: told, "tools": tools}).encode()
    return await server.request("POST", path, headers=headers, data=data)


async def goes_on(
    conversation: tuple[Exchange, ...], grouping: Grouping, api: str, history: str
) -> None:
    rounds = [each for one in conversation for each in one.rounds]
    model, store = ScriptedModel(*map(answer_of, rounds), "Done."), MemoryStore()
    headers = {"X-Conversation-Id": "trip", "X-History": history}
    whole: list[str] = []
    version = 0
    async with serving(agent(model), store=store) as server:
        for n, exchange in enumerate(conversation):
            whole.append(f"user: {_words(exchange.asks)}")
            for done, each in enumerate(exchange.rounds):
                so_far = exchange._replace(rounds=exchange.rounds[:done])
                told = grouping.tells(*conversation[:n], so_far)
                got = await send(server, api, told, headers)
                assert got.status == 200, (told, got.body)
                assert got.headers["x-conversation-base"] == str(version), told
                assert "x-conversation-diverged" not in got.headers
                assert shown(model) == whole, told
                version += 1
                text = _words("".join(each.texts))
                whole += [f"assistant: {text}"] if text else []
                whole += [made.call_id for made in each.calls]
                whole += sorted(f"{made.call_id}: {made.result}" for made in each.calls)
        told = [*grouping.tells(*conversation), Asks("And then?")]
        got = await send(server, api, told, headers)
        assert got.status == 200, (told, got.body)
        assert shown(model) == [*whole, "user: Andthen?"]
        assert (await server.get("/api/sessions?anonymous=true")).json["sessions"] == []
    assert await findings(store) == []


@pytest.mark.parametrize("history", ["append", "follow"])
@pytest.mark.parametrize("api", FORMS)
@settings(max_examples=8)
@given(data=st.data(), conversation=conversations())
def test_a_talk_with_tools_goes_on_however_it_is_grouped(
    api: str, history: str, data: st.DataObject, conversation: tuple[Exchange, ...]
) -> None:
    asyncio.run(goes_on(conversation, Grouping(data), api, history))
