"""What Gemini is asked, and what becomes of it when it fails."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.model import ModelFailed, Prompt
from holdfast.models.providers.google import GoogleModel, GoogleStyle, GoogleWire, request_body
from holdfast.testing import FakeUpstream, Reply, refuses
from tests.models.conversations import heard

OLD, MIDDLE, NEW = "gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-flash-preview"
HELLO = b'{"role":"user","parts":[{"text":"Hi"}]}'
LOOK = ToolDefinition(name="look", description="Look.", parameters='{"type":"object","$defs":{}}')
FLY = ToolDefinition(name="fly", parameters="{}")


def asked(
    model: str = OLD,
    *,
    tools: tuple[ToolDefinition, ...] = (),
    thinking_tokens: int | None = None,
    own_tools: tuple[str, ...] = (),
    system: str = "",
    **parameters: Any,
) -> Any:
    prompt = Prompt(
        system=system, messages=(HELLO,), tools=tools, parameters=Parameters(**parameters)
    )
    style = GoogleStyle(model=model, thinking_tokens=thinking_tokens, own_tools=own_tools)
    return msgspec.json.decode(request_body(prompt, style))


def test_a_plain_request_says_what_is_needed_and_no_more() -> None:
    assert asked() == {"contents": [msgspec.json.decode(HELLO)]}


def test_instructions_and_tools_have_places_of_their_own() -> None:
    body = asked(system="Be brief.", tools=(LOOK, FLY))
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    [declared] = body["tools"]
    assert declared["functionDeclarations"] == [
        {
            "name": "look",
            "description": "Look.",
            "parametersJsonSchema": {"type": "object", "$defs": {}},
        },
        {"name": "fly", "description": ""},
    ]


def test_tools_that_run_at_google_are_asked_for_beside_our_own() -> None:
    own = ("google_search", "google_maps", "code_execution")
    assert asked(own_tools=own)["tools"] == [
        {"googleSearch": {}},
        {"googleMaps": {}},
        {"codeExecution": {}},
    ]
    declared, search = asked(tools=(LOOK,), own_tools=own[:1])["tools"]
    assert len(declared["functionDeclarations"]) == 1 and search == {"googleSearch": {}}


def test_the_number_of_words_to_choose_from_is_sent() -> None:
    assert asked(others=(("top_k", "40"),))["generationConfig"] == {"topK": 40}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", {"mode": "NONE"}),
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        (
            '{"type":"function","function":{"name":"fly"}}',
            {"mode": "ANY", "allowedFunctionNames": ["fly"]},
        ),
        (
            '{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"look"}]}',
            {"mode": "VALIDATED", "allowedFunctionNames": ["look"]},
        ),
    ],
)
def test_a_choice_of_tools_is_put_in_their_words(choice: str, expected: dict[str, Any]) -> None:
    body = asked(tools=(LOOK, FLY), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": expected}


@pytest.mark.parametrize(
    ("model", "tokens", "effort", "expected"),
    [
        (OLD, 1024, "high", None),
        ("gemma-3-27b-it", None, None, None),
        (MIDDLE, None, None, {"includeThoughts": True}),
        (MIDDLE, 1024, None, {"includeThoughts": True, "thinkingBudget": 1024}),
        (MIDDLE, -1, None, {"includeThoughts": True, "thinkingBudget": -1}),
        (MIDDLE, 0, None, {"includeThoughts": True, "thinkingBudget": 128}),
        (MIDDLE, None, "none", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-flash", 0, None, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-flash-lite", 7, None, {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-4-argon", None, "none", {"includeThoughts": True, "thinkingLevel": "low"}),
        (
            "gemini-3.1-pro-preview",
            None,
            "medium",
            {"includeThoughts": True, "thinkingLevel": "low"},
        ),
        ("gemini-9", None, "max", {"includeThoughts": True, "thinkingLevel": "high"}),
        (MIDDLE, None, "medium", {"includeThoughts": True, "thinkingBudget": 8192}),
        (NEW, None, None, {"includeThoughts": True}),
        (NEW, -1, None, {"includeThoughts": True}),
        (NEW, None, "none", {"includeThoughts": True, "thinkingLevel": "minimal"}),
        ("gemini-3-pro", None, "none", {"includeThoughts": True, "thinkingLevel": "low"}),
        (NEW, None, "medium", {"includeThoughts": True, "thinkingLevel": "medium"}),
        (NEW, None, "xhigh", {"includeThoughts": True, "thinkingLevel": "high"}),
        (NEW, 1000, None, {"includeThoughts": True, "thinkingLevel": "low"}),
        (NEW, 30000, None, {"includeThoughts": True, "thinkingLevel": "high"}),
    ],
)
def test_how_much_it_thinks_is_put_as_its_generation_takes_it(
    model: str, tokens: int | None, effort: str | None, expected: dict[str, Any] | None
) -> None:
    body = asked(model, thinking_tokens=tokens, reasoning_effort=effort)
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected


def test_the_other_parameters_have_names_of_their_own() -> None:
    body = asked(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        stop=("\n",),
        seed=3,
        others=(("frequency_penalty", "0.5"), ("presence_penalty", "1"), ("user", '"ada"')),
    )
    assert body["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 7,
        "stopSequences": ["\n"],
        "seed": 3,
        "frequencyPenalty": 0.5,
        "presencePenalty": 1,
    }


@pytest.mark.parametrize(
    ("wanted", "by"),
    [
        ('{"type":"json_object"}', {}),
        (
            '{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}',
            {"responseJsonSchema": {"type": "object"}},
        ),
    ],
)
def test_an_answer_in_json_is_asked_for(wanted: str, by: dict[str, Any]) -> None:
    config = asked(output_schema=wanted)["generationConfig"]
    assert config == {"responseMimeType": "application/json", **by}


def test_what_it_does_not_take_is_told_as_ignored() -> None:
    knows = GoogleWire(GoogleStyle(model=MIDDLE)).knows
    assert "reasoning_effort" in knows
    assert "reasoning_effort" not in GoogleWire(GoogleStyle(model=OLD)).knows
    assert not {"parallel_tool_calls", "logit_bias", "user"} & knows


@pytest.mark.parametrize("base_url", ["http://h", "http://h/v1beta", "http://h/v1/", "http://h/x"])
def test_the_address_may_end_with_the_version_or_not(base_url: str) -> None:
    model = GoogleModel("a/b", base_url=base_url, proxy="")
    version = "v1" if base_url.endswith("/v1/") else "v1beta"
    assert model._url.endswith(f"/{version}/models/a%2Fb:streamGenerateContent?alt=sse")
    assert model._url.count("/v1") == 1


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidValue, match="GOOGLE_API_KEY"):
        GoogleModel(NEW, environ={})


@pytest.mark.parametrize(
    ("reply", "reason", "transient"),
    [
        (
            refuses(
                400,
                message="The input token count (9) exceeds the maximum number of tokens allowed (8).",
            ),
            "context_length_exceeded",
            False,
        ),
        (refuses(429), "resource_exhausted", True),
        (Reply(status=502, body=b"<html>"), "", True),
        (
            Reply(body=b'data: {"promptFeedback":{"blockReason":"SAFETY"}}\n\n'),
            "content_filter",
            False,
        ),
        (
            Reply(body=b'data: {"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}\n\n'),
            "malformed_function_call",
            True,
        ),
        (Reply(body=b"data: []\n\n"), "upstream_garbled", True),
    ],
)
async def test_failures_say_whether_they_can_pass(
    reply: Reply, reason: str, transient: bool
) -> None:
    async with FakeUpstream(reply) as upstream:
        model = GoogleModel("m", base_url=upstream.url, proxy="")
        with pytest.raises(ModelFailed) as failed:
            await heard(model)
        await model.close()
    assert (failed.value.reason, failed.value.transient) == (reason, transient)
