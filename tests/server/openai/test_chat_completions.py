"""`POST /v1/chat/completions`: naming, headers, answers. What the wire looks like when all goes well."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.core.turns.events import FORCED_TOOL_CHOICE, Parameters, Usage
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import agent, serving

USAGE = Usage(input_tokens=7, output_tokens=3, cached_tokens=2, reasoning_tokens=1)


async def test_a_json_answer_has_everything_that_clients_look_at() -> None:
    async with serving(agent(ScriptedModel(says("Hello, ", "you.", usage=USAGE)))) as server:
        answer = await server.chat("Hi", to="trip")

    assert answer.status == 200
    body = answer.json
    assert re.fullmatch(r"chatcmpl-[0-9a-z]{26}", body["id"])
    assert body["object"] == "chat.completion"
    assert isinstance(body["created"], int)
    assert body["model"] == "root"
    (choice,) = body["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello, you.", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 3, 10)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 1
    assert body["holdfast"] == {"turn_id": answer.headers["x-turn-id"], "version": 1}


async def test_answers_say_which_conversation_and_which_version_they_are_about() -> None:
    async with serving(agent(ScriptedModel("One.", "Two."))) as server:
        first = (await server.chat("1", to="trip")).headers
        second = (await server.chat("2", to="trip")).headers

    assert first["x-conversation-id"] == second["x-conversation-id"] == "trip"
    assert first["x-session-id"] == second["x-session-id"]
    assert first["x-session-id"].startswith("conv_")
    assert first["x-turn-id"] != second["x-turn-id"]
    assert (first["x-conversation-base"], first["x-conversation-version"]) == ("0", "1")
    assert (second["x-conversation-base"], second["x-conversation-version"]) == ("1", "2")
    assert first["x-conversation-created"] == "true"
    assert "x-conversation-created" not in second
    assert (
        first["x-request-id"].startswith("req_") and first["x-request-id"] != second["x-request-id"]
    )
    assert first["openai-version"] == "2020-10-01"
    assert int(first["openai-processing-ms"]) >= 0


async def test_a_stream_is_chunks_of_one_answer_and_says_its_version_with_the_finish() -> None:
    model = ScriptedModel(says("Hello, ", "you.", usage=USAGE))
    async with serving(agent(model)) as server:
        answer = await server.chat(
            "Hi", to="trip", stream=True, stream_options={"include_usage": True}
        )

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-conversation-base"] == "0"
    assert answer.headers["x-request-id"].startswith("req_")
    *chunks, usage, done = answer.events
    assert done == "[DONE]"
    assert len({(each["id"], each["created"], each["model"]) for each in (*chunks, usage)}) == 1
    assert all(each["object"] == "chat.completion.chunk" for each in (*chunks, usage))
    assert [each["choices"][0]["delta"] for each in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "Hello, "},
        {"content": "you."},
        {},
    ]
    assert [each["choices"][0]["finish_reason"] for each in chunks] == [None, None, None, "stop"]
    assert all(each["usage"] is None for each in chunks)
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] == 10
    assert chunks[-1]["holdfast"] == {"turn_id": answer.headers["x-turn-id"], "version": 1}


async def test_without_being_asked_for_usage_a_stream_has_none() -> None:
    async with serving(agent(ScriptedModel(says("Hi.", usage=USAGE)))) as server:
        answer = await server.chat("Hi", stream=True)
    assert all("usage" not in each for each in answer.events[:-1])
    assert answer.streamed == "Hi."


# ── naming ───────────────────────────────────────────────────────────────────────────────────


async def test_a_key_continues_its_conversation_and_another_one_does_not() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        await server.chat("two", to="trip")
        await server.chat("three", to="Trip")
    assert [each.content for each in model.messages(1)] == ["one", "Yes.", "two"]
    assert [each.content for each in model.messages(2)] == ["three"]


async def test_an_alias_names_the_same_conversation() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        answer = await server.chat("two", headers={"X-OpenClaw-Session-Key": "trip"})
        twice = await server.chat("two", to="trip", headers={"X-OpenClaw-Session-Key": "other"})
    assert answer.headers["x-conversation-id"] == "trip"
    assert len(model.messages(1)) == 3
    assert (twice.status, twice.error["code"]) == (400, "invalid_conversation_key")


async def test_an_id_is_a_name_too_and_must_exist() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        first = await server.chat("one", to="trip")
        by_id = await server.chat("two", to=first.headers["x-session-id"])
        unknown = await server.chat("three", to="conv_" + "0" * 26)
    assert by_id.headers["x-session-id"] == first.headers["x-session-id"]
    assert by_id.headers["x-conversation-version"] == "2"
    assert (unknown.status, unknown.error["code"]) == (404, "conversation_not_found")
    assert unknown.error["message"] == f"Conversation with id 'conv_{'0' * 26}' not found."
    assert unknown.headers["x-conversation-id"] == "conv_" + "0" * 26
    assert unknown.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "conv_short", "naïve"])
async def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.chat("Hi", headers={"X-Conversation-Id": name})
    assert (answer.status, answer.error["code"]) == (400, "invalid_conversation_key")
    assert answer.error["param"] == "x-conversation-id"


async def test_create_never_makes_an_unknown_key_a_404() -> None:
    never = {"X-Conversation-Create": "never"}
    async with serving(agent(ScriptedModel("One.", "Two."))) as server:
        unknown = await server.chat("Hi", to="trip", headers=never)
        await server.chat("Hi", to="trip")
        known = await server.chat("Again", to="trip", headers=never)
        odd = await server.chat("Hi", to="trip", headers={"X-Conversation-Create": "maybe"})
    assert (unknown.status, unknown.error["code"]) == (404, "conversation_not_found")
    assert (known.status, known.text) == (200, "Two.")
    assert odd.status == 400


async def test_if_match_makes_the_version_a_precondition() -> None:
    async with serving(agent(ScriptedModel("One.", "Two."))) as server:
        await server.chat("Hi", to="trip", headers={"If-Match": '"0"'})
        late = await server.chat("Hi", to="trip", headers={"If-Match": '"0"'})
        right = await server.chat("Hi", to="trip", headers={"If-Match": '"1"'})
        odd = await server.chat("Hi", to="trip", headers={"If-Match": "1"})
    assert (late.status, late.error["code"]) == (412, "version_mismatch")
    assert late.headers["x-conversation-version"] == "1"
    assert late.headers["x-should-retry"] == "false"
    assert right.text == "Two."
    assert odd.status == 400


async def test_a_request_that_names_no_conversation_stores_nothing() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        answer = await server.chat("one")
        await server.chat("two")
        listed = await server.get("/api/sessions")
        lines = await server.get("/api/sessions?anonymous=true")
    assert [each.content for each in model.messages(1)] == ["two"]
    assert "x-session-id" not in answer.headers and "x-conversation-id" not in answer.headers
    assert answer.headers["x-turn-id"].startswith("turn_")
    assert answer.json["holdfast"] == {"turn_id": answer.headers["x-turn-id"]}
    assert listed.json["sessions"] == lines.json["sessions"] == []


async def test_an_answer_is_what_was_said_now_and_not_what_the_request_brought_along() -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Old."}]
    for stream in (False, True):
        async with serving(agent(ScriptedModel("New."))) as server:
            answer = await server.chat(*history, "b", stream=stream)
        assert (answer.streamed if stream else answer.text) == "New."


async def test_a_conversation_that_has_expired_says_so_until_it_is_reset() -> None:
    now_ms = [1_700_000_000_000]
    store = MemoryStore(now_ms=lambda: now_ms[0])
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model), store=store, expire_after_s=60) as server:
        await server.chat("one", to="trip")
        now_ms[0] += 61_000
        await server.sessions.lease.renew()
        expired = await server.chat("two", to="trip")
        await server.request("POST", "/api/sessions/trip/reset")
        fresh = await server.chat("three", to="trip")
    assert (expired.status, expired.error["code"]) == (410, "conversation_gone")
    assert expired.headers["x-should-retry"] == "false"
    assert fresh.status == 200
    assert [each.content for each in model.messages(1)] == ["three"]


# ── what is new ──────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_resends_everything_is_stored_once() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        said = {"role": "assistant", "content": "Yes."}
        answer = await server.chat("one", said, "two", to="trip")
        items = await server.items("trip")
    assert "x-conversation-diverged" not in answer.headers
    assert [each["type"] for each in items] == ["user", "assistant", "user", "assistant"]


async def test_a_client_with_another_past_is_told_that_it_has_diverged() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        answer = await server.chat("uno", {"role": "assistant", "content": "Si."}, "two", to="trip")
    assert answer.headers["x-conversation-diverged"] == "true"
    assert [each.content for each in model.messages(1)] == ["one", "Yes.", "two"]


@pytest.mark.parametrize("said", ["", "  \n\t "])
async def test_nothing_new_is_a_400_and_leaves_no_session(said: str) -> None:
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.chat(said, to="trip")
        found = await server.get("/api/sessions/trip")
    assert (answer.status, answer.error["code"]) == (400, "no_new_user_message")
    assert answer.headers["x-conversation-id"] == "trip"
    assert found.status == 404


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
async def test_a_request_that_names_no_conversation_needs_no_question(role: str) -> None:
    """Programs for workflows put all that they have to say into a system message."""
    model = ScriptedModel("Yes.", "Yes.")
    async with serving(agent(model)) as server:
        whole = await server.chat({"role": role, "content": "Say yes."})
        streamed = await server.chat({"role": role, "content": "Say yes."}, stream=True)
        blank = await server.chat({"role": role, "content": " \n"})
        named = await server.chat({"role": role, "content": "Say yes."}, to="trip")
    assert whole.text == streamed.streamed == "Yes."
    assert all("Say yes." in str(each) for each in model.prompts) and len(model.prompts) == 2
    for refused in (blank, named):
        assert (refused.status, refused.error["code"]) == (400, "no_new_user_message")


async def test_system_messages_are_instructions_for_one_request() -> None:
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    async with serving(agent(model)) as server:
        await server.chat({"role": "developer", "content": "Rhyme."}, "one", to="trip")
        await server.chat("two", to="trip")
    assert model.prompts[0].system == "be nice\n\nRhyme."
    assert model.prompts[1].system == "be nice"


# ── parameters ───────────────────────────────────────────────────────────────────────────────


async def test_parameters_reach_the_model() -> None:
    model = ScriptedModel("Yes.")
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    async with serving(agent(model)) as server:
        answer = await server.chat(
            "Hi",
            temperature=0.5,
            max_completion_tokens=9,
            stop=["x"],
            response_format=schema,
            seed=4,
        )
    asked = model.prompts[0].parameters
    assert answer.status == 200
    assert (asked.temperature, asked.max_output_tokens, asked.stop, asked.seed) == (
        0.5,
        9,
        ("x",),
        4,
    )
    assert asked.output_schema is not None and '"json_schema"' in asked.output_schema
    assert "x-ignored-params" not in answer.headers


async def test_parameters_that_the_model_does_not_know_are_named() -> None:
    model = ScriptedModel("Yes.", knows=frozenset({"temperature"}))
    async with serving(agent(model)) as server:
        answer = await server.chat(
            "Hi",
            temperature=0.5,
            top_p=0.5,
            seed=4,
            frequency_penalty=1,
            tool_choice="auto",
            user="u",
        )
    assert answer.status == 200
    assert answer.headers["x-ignored-params"] == "top_p, seed, frequency_penalty"


FORCING = [
    ("required", "required", True),
    ("none", "none", False),
    ("auto", "auto", False),
    (
        {"type": "function", "function": {"name": "look"}},
        {"type": "function", "name": "look"},
        True,
    ),
    (
        "required",
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
        False,
    ),
]


@pytest.mark.parametrize(("chat", "flat", "forces"), FORCING)
async def test_a_choice_that_a_model_cannot_be_forced_to_is_named(
    chat: Any, flat: Any, forces: bool
) -> None:
    """Such a model chooses for itself, and the client learns that it did."""
    function: dict[str, Any] = {"name": "look", "parameters": {"type": "object"}}
    unforced = frozenset(Parameters.__struct_fields__)
    named = "tool_choice" if forces else None
    for knows in (unforced, unforced | {FORCED_TOOL_CHOICE}):
        wanted = named if knows == unforced else None
        model = ScriptedModel("Yes.", "Yes.", knows=knows)
        async with serving(agent(model)) as server:
            told = await server.respond(
                "Hi", tools=[{"type": "function", **function}], tool_choice=flat
            )
            tools = [{"type": "function", "function": function}]
            if isinstance(flat, str) or flat["type"] == "function":
                answer = await server.chat("Hi", tools=tools, tool_choice=chat)
                assert answer.headers.get("x-ignored-params") == wanted
        assert told.headers.get("x-ignored-params") == wanted


@pytest.mark.parametrize(("model", "forced"), [("claude-opus-5-5", False), ("claude-opus-5", True)])
def test_the_table_says_which_claude_can_be_forced(model: str, forced: bool) -> None:
    knows = AnthropicModel(model, base_url="http://127.0.0.1:1", proxy="").knows
    assert "tool_choice" in knows and (FORCED_TOOL_CHOICE in knows) == forced


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_refusal_before_a_turn_names_what_would_be_ignored(api: str) -> None:
    """A client learns of everything that is wrong with its request at once: here it brings nothing new."""
    model = ScriptedModel("Yes.", knows=frozenset())
    async with serving(agent(model)) as server:
        wrong: dict[str, Any] = {"temperature": 0.5, "colour": "red"}
        name = {"X-Conversation-Id": "trip"}
        if api == "chat":
            answer = await server.chat(" ", headers=name, **wrong)
        else:
            answer = await server.respond(" ", headers=name, **wrong)
    assert (answer.status, answer.error["code"]) == (400, "no_new_user_message")
    assert answer.headers["x-ignored-params"] == "temperature, colour"
    assert model.prompts == []


@pytest.mark.parametrize(
    "body",
    [
        {"stop": "x"},
        {"response_format": {"type": "json_object"}},
        {"max_tokens": 5},
        {"tool_choice": "none"},
    ],
)
async def test_what_an_answer_has_to_keep_to_is_refused_if_the_model_cannot(
    body: dict[str, Any],
) -> None:
    async with serving(agent(ScriptedModel(knows=frozenset()))) as server:
        answer = await server.chat("Hi", **body)
    assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
    assert answer.error["param"] == next(iter(body))


async def test_a_length_the_model_stopped_at_is_said_and_kept() -> None:
    model = ScriptedModel(otherwise=lambda prompt: says("Half a", finish="length"))
    async with serving(agent(model)) as server:
        answer = await server.chat("Hi", to="trip")
        stream = await server.chat("Hi", stream=True)
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.text == stream.streamed == "Half a"
    assert answer.headers["x-conversation-version"] == "1"
    assert stream.events[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_filtered_answer_says_so() -> None:
    async with serving(agent(ScriptedModel(says("I", finish="content_filter")))) as server:
        answer = await server.chat("Hi", to="trip", headers={"Idempotency-Key": "k"})
    assert answer.json["choices"][0]["finish_reason"] == "content_filter"


async def test_a_refusal_is_a_refusal_streamed_or_not() -> None:
    model = ScriptedModel(otherwise=lambda prompt: says(refuses=["I would ", "rather not."]))
    async with serving(agent(model)) as server:
        answer = await server.chat("Hi")
        stream = await server.chat("Hi", stream=True)
    message = answer.json["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == ("", "I would rather not.")
    deltas = [each["choices"][0]["delta"] for each in stream.events[:-1]]
    assert "".join(each.get("refusal", "") for each in deltas) == "I would rather not."


async def test_models_are_listed_found_and_missed() -> None:
    async with serving(agent(ScriptedModel()), agent(ScriptedModel(), name="helper")) as server:
        listed = await server.get("/v1/models")
        found = await server.get("/v1/models/helper")
        missed = await server.get("/v1/models/gpt-5")
        asked = await server.chat("Hi", model="gpt-5")
    assert listed.json["object"] == "list"
    assert [each["id"] for each in listed.json["data"]] == ["root", "helper"]
    assert {"id", "object", "created", "owned_by"} <= set(found.json)
    for answer in (missed, asked):
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert "root, helper" in answer.error["message"]
        assert answer.error["param"] == "model"
