"""What a chat request comes to; what is refused, and by which name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.core.items import Text
from holdfast.core.turns.events import GivenParameter, Parameters, ToolDefinition
from holdfast.wire.openai.chat.request import ChatAsk, ignored, read_chat_request
from holdfast.wire.problems import Problem, Refused

USER = {"role": "user", "content": "Hi"}


def read(**body: Any) -> ChatAsk:
    return read_chat_request(msgspec.json.encode({"model": "m", "messages": [USER], **body}))


def refused(**body: Any) -> Problem:
    with pytest.raises(Refused) as caught:
        read(**body)
    assert caught.value.problem.status == 400
    return caught.value.problem


def function(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def test_the_least_that_is_a_request() -> None:
    ask = read()
    assert (ask.model, ask.stream, ask.include_usage) == ("m", False, False)
    assert ask.messages[0].content == (Text(text="Hi"),)
    assert ask.parameters == Parameters()
    assert ask.given == () and ask.left_alone == () and ask.client_tools == ()


def test_null_is_as_good_as_absent_everywhere() -> None:
    names = """
        stream stream_options tools tool_choice parallel_tool_calls n stop max_tokens max_completion_tokens
        temperature top_p seed reasoning_effort response_format logprobs top_logprobs modalities functions
        function_call frequency_penalty presence_penalty logit_bias verbosity service_tier prediction
        web_search_options user safety_identifier prompt_cache_key
        """.split()
    assert read(**dict.fromkeys(names)) == read()


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ({"role": "assistant", "content": "Hi"}, "tool_calls name refusal audio function_call"),
        ({"role": "user", "content": "Hi"}, "name tool_calls tool_call_id"),
    ],
)
def test_null_is_as_good_as_absent_in_a_message(message: dict[str, Any], names: str) -> None:
    """Clients send back what their own types made of an answer, empty fields and all."""
    padded = {**message, **dict.fromkeys(names.split())}
    assert read(messages=[padded, USER]) == read(messages=[message, USER])


@pytest.mark.parametrize(
    ("name", "value", "optional"),
    [
        ("image_url", {"url": "https://example.org/a.png"}, "detail"),
        ("input_audio", {"data": "AAAA"}, "format"),
        ("file", {"file_id": "file_1"}, "file_data filename"),
    ],
)
def test_null_is_as_good_as_absent_in_a_part(
    name: str, value: dict[str, Any], optional: str
) -> None:
    def said(part: dict[str, Any]) -> ChatAsk:
        return read(messages=[{"role": "user", "content": [{"type": name, name: part}]}])

    assert said({**value, **dict.fromkeys(optional.split())}) == said(value)


def test_null_is_as_good_as_absent_in_a_call() -> None:
    def said(function: dict[str, Any], **call: Any) -> ChatAsk:
        called = {"id": "call_1", "function": {"name": "look", **function}, **call}
        asked = {"role": "assistant", "content": None, "tool_calls": [called]}
        return read(messages=[USER, asked, {"role": "tool", "tool_call_id": "call_1"}])

    assert said({"arguments": None}, type=None) == said({})


def test_fields_that_nobody_knows_are_left_alone_and_named() -> None:
    ask = read(
        client_metadata={"a": 1}, include=[], store=True, metadata={"a": "b"}, audio=None,
        modalities=["text", "audio"], **{"no header\r\n": 1},
    )  # fmt: skip
    assert ask.left_alone == ("client_metadata", "store", "metadata", "modalities")
    assert msgspec.structs.replace(ask, left_alone=()) == read(store=False, modalities=["text"])
    many = {f"field_{n}": n for n in range(100)}
    assert read(**many).left_alone == tuple(many)[:16]


def test_system_and_developer_messages_are_instructions() -> None:
    ask = read(
        messages=[
            {"role": "system", "content": "A"},
            USER,
            {"role": "developer", "content": [{"type": "text", "text": "B"}]},
            {"role": "system", "content": ""},
        ]
    )
    assert ask.instructions == ("A", "B")


def test_parameters_by_their_names() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
    ask = read(
        temperature=1,
        top_p=0.5,
        max_tokens=3,
        max_completion_tokens=4,
        stop="x",
        seed=1,
        reasoning_effort="low",
        parallel_tool_calls=False,
        response_format=schema,
        logit_bias={"1": 2},
        tools=[function()],
        tool_choice=function(),
    )
    said = ask.parameters
    assert (said.temperature, said.top_p, said.max_output_tokens) == (1, 0.5, 4)
    assert (said.stop, said.seed, said.reasoning_effort) == (("x",), 1, "low")
    assert said.parallel_tool_calls is False
    assert msgspec.json.decode(said.output_schema or "") == schema
    assert msgspec.json.decode(said.tool_choice or "") == function()
    assert said.others == (("logit_bias", '{"1":2}'),)
    assert {each.name for each in ask.given} == {
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed"),
        *(
            "reasoning_effort",
            "parallel_tool_calls",
            "response_format",
            "logit_bias",
            "tool_choice",
        ),
    }


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_a_tool_choice_in_a_word(choice: str) -> None:
    assert read(tool_choice=choice).parameters.tool_choice == choice


def test_allowed_tools_are_passed_on_and_tools_of_other_servers_are_named() -> None:
    custom = {"type": "custom", "custom": {"name": "draw"}}
    named = {"type": "function", "function": {"name": "f"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    whole = read(tools=[function()], tool_choice=allowed)
    assert msgspec.json.decode(whole.parameters.tool_choice or "") == allowed
    both = {"mode": "required", "tools": [custom, named]}
    part = read(tools=[function()], tool_choice={**allowed, "allowed_tools": both})
    assert part.parameters.tool_choice == json.dumps(allowed, separators=(",", ":"))
    assert (whole.left_alone, part.left_alone) == ((), ("tool_choice.tools[0]",))
    none = {**allowed, "allowed_tools": {"mode": "auto", "tools": [custom]}}
    for choice in (custom, none):
        ask = read(tool_choice=choice)
        assert (ask.parameters.tool_choice, ask.left_alone) == (None, ("tool_choice",))


def test_asking_for_plain_text_asks_for_nothing() -> None:
    ask = read(response_format={"type": "text"}, tool_choice="auto", parallel_tool_calls=True)
    assert ask.parameters.output_schema is None
    assert ask.given == ()


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"n": 0}, "unsupported_parameter", "n"),
        ({"n": "1"}, "invalid_type", "n"),
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
        ({"top_logprobs": 2}, "unsupported_parameter", "logprobs"),
        ({"modalities": ["audio"]}, "unsupported_parameter", "modalities"),
        ({"tool_choice": {"type": "function", "name": "fly"}}, "invalid_value", "tool_choice"),
        ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
        ({"function_call": "auto"}, "unsupported_parameter", "function_call"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"top_p": -1}, "invalid_value", "top_p"),
        ({"presence_penalty": 5}, "invalid_value", "presence_penalty"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
        ({"stop": 3}, "invalid_type", "stop"),
        ({"tool_choice": "maybe"}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "invalid_value", "tool_choice"),
        ({"tool_choice": function("g"), "tools": [function("f")]}, "invalid_value", "tool_choice"),
        ({"response_format": "json"}, "invalid_value", "response_format"),
        ({"response_format": {"type": "xml"}}, "unsupported_parameter", "response_format"),
        (
            {"response_format": {"type": "json_schema"}},
            "missing_required_parameter",
            "response_format.json_schema",
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "invalid_value", None),
        ({"tools": [{"type": "function"}]}, "invalid_tool", "tools[0]"),
        ({"tools": [function(), function("a b")]}, "invalid_tool", "tools[1]"),
        ({"tools": [function("x" * 65)]}, "invalid_tool", "tools[0]"),
        ({"tools": [function(), function()]}, "invalid_tool", "tools[1]"),
        ({"tools": [function(parameters=[])]}, "invalid_tool", "tools[0]"),
        ({"tools": [{"function": {}}]}, "invalid_tool", "tools[0]"),
        ({"tools": {}}, "invalid_type", "tools"),
        ({"messages": [{"role": "robot"}]}, "invalid_type", "messages[0].role"),
        ({"messages": [USER, {"content": "x"}]}, "missing_required_parameter", "messages[1].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": 7}]}]},
            "invalid_type",
            "messages[0].content[0].type",
        ),
        ({"stream": "yes"}, "invalid_type", "stream"),
    ],
)
def test_what_would_have_to_be_ignored_is_refused_by_name(
    body: dict[str, Any], code: str, param: str | None
) -> None:
    problem = refused(**body)
    assert problem.code == code
    # msgspec leaves the numbers of places out: `messages[...]`.
    stem = (param or problem.param or "").split("[")[0]
    assert (problem.param or "").startswith(stem)


@pytest.mark.parametrize(
    "body",
    [
        {"tool_choice": {"type": "function", "name": "f"}},
        {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
        {"response_format": {"type": "json_schema", "name": "n", "schema": {}}},
    ],
)
def test_a_parameter_in_the_form_of_responses_is_refused_with_the_right_form(
    body: dict[str, Any],
) -> None:
    problem = refused(**body)
    assert "has the form of Responses; here " in problem.message
    assert problem.param is not None and problem.param.split(".")[0].split("[")[0] in body


def test_functions_are_taken_as_they_are_written() -> None:
    ask = read(
        tools=[
            function("f", description="d", parameters={"b": 1, "a": 2}, strict=True),
            {"type": "web_search"},
            {"function": {"name": "g", "description": None}},
        ]
    )
    assert ask.client_tools == (
        ToolDefinition(name="f", description="d", parameters='{"b":1,"a":2}', strict=True),
        ToolDefinition(name="g"),
    )
    assert ask.left_alone == ("tools[1]",)


def test_usage_in_a_stream_is_a_wish() -> None:
    assert read(stream=True, stream_options={"include_usage": True}).include_usage
    assert not read(stream=True, stream_options={}).include_usage


# ── what a model knows ───────────────────────────────────────────────────────────────────────


def test_what_a_model_does_not_know_is_named_as_the_client_calls_it() -> None:
    ask = read(temperature=1, top_p=1, verbosity="low", user="u", service_tier="auto")
    assert ignored(ask.given, frozenset({"temperature"})) == ("top_p", "verbosity")
    assert ignored(ask.given, {each.ours for each in ask.given}) == ()


@pytest.mark.parametrize("ours", ["stop", "output_schema", "max_output_tokens", "tool_choice"])
def test_what_an_answer_must_keep_to_is_refused(ours: str) -> None:
    with pytest.raises(Refused) as caught:
        ignored((GivenParameter(name="its_name", ours=ours),), frozenset())
    assert caught.value.problem.param == "its_name"
