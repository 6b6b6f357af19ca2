"""What Claude is asked, and what becomes of it when it fails."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.families.claude import FAMILIES
from holdfast.models.model import ModelFailed, Prompt
from holdfast.models.providers.anthropic import (
    AnthropicModel,
    AnthropicStyle,
    AnthropicWire,
    request_body,
)
from holdfast.testing import FakeUpstream, Reply, refuses
from holdfast.wire.anthropic.dialect import AnthropicDialect
from tests.core.builders import call, result, said, user
from tests.models.conversations import heard

OLD, MIDDLE, NEW = "claude-sonnet-4-20250514", "claude-sonnet-4-6", "claude-opus-5-5"
HELLO = b'{"role":"user","content":[{"type":"text","text":"Hi"}]}'
LOOK = ToolDefinition(
    name="look",
    description="Look.",
    parameters='{"type":"object","properties":{"at":{"type":"string"}}}',
)
FLY = ToolDefinition(name="fly", parameters="{}")
MARK = {"type": "ephemeral"}
SHOWN = {"type": "adaptive", "display": "summarized"}


def asked(
    model: str = NEW,
    *,
    tools: tuple[ToolDefinition, ...] = (),
    thinking_tokens: int | None = None,
    caches: bool = False,
    system: str = "",
    messages: tuple[bytes, ...] = (HELLO,),
    **parameters: Any,
) -> Any:
    prompt = Prompt(
        system=system, messages=messages, tools=tools, parameters=Parameters(**parameters)
    )
    style = AnthropicStyle(model=model, thinking_tokens=thinking_tokens, caches=caches)
    return msgspec.json.decode(request_body(prompt, style))


def test_a_plain_request_says_what_is_needed_and_no_more() -> None:
    assert asked() == {
        "model": NEW,
        "stream": True,
        "max_tokens": 32000,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "messages": [msgspec.json.decode(HELLO)],
    }


def test_tools_instructions_and_the_end_are_marked_for_the_cache() -> None:
    body = asked(system="Be brief.", tools=(LOOK, FLY), caches=True)
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert body["tools"] == [
        {
            "name": "look",
            "description": "Look.",
            "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
        },
        {"name": "fly", "input_schema": {"type": "object"}, "cache_control": MARK},
    ]
    assert body["messages"][-1]["content"][-1]["cache_control"] == MARK


def test_a_last_answer_that_is_gone_on_with_has_no_white_space_at_its_end() -> None:
    """It is refused there; in the middle of a history it is not."""
    words = 'The ship {"role":"assistant"} sails'
    cut = AnthropicDialect().encode((said(f"{words} \n"),))
    assert asked(OLD, messages=(HELLO, cut))["messages"][-1]["content"][-1]["text"] == words
    body = asked(OLD, messages=(HELLO, cut, HELLO))
    assert body["messages"][1]["content"][-1]["text"] == f"{words} \n"


def test_the_same_history_is_the_same_bytes_up_to_the_mark() -> None:
    """A cache is found by its prefix: what a conversation has said may not look different the next time."""
    style = AnthropicStyle(model=NEW)
    first = request_body(Prompt(system="S", messages=(HELLO,), tools=(LOOK,)), style)
    answer = b'{"role":"assistant","content":[{"type":"text","text":"Hello."}]}'
    second = request_body(Prompt(system="S", messages=(HELLO, answer, HELLO), tools=(LOOK,)), style)
    common = first.split(b',"cache_control":{"type":"ephemeral"}}]}]}')[0]
    assert second.startswith(common)
    assert second.count(b"cache_control") == 3, "four at most are allowed"


@pytest.mark.parametrize(
    ("choice", "expected", "offered"),
    [
        ("none", {"type": "none"}, ["look", "fly"]),
        ("auto", {"type": "auto"}, ["look", "fly"]),
        ("required", {"type": "any"}, ["look", "fly"]),
        (
            '{"type":"function","function":{"name":"fly"}}',
            {"type": "tool", "name": "fly"},
            ["fly"],
        ),
        ('{"type":"function","name":"fly"}', {"type": "tool", "name": "fly"}, ["fly"]),
        (
            (
                '{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":'
                '[{"type":"function","function":{"name":"look"}}]}}'
            ),
            {"type": "auto"},
            ["look"],
        ),
        (
            (
                '{"type":"allowed_tools","mode":"required","tools":'
                '[{"type":"function","name":"look"},{"type":"function","name":"fly"}]}'
            ),
            {"type": "any"},
            ["look", "fly"],
        ),
    ],
)
def test_a_choice_of_tools_is_put_in_their_words(
    choice: str, expected: dict[str, Any], offered: list[str]
) -> None:
    body = asked(MIDDLE, tools=(LOOK, FLY), tool_choice=choice)
    assert body["tool_choice"] == expected
    assert [each["name"] for each in body["tools"]] == offered


@pytest.mark.parametrize(
    "choice", ["{", "[]", '{"type":"custom"}', '{"type":"allowed_tools","tools":[3]}']
)
def test_a_choice_that_makes_no_sense_is_refused(choice: str) -> None:
    with pytest.raises(InvalidValue, match="tool_choice"):
        asked(tools=(LOOK,), tool_choice=choice)


def test_one_call_at_a_time_is_part_of_the_choice() -> None:
    body = asked(tools=(LOOK,), parallel_tool_calls=False)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in asked(tools=(LOOK,), parallel_tool_calls=True)
    assert "tool_choice" not in asked(parallel_tool_calls=False, tool_choice="required")


@pytest.mark.parametrize(
    ("model", "tokens", "effort", "thinking", "wants"),
    [
        (OLD, None, None, None, None),
        (OLD, 4000, None, {"type": "enabled", "budget_tokens": 4000}, None),
        (OLD, 5, None, {"type": "enabled", "budget_tokens": 1024}, None),
        (OLD, -1, None, {"type": "enabled", "budget_tokens": 8192}, None),
        (OLD, 0, None, None, None),
        (OLD, None, "low", {"type": "enabled", "budget_tokens": 2048}, None),
        (OLD, 4000, "high", {"type": "enabled", "budget_tokens": 16384}, None),
        (OLD, 4000, "none", None, None),
        (OLD, None, "max", {"type": "enabled", "budget_tokens": 32000}, None),
        (MIDDLE, None, None, None, None),
        (MIDDLE, None, "none", None, None),
        (MIDDLE, None, "xhigh", {"type": "adaptive"}, "high"),
        (MIDDLE, None, "max", {"type": "adaptive"}, "max"),
        (NEW, None, None, SHOWN, None),
        (NEW, 0, None, SHOWN, "low"),
        (NEW, None, "none", SHOWN, "low"),
        (NEW, -1, None, SHOWN, None),
        (NEW, 2000, None, SHOWN, "low"),
        (NEW, 8000, None, SHOWN, "medium"),
        (NEW, 30000, None, SHOWN, "high"),
        (NEW, None, "minimal", SHOWN, "low"),
        (NEW, None, "max", SHOWN, "max"),
        ("claude-sonnet-5-5", None, "none", {"type": "between_tools"}, None),
        ("claude-haiku-5-5", 0, None, {"type": "disabled"}, None),
        ("claude-3-5-haiku-latest", 4000, "high", None, None),
        ("claude-saga-7", None, "none", SHOWN, "low"),
    ],
)
def test_how_much_it_thinks_is_put_as_its_generation_takes_it(
    model: str,
    tokens: int | None,
    effort: str | None,
    thinking: dict[str, Any] | None,
    wants: str | None,
) -> None:
    body = asked(model, thinking_tokens=tokens, reasoning_effort=effort)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == wants


def test_a_budget_comes_on_top_of_the_length_of_the_answer() -> None:
    body = asked(OLD, thinking_tokens=4000, max_output_tokens=100)
    assert body["max_tokens"] == 4100


@pytest.mark.parametrize("effort", [None, "none", "low", "medium", "high", "xhigh", "max"])
@pytest.mark.parametrize("length", [None, 1, 100, 31_999, 1_000_000])
def test_no_family_is_asked_for_more_than_it_can_say(
    effort: str | None, length: int | None
) -> None:
    """An answer that is too long is a refusal, and a budget has to be below the length."""
    for family in FAMILIES:
        body = asked(family.names[0], reasoning_effort=effort, max_output_tokens=length)
        assert 1 <= body["max_tokens"] <= family.output_max
        budget = body.get("thinking", {}).get("budget_tokens")
        assert budget is None or 1024 <= budget < body["max_tokens"]


@pytest.mark.parametrize(
    ("model", "thinking", "choice"),
    [
        (OLD, None, "any"),
        (MIDDLE, None, "any"),
        ("claude-haiku-5-5", {"type": "disabled"}, "any"),
        (NEW, SHOWN, "auto"),
    ],
)
def test_who_has_to_call_a_tool_is_not_asked_to_think(
    model: str, thinking: object, choice: str
) -> None:
    """The API refuses both together; a model that always thinks cannot be made to call a tool."""
    body = asked(model, tools=(LOOK,), tool_choice="required", reasoning_effort="high")
    assert body.get("thinking") == thinking
    assert body["tool_choice"] == {"type": choice}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ("{}", {"type": "object"}),
        ('{"properties":{"type":{"type":"string"}}}', {"type": "object"}),
        ('{"type":["object","null"]}', {"type": "object"}),
        ('{"anyOf":[{"type":"object"}]}', {"type": "object", "anyOf": [{"type": "object"}]}),
    ],
)
def test_the_schema_of_a_tool_says_that_it_is_an_object(schema: str, sent: dict[str, Any]) -> None:
    """The API looks at the top; an argument that is called `type` is not a type."""
    (tool,) = asked(tools=(ToolDefinition(name="fly", parameters=schema),))["tools"]
    assert sent.items() <= tool["input_schema"].items()


def test_a_schema_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'fly' has to be an object"):
        asked(tools=(ToolDefinition(name="fly", parameters="[]"),))


def test_an_answer_to_go_on_with_is_followed_by_a_request_for_it_where_it_is_refused() -> None:
    cut = AnthropicDialect().encode((said("The ship sails "),))
    old, new = (asked(model, messages=(HELLO, cut))["messages"] for model in (OLD, NEW))
    assert old[-1]["content"][0]["text"] == new[1]["content"][0]["text"] == "The ship sails"
    assert [each["role"] for each in new] == ["user", "assistant", "user"]


def test_a_budget_does_not_begin_in_the_middle_of_calls() -> None:
    """An answer with a call that began without a thought, such as another model's, would be refused."""
    seeing = call("look")
    loop = AnthropicDialect().encode((user("Look."), seeing, result(seeing, "A gull.")))
    assert "thinking" not in asked(OLD, messages=(loop,), reasoning_effort="high")
    assert asked(OLD, messages=(loop, HELLO), reasoning_effort="high")["thinking"]


