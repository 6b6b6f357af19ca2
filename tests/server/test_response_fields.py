"""Every field of a Responses request that OpenAI documents is honoured, passed on, named as ignored, or refused by name."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.response_includable import ResponseIncludable

from holdfast.testing import FakeUpstream
from tests.models.conversations import model_at
from tests.server.stubs import agent, serving

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTION = {
    "type": "function",
    "name": "look",
    "description": None,
    "parameters": SCHEMA,
    "strict": None,
}
FORMAT = {"type": "json_schema", "name": "answer", "schema": SCHEMA}

REPEATED: dict[str, Any] = {
    "instructions": "Be brief.",
    "max_output_tokens": 100,
    "max_tool_calls": 3,
    "metadata": {"a": "1"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "store": False,
    "temperature": 0.5,
    "text": {"format": FORMAT, "verbosity": "low"},
    "tool_choice": "required",
    "tools": [FUNCTION],
    "top_p": 0.5,
    "truncation": "auto",
    "user": "u",
}
"""The answer says them again."""

UPSTREAM: dict[str, tuple[str, Any]] = {
    "max_output_tokens": ("max_tokens", 100),
    "parallel_tool_calls": ("parallel_tool_calls", False),
    "prompt_cache_key": ("prompt_cache_key", "k"),
    "safety_identifier": ("safety_identifier", "s"),
    "service_tier": ("service_tier", "flex"),
    "temperature": ("temperature", 0.5),
    "tool_choice": ("tool_choice", "required"),
    "top_p": ("top_p", 0.5),
    "user": ("user", "u"),
}
"""The model's server is told of them, in its own words."""

REFUSED: dict[str, Any] = {
    "prompt": {"id": "pmpt_1"},
    "moderation": {"policy": "default"},
    "top_logprobs": 3,
}

IGNORED: dict[str, Any] = {
    "context_management": [{"type": "compaction"}],
    "prompt_cache_options": {"ttl": "30m"},
    "prompt_cache_retention": "24h",
    "image": {"quality": "low"},
    "access_programs": {"cyber": "standard"},
}

ELSEWHERE = {
    "model": "test_responses: every answer names it",
    "input": "test_responses, test_attachments",
    "background": "test_background",
    "conversation": "test_conversations",
    "previous_response_id": "test_responses",
    "include": "below",
    "stream_options": "obfuscation, which there is none of",
}
"""What has tests of its own."""


def test_no_field_is_forgotten() -> None:
    known = {*REPEATED, *UPSTREAM, *REFUSED, *IGNORED, *ELSEWHERE}
    assert set(ResponseCreateParamsBase.__annotations__) == known


async def test_what_an_answer_repeats_and_what_its_model_is_told() -> None:
    body = {**REPEATED, "service_tier": "flex"}
    async with FakeUpstream("{}") as upstream:
        model = model_at(upstream.base_url)
        async with serving(agent(model)) as server:
            answer = await server.respond("Hi", **body)
        await model.close()
    assert answer.status == 200, answer.body
    assert {name: answer.json[name] for name in REPEATED} == REPEATED
    (request,) = upstream.requests
    told = {name: request.json.get(theirs) for name, (theirs, _) in UPSTREAM.items()}
    assert told == {name: value for name, (_, value) in UPSTREAM.items()}
    assert request.json["response_format"]["json_schema"]["name"] == "answer"
    assert request.json["reasoning_effort"] == "low" and request.json["verbosity"] == "low"
    assert "x-ignored-params" not in answer.headers


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_kept_to_is_refused(name: str) -> None:
    async with FakeUpstream() as upstream:
        model = model_at(upstream.base_url)
        async with serving(agent(model)) as server:
            answer = await server.respond("Hi", **{name: REFUSED[name]})
        await model.close()
    assert (answer.status, answer.error["param"]) == (400, name)
    assert answer.error["code"] == "unsupported_parameter"


async def test_what_changes_nothing_is_named() -> None:
    others = [each for each in get_args(ResponseIncludable) if not each.startswith("reasoning")]
    include = [*others, "reasoning.encrypted_content", "Ünknown: \r\n"]
    strange: dict[str, Any] = {"quite": {"unknown": True}, "client_metadata": {"a": "b"}}
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "x", "tools": []}]
    async with FakeUpstream("Yes.") as upstream:
        model = model_at(upstream.base_url)
        async with serving(agent(model)) as server:
            answer = await server.respond(
                "Hi", **IGNORED, **strange, include=include, tools=tools, stream_options={}
            )
        await model.close()
    assert answer.status == 200, answer.body
    named = answer.headers["x-ignored-params"].split(", ")
    included = [f"include.{each}" for each in others]
    assert named == [*IGNORED, *strange, *included, "tools[0]", "tools[1]"]
