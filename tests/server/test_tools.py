"""Tools that the client runs, and tools that it does not see."""

from __future__ import annotations

from typing import Any

from holdfast.testing import ScriptedModel, says
from tests.server.stubs import HeldTool, agent, serving

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}, "description": "the weather"},
}


def result(call_id: str, said: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": said}


def two_calls() -> ScriptedModel:
    return ScriptedModel(
        says(
            "Let me look.",
            calls=[("weather", '{"in": "Oslo"}', "c1"), ("weather", '{"in": "Rome"}', "c2")],
        ),
        "Cold, and warm.",
    )


async def test_a_turn_ends_with_calls_for_the_client_and_goes_on_with_its_results() -> None:
    model = two_calls()
    async with serving(agent(model)) as server:
        asked = await server.chat("Weather?", to="trip", tools=[WEATHER])
        answer = await server.chat(
            result("c1", "-5"), result("c2", "20"), to="trip", tools=[WEATHER]
        )
    choice = asked.json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"in": "Oslo"}'},
        },
        {
            "id": "c2",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"in": "Rome"}'},
        },
    ]
    assert answer.text == "Cold, and warm."
    assert [each.role for each in model.messages(1)] == ["user", "assistant", "tool", "tool"]


async def test_calls_are_streamed_with_their_name_once_and_their_index_always() -> None:
    async with serving(agent(two_calls())) as server:
        answer = await server.chat("Weather?", to="trip", tools=[WEATHER], stream=True)
    deltas = [each["choices"][0]["delta"] for each in answer.events[:-1]]
    calls = [each for delta in deltas for each in delta.get("tool_calls", [])]
    assert [each["index"] for each in calls] == [0, 0, 0, 1, 1, 1]
    assert [each.get("id") for each in calls] == ["c1", None, None, "c2", None, None]
    assert [each["function"].get("name") for each in calls if "id" in each] == ["weather"] * 2
    whole = ["", ""]
    for each in calls:
        whole[each["index"]] += each["function"]["arguments"]
    assert whole == ['{"in": "Oslo"}', '{"in": "Rome"}']
    assert answer.events[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_calls_without_words_have_no_content() -> None:
    model = ScriptedModel(says(calls=[("weather", "{}", "c1")]))
    async with serving(agent(model)) as server:
        answer = await server.chat("Weather?", to="trip", tools=[WEATHER])
    assert answer.json["choices"][0]["message"]["content"] is None


async def test_some_results_but_not_all_are_refused_with_the_missing_ids() -> None:
    async with serving(agent(two_calls())) as server:
        await server.chat("Weather?", to="trip", tools=[WEATHER])
        answer = await server.chat(result("c1", "-5"), to="trip", tools=[WEATHER])
        right = await server.chat(result("c2", "20"), result("c1", "-5"), to="trip")
    assert (answer.status, answer.error["code"]) == (400, "tool_results_missing")
    assert "c2" in answer.error["message"] and "c1" not in answer.error["message"]
    assert right.status == 200


async def test_a_result_for_no_call_is_refused_in_the_words_that_clients_know() -> None:
    async with serving(agent(two_calls())) as server:
        answer = await server.chat(result("nope", "-5"), to="trip")
    assert answer.status == 400
    assert (
        answer.error["message"] == "No tool call found for function call output with call_id nope."
    )


async def test_a_message_instead_of_results_closes_the_calls() -> None:
    model = two_calls()
    async with serving(agent(model)) as server:
        await server.chat("Weather?", to="trip", tools=[WEATHER])
        answer = await server.chat("Never mind.", to="trip")
        items = await server.items("trip")
    assert answer.status == 200
    assert [each["outcome"] for each in items if each["type"] == "result"] == ["not_answered"] * 2
    assert [each.role for each in model.messages(1)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]


async def test_a_client_that_resends_everything_may_bring_results_with_it() -> None:
    model = two_calls()
    async with serving(agent(model)) as server:
        asked = await server.chat("Weather?", to="trip", tools=[WEATHER])
        said = asked.json["choices"][0]["message"]
        await server.chat("Weather?", said, result("c1", "-5"), result("c2", "20"), to="trip")
        items = await server.items("trip")
    assert [each["type"] for each in items] == [
        "user",
        "assistant",
        "call",
        "call",
        "result",
        "result",
        "assistant",
    ]


async def test_a_stateless_client_runs_its_tools_too() -> None:
    model = two_calls()
    async with serving(agent(model)) as server:
        asked = await server.chat("Weather?", tools=[WEATHER])
        said = asked.json["choices"][0]["message"]
        answer = await server.chat(
            "Weather?", said, result("c1", "-5"), result("c2", "20"), tools=[WEATHER]
        )
    assert answer.text == "Cold, and warm."
    assert answer.json["choices"][0]["finish_reason"] == "stop"


async def test_the_agents_own_tools_stay_inside() -> None:
    for stream in (False, True):
        model = ScriptedModel(says("One moment.", calls=[("act", "{}")]), "Done.")
        async with serving(agent(model, HeldTool(held=False))) as server:
            answer = await server.chat("Do it", to="trip", stream=stream)
        assert b"tool_calls" not in answer.body and b"act" not in answer.body.replace(b"exact", b"")
        assert (answer.streamed if stream else answer.text) == "One moment.\n\nDone."


async def test_the_trail_of_tools_is_shown_to_whoever_asks() -> None:
    show = {"X-Show-Tools": "true"}
    model = ScriptedModel(says(calls=[("act", '{"a": 1}')]), "Done.")
    async with serving(agent(model, HeldTool(held=False))) as server:
        answer = await server.chat("Do it", to="trip", headers=show)
    (call,) = answer.json["holdfast"]["tools"]
    assert (call["name"], call["arguments"], call["outcome"]) == ("act", '{"a": 1}', "ok")

    model = ScriptedModel(says(calls=[("act", '{"a": 1}')]), "Done.")
    async with serving(agent(model, HeldTool(held=False))) as server:
        answer = await server.chat("Do it", to="trip", headers=show, stream=True)
    trail = [each["holdfast"] for each in answer.events[:-1] if "holdfast" in each]
    assert trail[0]["tool_started"]["name"] == trail[1]["tool_finished"]["name"] == "act"
    assert trail[1]["tool_finished"]["outcome"] == "ok"
    assert answer.streamed == "Done."


async def test_tools_of_other_types_are_left_alone_and_named() -> None:
    async with serving(agent(ScriptedModel("Hi."))) as server:
        answer = await server.chat("Hi", tools=[WEATHER, {"type": "web_search"}])
    assert answer.status == 200
    assert answer.headers["x-ignored-params"] == "tools[1]"


# ── rounds that a client tells in its own way ────────────────────────────────────────────────

ROUNDS = (
    says("First Oslo.", calls=[("weather", "{}", "c1")]),
    says("Now Rome.", calls=[("weather", "{}", "c2")]),
    "Cold, and warm.",
    "Bye.",
)


async def test_a_chat_client_may_tell_several_rounds_as_one_answer() -> None:
    model = ScriptedModel(*ROUNDS)
    question = {"role": "user", "content": "Weather?"}
    calls = [
        {"id": each, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        for each in ("c1", "c2")
    ]
    both = {"role": "assistant", "content": "First Oslo.\n\nNow Rome.", "tool_calls": calls}
    results = [result("c1", "-5"), result("c2", "20")]
    async with serving(agent(model)) as server:
        await server.chat(question, to="trip", tools=[WEATHER])
        first = {**both, "content": "First Oslo.", "tool_calls": calls[:1]}
        await server.chat(question, first, results[0], to="trip", tools=[WEATHER])
        told: list[dict[str, Any]] = [question, both, *results]
        answer = await server.chat(*told, to="trip", tools=[WEATHER])
        told += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "Bye"}]
        last = await server.chat(*told, to="trip", tools=[WEATHER])
        kinds = [each["type"] for each in await server.items("trip")]
    for each in (answer, last):
        assert each.status == 200 and "x-conversation-diverged" not in each.headers, each.body
    rounds = ["assistant", "call", "result"] * 2
    assert kinds == ["user", *rounds, "assistant", "user", "assistant"]


async def test_a_client_may_send_all_results_again_with_the_last_response() -> None:
    """With its question and what was said to it, but without the calls: the results name them."""
    model = ScriptedModel("Hello.", *ROUNDS)
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    output = {"type": "function_call_output"}
    told = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "First Oslo."}]},
        {**output, "call_id": "c1", "output": "-5"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Now Rome."}]},
        {**output, "call_id": "c2", "output": "20"},
    ]
    async with serving(agent(model)) as server:
        answer = await server.respond("Hi")
        for upto in (1, 3, 5):
            previous = answer.json["id"]
            answer = await server.respond(told[:upto], previous_response_id=previous, tools=[tool])
            assert answer.status == 200 and "x-conversation-diverged" not in answer.headers
        line = answer.headers["x-session-id"]
        kinds = [each["type"] for each in await server.items(line)]
    rounds = ["assistant", "call", "result"] * 2
    assert kinds == ["user", "assistant", "user", *rounds, "assistant"]