def test_sampling_is_for_models_that_take_it() -> None:
    assert asked(OLD, temperature=1.7)["temperature"] == 1.0
    assert asked(MIDDLE, top_p=0.5)["top_p"] == 0.5
    assert "top_p" not in asked(OLD, temperature=0.3, top_p=0.5)
    assert asked(OLD, others=(("top_k", "40"),))["top_k"] == 40
    assert "top_k" not in asked(NEW, others=(("top_k", "40"),))
    assert "temperature" not in asked(NEW, temperature=0.3)
    assert "temperature" not in asked(OLD, temperature=0.3, thinking_tokens=2000)


def test_what_a_model_does_not_take_is_told_as_ignored() -> None:
    def knows(model: str) -> frozenset[str]:
        return AnthropicWire(AnthropicStyle(model=model)).knows

    assert {"temperature", "top_p", "top_k"} <= knows(OLD)
    assert not {"temperature", "top_p", "top_k"} & knows(NEW)
    assert "output_schema" in knows(NEW) - knows(OLD)
    assert not {"seed", "logit_bias", "frequency_penalty"} & knows(OLD)


def test_the_other_parameters_have_names_of_their_own() -> None:
    body = asked(stop=("\n",), max_output_tokens=7, others=(("user", '"ada"'),))
    assert (body["stop_sequences"], body["max_tokens"]) == (["\n"], 7)
    assert body["metadata"] == {"user_id": "ada"}


