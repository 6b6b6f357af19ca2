"""A chat client that resends everything, and sends its next message before it has the answer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store.store import Store
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.server.stubs import Answer, Serving, agent, serving, until


async def tell(server: Serving, route: str, name: str, on_busy: str, *texts: str) -> Answer:
    headers = {"X-Conversation-Id": name, "X-On-Busy": on_busy}
    if route == "chat":
        return await server.chat(*texts, headers=headers)
    said = [{"role": "user", "content": each} for each in texts]
    return await server.respond(said, headers=headers)


@pytest.mark.parametrize("route", ["chat", "responses"])
@pytest.mark.parametrize("on_busy", ["wait", "steer", "interrupt"])
async def test_a_message_before_the_answer_is_stored_once(
    store: Store, route: str, on_busy: str
) -> None:
    gate = Gate()
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    model.will(says("Let me ", "think.").waiting(gate, at=1))
    name = f"before-{route}-{on_busy}"
    async with serving(agent(model), store=store) as server:
        first = asyncio.create_task(tell(server, route, name, "wait", "one"))
        await gate.reached.wait()
        second = asyncio.create_task(tell(server, route, name, on_busy, "one", "two"))
        if on_busy == "steer":
            await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        elif on_busy == "wait":
            await until(lambda: server.sessions.load().waiting == 1)
        if on_busy != "interrupt":
            gate.release()
        answer = await second
        await first
        assert answer.status == 200, answer.body
        assert "x-conversation-diverged" not in answer.headers
        items = await server.items(name)
        third = await tell(server, route, name, "wait", "one", "two", "three")
        assert third.status == 200 and "x-conversation-diverged" not in third.headers
        later = await server.items(name)
    asked = [each["content"][0]["text"] for each in items if each["type"] == "user"]
    assert asked == ["one", "two"]
    asked = [each["content"][0]["text"] for each in later if each["type"] == "user"]
    assert asked == ["one", "two", "three"]


async def test_a_page_that_asks_again_has_only_its_question_stored_again() -> None:
    model = ScriptedModel(fails(status=500), otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        requests = (["one"], ["one", "two"], ["one", "two"], ["one", "two", "three"])
        answers = [await tell(server, "chat", "page", "wait", *each) for each in requests]
        items = await server.items("page")
    assert [each.status for each in answers] == [502, 200, 200, 200]
    diverged = [each.headers.get("x-conversation-diverged") for each in answers]
    assert diverged == [None, None, "true", "true"]
    asked = [each["content"][0]["text"] for each in items if each["type"] == "user"]
    assert asked == ["one", "two", "two", "three"]
