"""`/v1/responses`: the same sessions by another API. What the wire looks like, and what stays true."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta, ToolCallDelta
from holdfast.core.turns.events import Usage
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.testing.scripted_model import Script, fails
from tests.server.api.test_approvals import asks, careful
from tests.server.stubs import HeldTool, Serving, agent, another, serving, until

USAGE = Usage(input_tokens=7, output_tokens=3, cached_tokens=2, reasoning_tokens=1)
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def yes() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


def text(response: Any) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def heard(model: ScriptedModel, nth: int = -1) -> list[Any]:
    return [each.content for each in model.messages(nth)]


# ── one answer ───────────────────────────────────────────────────────────────────────────────


async def test_a_response_has_every_field_and_repeats_what_was_asked_for() -> None:
    async with serving(agent(ScriptedModel(says("Hello.", usage=USAGE)))) as server:
        answer = await server.respond(
            "Hi",
            instructions="Be nice.",
            temperature=0.5,
            metadata={"a": "1"},
            tools=[WEATHER],
            max_output_tokens=100,
            reasoning={"effort": "low"},
            user="u1",
        )
        again = await server.get(f"/v1/responses/{answer.json['id']}")
    assert answer.status == 200
    body = answer.json
    assert body["id"] == answer.headers["x-turn-id"].replace("turn_", "resp_")
    assert body["object"] == "response" and body["status"] == "completed"
    assert isinstance(body["created_at"], int) and isinstance(body["completed_at"], int)
    assert body["error"] is None and body["incomplete_details"] is None
    assert body["instructions"] == "Be nice." and body["temperature"] == 0.5
    assert body["metadata"] == {"a": "1"} and body["max_output_tokens"] == 100
    assert body["tools"] == [{**WEATHER, "description": None, "strict": None}]
    assert body["reasoning"] == {"effort": "low", "summary": None}
    assert (body["top_p"], body["truncation"], body["store"]) == (1.0, "disabled", True)
    assert body["text"] == {"format": {"type": "text"}} and body["tool_choice"] == "auto"
    assert body["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }
    (item,) = body["output"]
    assert item["id"].startswith("msg_") and item["status"] == "completed"
    assert item["content"] == [
        {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    ]
    assert again.json == body
    missing = set(
        "id object created_at completed_at status incomplete_details model previous_response_id "
        "instructions output error tools tool_choice truncation parallel_tool_calls text top_p "
        "temperature presence_penalty frequency_penalty top_logprobs reasoning usage "
        "max_output_tokens max_tool_calls store background service_tier metadata "
        "safety_identifier prompt_cache_key".split()
    ) - set(body)
    assert not missing


async def test_a_stream_ends_with_what_is_stored_by_then() -> None:
    """`response.completed` leaves after the commit: whoever reads at that moment finds everything."""
    async with serving(agent(ScriptedModel(says("Hel", "lo.", usage=USAGE)))) as server:
        answer = await server.respond("Hi", stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.named_events
        again = await server.get(f"/v1/responses/{events[0]['response']['id']}")
    assert [each["type"].removeprefix("response.") for each in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [each["sequence_number"] for each in events] == list(range(10))
    assert events[-1]["response"] == again.json


async def test_nothing_is_left_of_a_request_that_is_not_to_be_stored() -> None:
    store = MemoryStore()
    async with serving(agent(yes()), store=store) as server:
        answer = await server.respond("Hi", store=False)
        found = await server.get(f"/v1/responses/{answer.json['id']}")
        listed = await server.get("/api/sessions?anonymous=true")
        keyed = await server.respond("Hi", store=False, headers={"Idempotency-Key": "k"})
        named = await server.respond("Hi", store=False, headers={"X-Conversation-Id": "trip"})
        later = await server.respond("Hi", store=False, background=True)
    assert (answer.status, text(answer.json), answer.json["store"]) == (200, "Yes.", False)
    assert "x-session-id" not in answer.headers
    assert (found.status, found.error["message"]) == (
        404,
        f"Response with id '{answer.json['id']}' not found.",
    )
    assert listed.json["sessions"] == []
    assert [each.status for each in (keyed, named, later)] == [400, 400, 400]


async def test_instructions_are_for_one_request_and_system_messages_are_items() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.respond(
            [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "1"}],
            instructions="Shout.",
        )
        second = await server.respond("2", previous_response_id=first.json["id"])
        items = await server.get(f"/v1/responses/{first.json['id']}/input_items?order=asc")
    assert "Shout." in str(model.prompts[0])
    assert "Shout." not in str(model.prompts[1])
    assert "Rhyme." in str(model.prompts[1])
    assert second.json["instructions"] is None
    assert [each["role"] for each in items.json["data"]] == ["developer", "user"]


# ── lines ────────────────────────────────────────────────────────────────────────────────────


async def test_a_conversation_is_the_same_session_by_every_api() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.chat("one", to="trip")
        session_id = first.headers["x-session-id"]
        second = await server.respond("two", conversation=session_id)
        third = await server.respond("three", headers={"X-Conversation-Id": "trip"})
        fourth = await server.respond("four", conversation={"id": session_id})
        session = await server.get("/api/sessions/trip")
        chat_turn = await server.get(
            f"/v1/responses/{first.headers['x-turn-id'].replace('turn', 'resp')}"
        )
    assert heard(model) == ["one", "Yes.", "two", "Yes.", "three", "Yes.", "four"]
    assert second.json["conversation"] == {"id": session_id}
    assert third.headers["x-session-id"] == session_id
    assert fourth.headers["x-conversation-version"] == "4"
    assert session.json["version"] == 4
    assert (chat_turn.status, text(chat_turn.json)) == (200, "Yes.")


async def test_what_a_request_names_must_be_there_and_be_one_thing() -> None:
    async with serving(agent(yes())) as server:
        first = await server.respond("Hi")
        session_id, previous = first.headers["x-session-id"], first.json["id"]
        unknown_id = another(session_id)
        unknown = await server.respond("Hi", conversation=unknown_id)
        malformed = await server.respond("Hi", conversation="conv_1")
        both = await server.respond("Hi", conversation=session_id, previous_response_id=previous)
        named = await server.respond(
            "Hi", conversation=session_id, headers={"X-Conversation-Id": "trip"}
        )
        other = (await server.respond("Hi", headers={"X-Conversation-Id": "trip"})).json
        same = [
            await server.respond(
                "Hi", conversation=other["conversation"], headers={"X-Conversation-Id": each}
            )
            for each in ("trip", other["conversation"]["id"])
        ]
        wrong = await server.respond(
            "Hi", conversation=session_id, headers={"X-Conversation-Id": "trip"}
        )
        absent = await server.respond("Hi", previous_response_id=another(previous))
    assert (unknown.status, unknown.error["message"]) == (
        404,
        f"Conversation with id '{unknown_id}' not found.",
    )
    assert (malformed.status, malformed.error["param"]) == (400, "conversation")
    assert both.status == 400
    assert "previous_response_id" in both.error["message"]
    assert "conversation" in both.error["message"]
    assert (named.status, "X-Conversation-Id" in named.error["message"]) == (400, True)
    assert [each.status for each in (*same, wrong)] == [200, 200, 400]
    assert same[-1].headers["x-conversation-version"] == "3"
    assert (absent.status, absent.error["code"]) == (400, "previous_response_not_found")


async def test_a_previous_response_at_the_head_of_its_line_extends_it() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.respond("1")
        second = await server.respond("2", previous_response_id=first.json["id"])
    assert heard(model) == ["1", "Yes.", "2"]
    assert second.headers["x-session-id"] == first.headers["x-session-id"]
    assert second.json["previous_response_id"] == first.json["id"]
    assert second.json["conversation"] is None


async def test_two_children_of_one_response_are_independent_and_never_wait() -> None:
    gate = Gate()
    model = ScriptedModel("One.", says("Two.").waiting(gate, at=0), "Three.", "Four.")
    async with serving(agent(model)) as server:
        first = (await server.respond("1")).json["id"]
        slow = asyncio.create_task(server.respond("2", previous_response_id=first))
        await gate.reached.wait()
        quick = await server.respond("3", previous_response_id=first)
        gate.release()
        late = await server.respond("4", previous_response_id=first)
        two = await slow
    assert text(quick.json) == "Three."
    assert heard(model, 2) == ["1", "One.", "3"]
    assert heard(model, 3) == ["1", "One.", "4"]
    lines = {each.headers["x-session-id"] for each in (two, quick, late)}
    assert len(lines) == 3


async def test_a_named_conversation_advances_only_by_requests_that_name_it() -> None:
    async with serving(agent(yes())) as server:
        first = await server.chat("1", to="trip")
        previous = first.headers["x-turn-id"].replace("turn_", "resp_")
        aside = await server.respond("2", previous_response_id=previous)
        trip = await server.get("/api/sessions/trip")
        listed = await server.get("/api/sessions")
    assert aside.status == 200
    assert aside.headers["x-session-id"] != first.headers["x-session-id"]
    assert trip.json["version"] == 1
    assert [each["id"] for each in listed.json["sessions"]] == [trip.json["id"]]


async def test_a_child_that_is_refused_leaves_no_line_behind() -> None:
    async with serving(agent(yes())) as server:
        first = await server.respond("1")
        await server.respond("2", previous_response_id=first.json["id"])
        before = (await server.get("/api/sessions?anonymous=true")).json["sessions"]
        orphan = {"type": "function_call_output", "call_id": "c9", "output": "x"}
        refused = await server.respond([orphan], previous_response_id=first.json["id"])
        after = (await server.get("/api/sessions?anonymous=true")).json["sessions"]
    assert (refused.status, refused.error["param"]) == (400, "input")
    assert (
        "No tool call found for function call output with call_id c9." in refused.error["message"]
    )
    assert before == after


async def test_a_busy_conversation_answers_as_it_does_to_chat() -> None:
    gate = Gate()
    model = ScriptedModel("One.", says("Two.").waiting(gate, at=0))
    async with serving(agent(model)) as server:
        conversation = (await server.respond("1")).headers["x-session-id"]
        slow = asyncio.create_task(server.respond("2", conversation=conversation))
        await gate.reached.wait()
        busy = await server.respond("3", conversation=conversation, headers={"X-On-Busy": "reject"})
        gate.release()
        await slow
    assert (busy.status, busy.error["code"]) == (409, "conversation_locked")
    assert busy.headers["x-should-retry"] == "true"


# ── tools and references ─────────────────────────────────────────────────────────────────────


async def test_a_call_of_the_clients_is_answered_by_its_next_request() -> None:
    model = ScriptedModel(says("Let me see.", calls=[("weather", "{}", "c1")]), "Cold.")
    async with serving(agent(model)) as server:
        first = await server.respond("Oslo?", tools=[WEATHER], stream=True)
        *_, done = first.named_events
        said, made = done["response"]["output"]
        result = {"type": "function_call_output", "call_id": "c1", "output": "-3"}
        second = await server.respond(
            [result], previous_response_id=done["response"]["id"], tools=[WEATHER]
        )
        items = await server.get(f"/v1/responses/{second.json['id']}/input_items")
    assert (said["type"], made["type"]) == ("message", "function_call")
    assert (made["call_id"], made["name"], made["arguments"]) == ("c1", "weather", "{}")
    assert text(second.json) == "Cold."
    (shown,) = items.json["data"]
    assert (shown["type"], shown["call_id"], shown["output"]) == (
        "function_call_output",
        "c1",
        "-3",
    )


async def test_a_client_may_keep_the_history_itself_and_refer_to_items() -> None:
    """As one SDK does it: nothing is named, and what was said before comes as references."""
    model = ScriptedModel(
        "Hello.", says("Let me see.", calls=[("weather", "{}", "c1")]), "Cold.", "Bye."
    )
    async with serving(agent(model)) as server:
        one = {"role": "user", "content": "Hi"}
        first = (await server.respond([one])).json["output"][0]["id"]
        two = [one, {"type": "item_reference", "id": first}, {"role": "user", "content": "Oslo?"}]
        second = (await server.respond(two, tools=[WEATHER])).json["output"]
        three = [
            *two,
            *({"type": "item_reference", "id": each["id"]} for each in second),
            {"type": "function_call_output", "call_id": "c1", "output": "-3"},
        ]
        third = await server.respond(three, tools=[WEATHER])
        unknown = await server.respond([{"type": "item_reference", "id": "msg_1"}, one])
        strange = await server.respond([{"type": "item_reference", "id": another(first)}, one])
    assert text(third.json) == "Cold."
    assert [each.role for each in model.messages(2)] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]
    assert (unknown.status, unknown.error["message"]) == (404, "Item with id 'msg_1' not found.")
    assert strange.status == 404


async def test_the_text_of_a_step_may_come_after_its_calls() -> None:
    """As one framework tells its history: calls, then the text that came before them, then the results."""
    call = {"type": "function_call", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "output": "-3"}
    model = ScriptedModel("Cold.")
    async with serving(agent(model)) as server:
        told = [
            {"role": "user", "content": "Oslo, Rome?"},
            *({**call, "call_id": each} for each in ("c1", "c2")),
            {"role": "assistant", "content": "Let me see."},
            *({**result, "call_id": each} for each in ("c1", "c2")),
        ]
        answer = await server.respond(told, tools=[WEATHER])
    assert answer.status == 200
    assert [each.role for each in model.messages()] == ["user", "assistant", "tool", "tool"]


async def test_the_agents_own_tools_are_shown_on_request_only() -> None:
    tool = HeldTool("look", held=False)
    script = says(calls=[("look", "{}")])
    model = ScriptedModel(script, "Done.", script, "Done.", script, "Done.")
    async with serving(agent(model, tool)) as server:
        plain = await server.respond("1")
        asked = await server.respond("2", include=["holdfast.tool_calls"])
        header = await server.respond("3", headers={"X-Show-Tools": "true"}, stream=True)
    assert [each["type"] for each in plain.json["output"]] == ["message"]
    assert [each["type"] for each in asked.json["output"]] == ["mcp_call", "message"]
    assert asked.json["output"][0]["output"] == "done"
    last = header.named_events[-1]["response"]
    assert [each["type"] for each in last["output"]] == ["mcp_call", "message"]


# ── failures ─────────────────────────────────────────────────────────────────────────────────


async def test_a_failure_is_a_status_before_the_stream_and_an_event_after() -> None:
    model = ScriptedModel(
        fails(status=503), fails(status=503), says("Half ", "of it").failing(at=1)
    )
    async with serving(agent(model)) as server:
        plain = await server.respond("1")
        early = await server.respond("2", stream=True)
        late = await server.respond("3", stream=True)
        events = late.named_events
        found = await server.get(f"/v1/responses/{events[0]['response']['id']}")
    assert (plain.status, plain.error["code"]) == (502, "upstream_error")
    assert early.status == 502
    assert events[-1]["type"] == "response.failed"
    failed = events[-1]["response"]
    assert failed["status"] == "failed" and failed["error"]["code"] == "server_error"
    assert found.json["status"] == "failed" and found.json["error"] == failed["error"]
    assert found.json["output"] == []


async def test_an_answer_that_was_cut_short_is_incomplete() -> None:
    """The response, and of its items the one that was cut: in its answer, as a stream and later, alike."""
    words = says("As long as", finish="length")
    call = says("Let me see.", calls=[("weather", '{"in":"Os')], finish="length")
    shapes = [
        (words, [("message", "incomplete")]),
        (call, [("message", "completed"), ("function_call", "incomplete")]),
    ]
    for script, shape in shapes:
        async with serving(agent(ScriptedModel(*[script] * 2))) as server:
            ask = partial(server.respond, max_output_tokens=16, tools=[WEATHER])
            plain = await ask("1")
            streamed = await ask("2", stream=True)
            last = streamed.named_events[-1]
            found = await server.get(f"/v1/responses/{plain.json['id']}")
            again = await server.get(f"/v1/responses/{last['response']['id']}")
            told = await server.get(f"/v1/responses/{plain.json['id']}?stream=true")
        assert (plain.status, plain.json["status"]) == (200, "incomplete")
        assert plain.json["incomplete_details"] == {"reason": "max_output_tokens"}
        assert last["type"] == "response.incomplete"
        assert [(each["type"], each["status"]) for each in plain.json["output"]] == shape
        assert [(each["type"], each["status"]) for each in last["response"]["output"]] == shape
        assert found.json == plain.json == told.named_events[-1]["response"]
        assert again.json == last["response"]


async def test_a_cut_text_is_incomplete_in_its_conversation_too() -> None:
    script = says("As long as", finish="length")
    async with serving(agent(ScriptedModel(script))) as server:
        answer = await server.respond("1", headers={"X-Conversation-Id": "trip"})
        path = f"/v1/conversations/{answer.headers['x-session-id']}/items"
        items = (await server.get(path)).json["data"]
        item = await server.get(f"{path}/{items[0]['id']}")
    assert [each["status"] for each in items] == ["incomplete", "completed"]
    assert item.json == items[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"said": "  "}, "no_new_user_message"),
        ({"said": []}, "no_new_user_message"),
        ({"said": "Hi", "model": "nobody"}, "model_not_found"),
        (
            {
                "said": "Hi",
                "tool_choice": {"type": "function", "function": {"name": "weather"}},
                "tools": [WEATHER],
            },
            "invalid_value",
        ),
    ],
)
async def test_what_cannot_become_a_turn_is_refused(body: dict[str, Any], code: str) -> None:
    async with serving(agent(yes())) as server:
        answer = await server.respond(body.pop("said"), **body)
    assert answer.error["code"] == code
    assert answer.status == (404 if code == "model_not_found" else 400)


# ── coming back ──────────────────────────────────────────────────────────────────────────────


async def test_the_same_request_under_a_key_gives_the_same_answer() -> None:
    model = ScriptedModel("One.")
    key = {"Idempotency-Key": "k1"}
    async with serving(agent(model)) as server:
        first = await server.respond("Hi", headers=key)
        again = await server.respond("Hi", headers=key)
        streamed = await server.respond("Hi", headers=key, stream=True)
    assert again.json == first.json
    assert (streamed.status, streamed.error["code"]) == (422, "idempotency_key_reused")
    assert len(model.prompts) == 1


async def test_a_replayed_stream_is_the_one_that_was_seen_live() -> None:
    """Event for event, also from the middle."""
    model = ScriptedModel(
        says("Let ", "me.", refuses=["No", "."], calls=[("look", '{"a": 1}')]),
        says("Do", "ne.", calls=[("weather", '{"b": 2}', "c1")]),
    )
    tool = HeldTool("look", held=False)
    async with serving(agent(model, tool)) as server:
        live, retried = [
            await server.respond(
                "Hi",
                stream=True,
                tools=[WEATHER],
                include=["holdfast.tool_calls"],
                headers={"Idempotency-Key": "k1"},
            )
            for _ in range(2)
        ]
        events = live.named_events
        path = f"/v1/responses/{events[0]['response']['id']}?stream=true"
        again = await server.get(path)
        rest = [await server.get(f"{path}&starting_after={n}") for n in range(len(events))]
        wrong = await server.get(f"{path}&starting_after=soon")
    assert again.body == retried.body == live.body
    for n, each in enumerate(rest):
        assert each.named_events == events[n + 1 :]
    assert (wrong.status, wrong.error["param"]) == (400, "starting_after")


async def test_a_plain_response_can_be_had_as_a_stream_too() -> None:
    async with serving(agent(ScriptedModel(says("Hel", "lo.")))) as server:
        plain = await server.respond("Hi")
        answer = await server.get(f"/v1/responses/{plain.json['id']}?stream=true")
    assert answer.named_events[-1]["response"] == plain.json


async def test_calls_that_a_provider_sends_side_by_side_are_told_one_after_the_other() -> None:
    """Live, to a retry, and to a client that resumes: clients give arguments to the item that they saw last."""
    weather = partial(ToolCallDelta, name="weather")
    script = Script(
        TextDelta(text="Let me see."),
        weather(index=0, call_id="w0", arguments='{"in":'),
        weather(index=1, call_id="w1", arguments='{"in":"Os'),
        weather(index=0, arguments='"Rome"}'),
        weather(index=1, arguments='lo"}'),
        FinishDelta(finish="tool_calls"),
    )
    async with serving(agent(ScriptedModel(script))) as server:
        live = await server.respond(
            "Hi", stream=True, tools=[WEATHER], headers={"Idempotency-Key": "k"}
        )
        path = f"/v1/responses/{live.named_events[0]['response']['id']}"
        resumed = await server.get(f"{path}?stream=true&starting_after=6")
        whole = await server.get(path)
    order = [
        (each["output_index"], each["item"].get("arguments"))
        for each in live.named_events
        if each["type"] == "response.output_item.done"
    ]
    assert order == [(0, None), (1, '{"in":"Rome"}'), (2, '{"in":"Oslo"}')]
    assert resumed.named_events == live.named_events[7:]
    assert whole.json == live.named_events[-1]["response"]


# ── reasoning ────────────────────────────────────────────────────────────────────────────────

THINKS = says("Yes.", thinks=["Let me ", "see."])


async def test_thoughts_are_shown_to_those_who_ask_for_them() -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"reasoning": {"effort": "low"}},
        {"reasoning": {"summary": "auto"}},
        {"include": ["reasoning.encrypted_content"]},
    ]
    async with serving(agent(ScriptedModel(*[THINKS] * 4))) as server:
        found = [(await server.respond("Hi", **each)).json for each in asked]
        again = [(await server.get(f"/v1/responses/{each['id']}")).json for each in found]
        items = (await server.get(f"/v1/responses/{found[2]['id']}/input_items")).json["data"]
    assert again == found
    kinds = [[each["type"] for each in response["output"]] for response in found]
    assert kinds == [["message"], ["message"], ["reasoning", "message"], ["reasoning", "message"]]
    shown, sealed = found[2]["output"][0], found[3]["output"][0]
    assert shown["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert (shown["encrypted_content"], shown["status"]) == (None, "completed")
    assert (sealed["summary"], sealed["encrypted_content"]) == ([], None), "nobody has sealed it"
    assert [each["role"] for each in items] == ["user"]


async def test_thoughts_are_streamed_as_they_come() -> None:
    async with serving(agent(ScriptedModel(THINKS))) as server:
        answer = await server.respond("Hi", stream=True, reasoning={"summary": "detailed"})
        again = await server.get(
            f"/v1/responses/{answer.named_events[0]['response']['id']}?stream=true"
        )
    names = [each["type"].removeprefix("response.") for each in answer.named_events]
    assert names[2:10] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ]
    last, told = answer.named_events[-1]["response"], again.named_events[-1]["response"]
    assert [each["type"] for each in last["output"]] == ["reasoning", "message"]
    assert told == last


async def test_a_thought_that_is_referred_to_or_told_again_disturbs_nobody() -> None:
    model = ScriptedModel(THINKS, says("Well."), says("Fine."))
    async with serving(agent(model)) as server:
        first = (await server.respond("Hi", reasoning={"summary": "auto"})).json
        references = [{"type": "item_reference", "id": each["id"]} for each in first["output"]]
        hi = {"role": "user", "content": "Hi"}
        for before in (references, first["output"]):
            said = [hi, *before, {"role": "user", "content": "And?"}]
            assert (await server.respond(said)).status == 200
            assert heard(model) == ["Hi", "Yes.", "And?"]


# ── background ───────────────────────────────────────────────────────────────────────────────


async def state(server: Serving, name: str) -> str:
    found: str = (await server.get(f"/v1/responses/{name}")).json["status"]
    return found


async def test_a_background_response_is_queued_runs_and_can_be_followed() -> None:
    gate = Gate()
    model = ScriptedModel(says("Hel", "lo.").waiting(gate, at=1))
    async with serving(agent(model)) as server:
        queued = await server.respond("Hi", background=True)
        name = queued.json["id"]
        await gate.reached.wait()
        running = await server.get(f"/v1/responses/{name}")
        following = asyncio.create_task(server.get(f"/v1/responses/{name}?stream=true"))
        gate.release()
        events = (await following).named_events
        done = await server.get(f"/v1/responses/{name}")
    assert (queued.status, queued.json["status"], queued.json["output"]) == (200, "queued", [])
    assert running.json["status"] == "in_progress" and running.json["background"] is True
    assert [each["type"] for each in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert events[-1]["response"] == done.json
    assert text(done.json) == "Hello."


async def test_cancelling_a_background_response_is_final_and_may_be_repeated() -> None:
    gate = Gate()
    model = ScriptedModel(says("Hel", "lo.").waiting(gate, at=1), "Yes.")
    async with serving(agent(model)) as server:
        name = (await server.respond("Hi", background=True)).json["id"]
        await gate.reached.wait()
        first = await server.request("POST", f"/v1/responses/{name}/cancel")
        again = await server.request("POST", f"/v1/responses/{name}/cancel")
        assert await state(server, name) == "cancelled"
        streamed = await server.get(f"/v1/responses/{name}?stream=true")
        plain = (await server.respond("Hi")).json["id"]
        refused = await server.request("POST", f"/v1/responses/{plain}/cancel")
    assert (first.status, first.json["status"], first.json["error"]) == (200, "cancelled", None)
    assert again.json == first.json
    assert streamed.named_events[-1]["type"] == "response.failed"
    assert streamed.named_events[-1]["response"]["status"] == "cancelled"
    assert refused.status == 400
    assert refused.error["message"].startswith("Cannot cancel a synchronous response.")


# ── reading and hiding ───────────────────────────────────────────────────────────────────────


async def test_a_deleted_response_is_gone_and_its_history_is_not() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        first = await server.respond("1", headers={"X-Conversation-Id": "trip"})
        path = f"/v1/responses/{first.json['id']}"
        deleted = await server.request("DELETE", path)
        found = await server.get(path)
        twice = await server.request("DELETE", path)
        child = await server.respond("2", previous_response_id=first.json["id"])
        await server.respond("3", headers={"X-Conversation-Id": "trip"})
    assert deleted.json == {"id": first.json["id"], "object": "response", "deleted": True}
    assert found.status == twice.status == 404
    assert (child.status, child.error["code"]) == (400, "previous_response_not_found")
    assert heard(model) == ["1", "Yes.", "3"]


async def test_input_items_come_in_pages() -> None:
    said = [{"role": "user", "content": f"{n}"} for n in range(5)]
    async with serving(agent(yes())) as server:
        name = (await server.respond(said)).json["id"]
        path = f"/v1/responses/{name}/input_items"
        newest = (await server.get(f"{path}?limit=2")).json
        rest = (await server.get(f"{path}?limit=3&after={newest['last_id']}")).json
        oldest = (await server.get(f"{path}?order=asc&limit=1")).json
        wrong = [
            await server.get(f"{path}?{each}") for each in ("limit=0", "limit=101", "order=up")
        ]
        lost = await server.get(f"{path}?after=msg_1")

    def words(page: Any) -> list[str]:
        return [each["content"][0]["text"] for each in page["data"]]

    assert (words(newest), newest["has_more"]) == (["4", "3"], True)
    assert (words(rest), rest["has_more"]) == (["2", "1", "0"], False)
    assert (words(oldest), oldest["has_more"]) == (["0"], True)
    assert newest["first_id"] == newest["data"][0]["id"]
    assert [each.status for each in (*wrong, lost)] == [400] * 4


async def test_an_image_comes_back_as_it_was_sent() -> None:
    data = "data:image/png;base64," + "aGVsbG8h" * 20_000  # too large to lie in an item
    parts = [{"type": "input_image", "image_url": data}]
    async with serving(agent(yes())) as server:
        name = (await server.respond([{"role": "user", "content": parts}])).json["id"]
        items = await server.get(f"/v1/responses/{name}/input_items")
    (part,) = items.json["data"][0]["content"]
    assert (part["type"], part["image_url"]) == ("input_image", data)


async def test_whatever_a_turn_was_like_its_stream_can_be_had_again() -> None:
    """Event for event what a live watcher saw, for replayable turns; told whole, for the others."""
    dice = random.Random(7)
    scripts: list[Script] = []

    def words() -> list[str]:
        return [dice.choice(["a", "é ", "\u2028", '"', "\n", "long " * 9]) for _ in range(3)]

    def step(*calls: tuple[str, str, str]) -> Script:
        said = words() if dice.random() < 0.7 else []
        refuses = ["No."] if dice.random() < 0.2 else []
        thinks = ["Hm."] if dice.random() < 0.3 else []
        return says(*said, thinks=thinks, refuses=refuses, calls=calls)

    tool, seen = HeldTool("look", held=False), 0
    async with serving(agent(ScriptedModel(otherwise=lambda _: scripts.pop(0)), tool)) as server:
        for n in range(25):
            scripts[:] = [step(("look", '{"n": 1}', f"l{i}")) for i in range(dice.randrange(3))]
            theirs = [("weather", '{"a": "b"}', "w1")] if dice.random() < 0.3 else []
            last = step(*theirs)
            fails_late = dice.random() < 0.2 and len(last.steps) > 2
            scripts.append(last.failing(at=2) if fails_late else last)
            keyed = n % 2 == 0
            live = await server.respond(
                "Hi",
                stream=True,
                tools=[WEATHER],
                headers={
                    "X-Show-Tools": dice.choice(["true", "false"]),
                    **({"Idempotency-Key": f"k{n}"} if keyed else {}),
                },
            )
            if live.status != 200:
                continue
            seen += 1
            events = live.named_events
            assert [each["sequence_number"] for each in events] == list(range(len(events)))
            path = f"/v1/responses/{events[0]['response']['id']}"
            again = await server.get(f"{path}?stream=true")
            if keyed:
                assert again.body == live.body
            if events[-1]["type"] == "response.completed":
                assert again.named_events[-1]["response"] == events[-1]["response"]
                assert (await server.get(path)).json == events[-1]["response"]
    assert seen > 20


async def test_a_call_that_waits_for_leave_is_named_beside_the_answer() -> None:
    tool = HeldTool("pay", held=False)
    model = asks(("pay", '{"eur": 5}'))
    async with serving(careful(model, tool)) as server:
        first = await server.respond("Pay the bill", stream=True)
        last = first.named_events[-1]["response"]
        (waiting,) = last["holdfast"]["approvals"]
        second = await server.respond(
            [], previous_response_id=last["id"], headers={"X-Approve": waiting["id"]}
        )
    assert waiting["name"] == "pay" and text(last).startswith("May I?")
    assert last["holdfast"]["version"] == 1
    assert (second.status, text(second.json), tool.runs) == (200, "Very well.", 1)


async def test_an_sdks_own_retry_joins_the_turn_that_runs() -> None:
    """By the conversation, and by the response that it goes on from; no key was sent."""
    gates = [Gate(), Gate()]
    model = ScriptedModel("One.", *(says("Two.").waiting(each, at=0) for each in gates))
    async with serving(agent(model)) as server:
        first = await server.respond("1")
        last = first.json["id"]
        for gate, way in zip(gates, ("conversation", "previous_response_id"), strict=True):
            name = {way: first.headers["x-session-id"] if way == "conversation" else last}
            attempts = []
            for count in ("0", "1"):
                headers = {"x-stainless-retry-count": count}
                asked = server.respond("2", headers=headers, **name)
                attempts.append(asyncio.create_task(asked))
                await gate.reached.wait()
            await until(lambda: server.sessions._owner.playing[0]._clients >= 2)
            gate.release()
            one, other = [(await each).json for each in attempts]
            assert one == other
            last = one["id"]
    assert len(model.prompts) == 3
