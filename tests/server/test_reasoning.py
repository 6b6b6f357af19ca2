"""What a model thinks: heard, kept, sent back to who wants it, and shown to who asks."""

from __future__ import annotations

import pytest

from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.models.servers import SERVERS
from holdfast.testing import FakeUpstream, ScriptedModel, says
from tests.server.stubs import HeldTool, agent, serving

SHOW = {"X-Show-Reasoning": "true"}


def thinker() -> ScriptedModel:
    return ScriptedModel(
        says("Let me see.", thinks=["First ", "look."], calls=[("look", "{}")]),
        says("Cold.", thinks=["It snows."]),
    )


async def test_a_client_that_asks_is_shown_it_in_a_stream_and_in_one_piece() -> None:
    for stream in (False, True):
        async with serving(agent(thinker(), HeldTool("look", held=False))) as server:
            answer = await server.chat("Well?", to="trip", stream=stream, headers=SHOW)
        if stream:
            deltas = [each["choices"][0]["delta"] for each in answer.events[:-1] if each["choices"]]
            thought = "".join(each.get("reasoning_content", "") for each in deltas)
            said = "".join(each.get("content", "") for each in deltas)
        else:
            thought = answer.json["choices"][0]["message"]["reasoning_content"]
            said = answer.text
        assert (thought, said) == ("First look.\n\nIt snows.", "Let me see.\n\nCold.")


async def test_nobody_else_is() -> None:
    for stream in (False, True):
        async with serving(agent(thinker(), HeldTool("look", held=False))) as server:
            answer = await server.chat("Well?", to="trip", stream=stream)
            items = await server.items("trip")
        assert b"reasoning_content" not in answer.body
        assert [each["text"] for each in items if each["type"] == "reasoning"] == [
            "First look.",
            "It snows.",
        ], "it is kept, for people to see"


async def test_a_stream_that_is_had_again_shows_the_same() -> None:
    async with serving(agent(thinker(), HeldTool("look", held=False))) as server:
        headers = {**SHOW, "Idempotency-Key": "k1"}
        first = await server.chat("Well?", to="trip", headers=headers)
        again = await server.chat("Well?", to="trip", headers=headers)
    assert first.json["choices"] == again.json["choices"]


@pytest.mark.parametrize("wanted", [False, True])
async def test_who_wants_it_back_gets_it_with_the_calls_that_came_of_it(wanted: bool) -> None:
    scripts = (
        says("", thinks=["Look ", "first."], calls=[("look", "{}")]),
        says("Cold.", thinks=["It snows."]),
        says("Still."),
    )
    async with FakeUpstream(*scripts) as upstream:
        model = OpenAIModel(
            "m", base_url=upstream.base_url, reasoning_back=wanted, proxy="", token_key=""
        )
        async with serving(agent(model, HeldTool("look", held=False))) as server:
            await server.chat("Well?", to="trip")
            await server.chat("And now?", to="trip")
        await model.close()
    sent = [
        [each.get("reasoning_content") for each in request.json["messages"] if "tool_calls" in each]
        for request in upstream.requests
    ]
    expected = "Look first." if wanted else None
    assert sent == [[], [expected], [expected]], "the same in later turns: caches know a beginning"
    said = [each for each in upstream.requests[2].json["messages"] if each["role"] == "assistant"]
    assert "reasoning_content" not in said[-1], "without calls it is nobody's"


def test_which_servers_want_it_back_is_data() -> None:
    assert {name for name, each in SERVERS.items() if each.reasoning_back} == {
        "deepseek",
        "moonshot",
    }