@pytest.mark.parametrize(
    "wanted",
    [
        '{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}',
        '{"type":"json_schema","name":"x","schema":{"type":"object"}}',
    ],
)
def test_a_schema_for_the_answer_is_part_of_the_output(wanted: str) -> None:
    body = asked(output_schema=wanted, reasoning_effort="low")
    assert body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {"type": "object"}},
    }


@pytest.mark.parametrize("wanted", ['{"type":"json_object"}', '{"type":"json_schema"}', "3"])
def test_an_answer_in_json_needs_a_schema(wanted: str) -> None:
    with pytest.raises(InvalidValue):
        asked(output_schema=wanted)


# ── asking ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("base_url", "host"), [("http://h", "h"), ("http://h/v1", "h"), ("http://h/x/", "h")]
)
def test_the_address_may_end_with_the_version_or_not(base_url: str, host: str) -> None:
    model = AnthropicModel("m", base_url=base_url, proxy="")
    assert repr(model) == f"<AnthropicModel anthropic/m at {host}>"
    assert model._url.endswith("/v1/messages") and "/v1/v1" not in model._url


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidValue, match="ANTHROPIC_API_KEY"):
        AnthropicModel(NEW, environ={})


async def test_thinking_between_calls_is_asked_for_where_it_is_not_the_rule() -> None:
    async with FakeUpstream("Hi", "Hi") as upstream:
        for model_name in (OLD, NEW):
            model = AnthropicModel(model_name, base_url=upstream.url, proxy="")
            await heard(model)
            await model.close()
        old, new = upstream.requests
    assert old.headers["anthropic-beta"].startswith("interleaved-thinking")
    assert "anthropic-beta" not in new.headers


