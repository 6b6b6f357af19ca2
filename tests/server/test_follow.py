"""Chat programs that own the history: what a person sees in the program is what the model is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.store.store import Store
from holdfast.testing import ScriptedModel, fails
from tests.server.stubs import Answer, Serving, agent, serving

CHAT = {"X-OpenWebUI-Chat-Id": "chat-1"}


def said(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": each} for n, each in enumerate(texts)]


async def ask(server: Serving, *texts: str, headers: dict[str, str] | None = None) -> Answer:
    answer = await server.chat(*said(*texts), headers={**CHAT, **(headers or {})})
    assert answer.status == 200, answer.body
    return answer


def shown(model: ScriptedModel) -> list[str]:
    return [str(each.content) for each in model.messages() if each.role != "system"]


async def test_side_calls_and_regenerated_answers_are_lines_of_their_own(store: Store) -> None:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    async with serving(agent(model), store=store) as server:
        await ask(server, "### Task: title")
        one = await ask(server, "one")
        two = await ask(server, "one", "A2", "two")
        assert two.headers["x-session-id"] == one.headers["x-session-id"]
        assert two.headers["x-conversation-base"] == "1"
        assert shown(model) == ["one", "A2", "two"]
        await ask(server, "### Task: tags")
        again = await ask(server, "one", "A2", "two")
        assert again.headers["x-session-id"] != one.headers["x-session-id"]
        assert again.headers["x-conversation-base"] == "1"
        assert shown(model) == ["one", "A2", "two"]
        three = await ask(server, "one", "A2", "two", "A5", "three")
        assert three.headers["x-session-id"] == again.headers["x-session-id"]
        assert shown(model) == ["one", "A2", "two", "A5", "three"]
        edit = await ask(server, "ONE")
        assert shown(model) == ["ONE"]
        assert edit.headers["x-conversation-base"] == "0"
        on = await ask(server, "one", "A2", "two", "A5")
        assert shown(model) == ["one", "A2", "two", "A5"]
        last = await ask(server, "one", "A2", "two", "A5 A8", "four")
        assert last.headers["x-session-id"] == on.headers["x-session-id"]
        assert shown(model) == ["one", "A2", "two", "A5", "A8", "four"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_name_whose_first_turn_was_discarded_means_the_retry(streamed: bool) -> None:
    """Else the conversation is in no list, and whoever names it from elsewhere finds it empty."""
    model = ScriptedModel(fails(status=503), "Yes.", "Again.")
    body = {"model": "root", "stream": streamed, "messages": [{"role": "user", "content": "Hi"}]}
    async with serving(agent(model)) as server:
        for _ in range(2):
            await server.request(
                "POST",
                "/c/task/v1/chat/completions",
                headers={"Content-Type": "application/json"},
                data=msgspec.json.encode(body),
            )
        (listed,) = (await server.get("/api/sessions")).json["sessions"]
        await server.chat("And?", to="task")
        items = await server.items("task")
    assert listed["keys"] == ["task"] and listed["title"] == "Hi"
    assert [each["type"] for each in items] == ["user", "assistant"] * 2
