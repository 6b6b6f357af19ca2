"""The body of a request, from a prompt."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.model import Prompt
from holdfast.models.providers.chat_body import OTHERS, Style, request_body
from tests.models.conversations import prompt

STYLE = Style(model="m")
LOOK = ToolDefinition(
    name="look", description="See.", parameters='{"type":"object","properties":{"a":{}}}'
)


def body(asked: Prompt, style: Style = STYLE) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(request_body(asked, style))
    return decoded


def test_the_least_that_is_sent() -> None:
    assert body(prompt("Hi")) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
    }


def test_pieces_are_joined_as_they_are() -> None:
    """A history is never parsed again: whatever is in a piece is sent, byte for byte."""
    pieces = (b'{"role" : "user","content":"a"}', b"", b'{"role":"assistant","content":"b"}')
    sent = request_body(Prompt(system="", messages=pieces), STYLE)
    assert b'"messages":[' + pieces[0] + b"," + pieces[2] + b"]" in sent


def test_every_parameter_has_its_place() -> None:
    asked = prompt(
        "Hi",
        tools=[LOOK],
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        stop=("END", "STOP"),
        seed=7,
        reasoning_effort="low",
        parallel_tool_calls=False,
        tool_choice="required",
        output_schema='{"type":"json_object"}',
        others=(("presence_penalty", "0.5"), ("user", '"u"'), ("no_such", "1"), ("n", "3")),
    )
    sent = body(asked)
    del sent["messages"], sent["stream_options"]
    assert sent == {
        "model": "m",
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "See.",
                    "parameters": {"type": "object", "properties": {"a": {}}},
                },
            }
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "stop": ["END", "STOP"],
        "seed": 7,
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "response_format": {"type": "json_object"},
        "presence_penalty": 0.5,
        "user": "u",
    }


def test_zero_and_false_are_values() -> None:
    sent = body(prompt("Hi", temperature=0.0, seed=0))
    assert (sent["temperature"], sent["seed"]) == (0, 0)


def test_the_bound_goes_by_the_name_that_the_server_knows() -> None:
    newer = Style(model="m", max_tokens_name="max_completion_tokens")
    sent = body(prompt("Hi", max_output_tokens=5), newer)
    assert sent["max_completion_tokens"] == 5
    assert "max_tokens" not in sent


def test_without_tools_nothing_is_said_about_them() -> None:
    """OpenAI refuses `tool_choice` without `tools`."""
    sent = body(prompt("Hi", tool_choice="auto", parallel_tool_calls=True))
    assert not sent.keys() & {"tools", "tool_choice", "parallel_tool_calls"}


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": "look"}}],
    },
}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", "none"),
        (
            '{"type":"function","function":{"name":"look"}}',
            {"type": "function", "function": {"name": "look"}},
        ),
        ('{"type":"function","name":"look"}', {"type": "function", "function": {"name": "look"}}),
        (
            '{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"look"}]}',
            ALLOWED,
        ),
        (json.dumps(ALLOWED), ALLOWED),
    ],
)
def test_a_choice_is_sent_as_chat_writes_it(choice: str, sent: object) -> None:
    assert body(prompt("Hi", tools=[LOOK], tool_choice=choice))["tool_choice"] == sent


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"json_schema","json_schema":{"name":"a","schema":{"x":1},"strict":true}}',
        '{"type":"json_schema","name":"a","schema":{"x":1},"strict":true}',
    ],
)
def test_a_schema_is_sent_as_chat_writes_it(schema: str) -> None:
    assert body(prompt("Hi", output_schema=schema))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"x": 1}, "strict": True},
    }


def test_options_are_sent_along_until_the_prompt_says_otherwise() -> None:
    style = Style(model="m", options=(("top_k", "40"), ("temperature", "1")), usage_in_stream=False)
    sent = body(prompt("Hi", temperature=0.5), style)
    assert (sent["top_k"], sent["temperature"]) == (40, 0.5)
    assert "stream_options" not in sent


def test_a_strict_tool_says_so() -> None:
    strict = ToolDefinition(name="look", strict=True)
    function = body(prompt("Hi", tools=[strict]))["tools"][0]["function"]
    assert function == {"name": "look", "parameters": {}, "strict": True}


SMUGGLED = '1,"model":"expensive"'


@pytest.mark.parametrize(
    "asked",
    [
        prompt("Hi", others=(("user", SMUGGLED),)),
        prompt("Hi", output_schema=SMUGGLED),
        prompt("Hi", tools=[LOOK], tool_choice=SMUGGLED),
        prompt("Hi", tools=[ToolDefinition(name="look", parameters=SMUGGLED)]),
    ],
)
def test_nothing_can_be_smuggled_into_a_request(asked: Prompt) -> None:
    with pytest.raises(InvalidValue, match="not valid JSON"):
        request_body(asked, STYLE)


@given(
    system=st.text(),
    model=st.text(),
    stop=st.lists(st.text(), max_size=3),
    effort=st.text(),
    user=st.text(),
)
def test_whatever_is_said_arrives(
    system: str, model: str, stop: list[str], effort: str, user: str
) -> None:
    parameters = Parameters(
        stop=tuple(stop),
        reasoning_effort=effort,
        others=(("user", msgspec.json.encode(user).decode()),),
    )
    sent = body(Prompt(system=system, messages=(), parameters=parameters), Style(model=model))
    assert sent["messages"] == ([{"role": "system", "content": system}] if system else [])
    assert sent["model"] == model
    assert sent["reasoning_effort"] == effort
    assert sent.get("stop", []) == stop
    assert sent["user"] == user


def test_what_we_cannot_hand_back_is_not_asked_for() -> None:
    """`n` and `logprobs` change the shape of an answer, and `store` keeps it elsewhere."""
    assert not OTHERS & {"n", "logprobs", "top_logprobs", "store", "stream", "messages", "model"}


FREE = {"temperature": 0.3, "max_output_tokens": 200_000, "reasoning_effort": "max"}


@pytest.mark.parametrize(
    ("model", "tools", "sent"),
    [
        ("gpt-5", (), {"max_completion_tokens": 128_000, "reasoning_effort": "high"}),
        ("gpt-5", (LOOK,), {"max_completion_tokens": 128_000, "reasoning_effort": "high"}),
        ("o3", (), {"max_completion_tokens": 100_000, "reasoning_effort": "high"}),
        ("gpt-5.6-terra", (), {"max_completion_tokens": 128_000, "reasoning_effort": "max"}),
        (
            "gpt-5.6-terra",
            (LOOK,),
            {"max_completion_tokens": 128_000, "reasoning_effort": "none", "temperature": 0.3},
        ),
        ("gpt-4.1", (), {"max_tokens": 32_768, "temperature": 0.3}),
        (
            "gpt-oss-120b",
            (),
            {"max_tokens": 200_000, "temperature": 0.3, "reasoning_effort": "max"},
        ),
        (
            "house-model",
            (LOOK,),
            {"max_tokens": 200_000, "temperature": 0.3, "reasoning_effort": "max"},
        ),
    ],
)
def test_a_gpt_is_asked_in_the_words_of_its_family(
    model: str, tools: tuple[ToolDefinition, ...], sent: dict[str, object]
) -> None:
    asked = prompt(tools=tools, **FREE, others=(("logit_bias", "{}"),))
    made = body(asked, Style(model=model))
    named = ("max_tokens", "max_completion_tokens", "temperature", "reasoning_effort")
    assert {name: made[name] for name in named if name in made} == sent
    assert ("logit_bias" in made) == ("gpt-5" not in model and model != "o3")