@pytest.mark.parametrize(
    ("reply", "reason", "transient"),
    [
        (
            refuses(
                400,
                kind="invalid_request_error",
                message="prompt is too long: 210000 tokens > 200000 maximum",
            ),
            "context_length_exceeded",
            False,
        ),
        (refuses(402, kind="billing_error"), "billing_error", False),
        (refuses(529, kind="overloaded_error"), "overloaded_error", True),
        (Reply(body=b'{"x":1}', content_type="application/json"), "upstream_garbled", True),
        (Reply(body=b"event: error\ndata: {}\n\n"), "upstream_broke_off", True),
    ],
)
async def test_failures_say_whether_they_can_pass(
    reply: Reply, reason: str, transient: bool
) -> None:
    async with FakeUpstream(reply) as upstream:
        model = AnthropicModel("m", base_url=upstream.url, proxy="")
        with pytest.raises(ModelFailed) as failed:
            await heard(model)
        await model.close()
    assert (failed.value.reason, failed.value.transient) == (reason, transient)


async def test_a_server_that_does_not_stream_is_heard_too() -> None:
    body = b'{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}'
    async with FakeUpstream(Reply(body=body, content_type="application/json")) as upstream:
        model = AnthropicModel("m", base_url=upstream.url, proxy="")
        assert await heard(model) == [TextDelta(text="Hi"), FinishDelta(finish="stop")]
        await model.close()


def test_betas_of_a_model_are_members_and_are_named() -> None:
    options = (("task_budget", '{"type":"tokens","total":9}'), ("fallbacks", '[{"model":"b"}]'))
    style = AnthropicStyle(model="claude-fable-5-1", options=options)
    prompt = Prompt(
        system="", messages=(HELLO,), tools=(), parameters=Parameters(reasoning_effort="low")
    )
    said = msgspec.json.decode(request_body(prompt, style))
    assert said["output_config"]["task_budget"] == {"type": "tokens", "total": 9}
    assert said["output_config"]["effort"] == "low"
    assert said["fallbacks"] == [{"model": "b"}]
    assert style.betas == "task-budgets-2026-03-13,server-side-fallback-2026-06-01"
    old = AnthropicStyle(model=OLD, options=options[:1])
    assert old.betas == "interleaved-thinking-2025-05-14,task-budgets-2026-03-13"
