"""OpenAI's models over Responses: what they are asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.models.model import Prompt
from holdfast.models.providers.openai_responses import ResponsesStyle, ResponsesWire, request_body
from tests.models.wires import SIGNATURE, sealed

HELLO = b'{"role":"user","content":"Hi"}'
LOOK = ToolDefinition(name="look", description="Look.", parameters='{"type":"object"}')
FLY = ToolDefinition(name="fly", strict=True)


def asked(
    model: str = "gpt-4.1",
    *,
    tools: tuple[ToolDefinition, ...] = (),
    system: str = "",
    **parameters: Any,
) -> Any:
    prompt = Prompt(
        system=system, messages=(HELLO,), tools=tools, parameters=Parameters(**parameters)
    )
    return msgspec.json.decode(request_body(prompt, ResponsesStyle(model=model)))


def test_a_plain_request_leaves_nothing_at_the_provider() -> None:
    assert asked(system="Be brief.") == {
        "model": "gpt-4.1",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("gpt-5", True),
        ("gpt-5.1-codex-mini", True),
        ("o3-pro", True),
        ("gpt-6", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("house", False),
    ],
)
def test_sealed_reasoning_is_asked_of_those_who_reason(model: str, reasons: bool) -> None:
    included = asked(model).get("include")
    assert included == (["reasoning.encrypted_content"] if reasons else None)


def test_tools_are_strict_only_if_somebody_says_so() -> None:
    look, fly = asked(tools=(LOOK, FLY))["tools"]
    assert look == {
        "type": "function",
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert fly["strict"] is True


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ('{"type":"function","function":{"name":"fly"}}', {"type": "function", "name": "fly"}),
        (
            '{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"name":"look"}]}}',
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "look"}],
            },
        ),
    ],
)
def test_a_choice_of_tools_is_written_flat(choice: str, expected: Any) -> None:
    assert asked(tools=(LOOK, FLY), tool_choice=choice)["tool_choice"] == expected
    assert "tool_choice" not in asked(tool_choice=choice)


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-5", "none", "minimal"),
        ("gpt-5", "max", "high"),
        ("gpt-5-pro", "low", "high"),
        ("gpt-5.1", "minimal", "none"),
        ("gpt-6.1-sol", "none", "low"),
        ("gpt-6.1-sol", "max", "max"),
        ("gpt-77", "minimal", "low"),
        ("house", "minimal", "minimal"),
        ("gpt-4o", "high", None),
    ],
)
def test_an_effort_is_one_that_the_family_has(model: str, effort: str, sent: str | None) -> None:
    assert asked(model, reasoning_effort=effort).get("reasoning", {}).get("effort") == sent


def test_what_a_reasoning_model_refuses_is_left_out() -> None:
    body = asked("gpt-5", temperature=0.5, top_p=0.5, max_output_tokens=1_000_000)
    assert not {"temperature", "top_p"} & body.keys()
    assert body["max_output_tokens"] == 128_000
    assert asked("gpt-5.1", temperature=0.5, reasoning_effort="none")["temperature"] == 0.5


def test_parameters_have_the_names_that_they_have_here() -> None:
    body = asked(
        tools=(LOOK,),
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        reasoning_effort="low",
        parallel_tool_calls=False,
        stop=("\n",),
        seed=3,
        others=(("user", '"ada"'), ("verbosity", '"low"'), ("logit_bias", "{}")),
        output_schema='{"type":"json_schema","json_schema":{"name":"x","schema":{},"strict":true}}',
    )
    assert {name: body[name] for name in ("temperature", "top_p", "max_output_tokens", "user")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "user": "ada",
    }
    assert "reasoning" not in body, "it does not reason, and would refuse"
    assert body["parallel_tool_calls"] is False
    assert body["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "x", "schema": {}, "strict": True},
    }
    knows = ResponsesWire(ResponsesStyle(model="m")).knows
    for name in ("stop", "seed", "logit_bias"):
        assert name not in body
        assert name not in knows
    assert asked(output_schema='{"type":"json_object"}')["text"] == {
        "format": {"type": "json_object"}
    }


def test_what_is_sealed_goes_back_sealed() -> None:
    kept = msgspec.json.decode(sealed("rs_1", "Hm.").json)
    assert kept == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": SIGNATURE,
    }
