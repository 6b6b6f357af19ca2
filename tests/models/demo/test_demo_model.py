"""Conversations with the demo model."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.items import Item
from holdfast.core.turns.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import ToolDefinition
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.model import ModelFailed, Prompt
from holdfast.wire.openai.chat.messages import ChatDialect
from tests.core.builders import call, note, result, said, user
from tests.models.conversations import heard, prompt

CLOCK = ToolDefinition(
    name="get_clock", description="Says the time.", parameters='{"type":"object"}'
)
WEATHER = ToolDefinition(
    name="weather",
    parameters='{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}',
)
TOOLS = (CLOCK, WEATHER)


def demo() -> DemoModel:
    return DemoModel(pace_s=0)


async def deltas_for(
    *said_: str, tools: tuple[ToolDefinition, ...] = (), **fields: object
) -> list[Delta]:
    return await heard(demo(), prompt(*said_, tools=tools, **fields))


def text_in(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def answer(*said_: str, tools: tuple[ToolDefinition, ...] = ()) -> str:
    return text_in(await deltas_for(*said_, tools=tools))


async def after(*items: Item) -> str:
    piece = ChatDialect().encode(items)
    return text_in(await heard(demo(), Prompt(system="", messages=(piece,), tools=TOOLS)))


def calls_in(deltas: list[Delta]) -> list[tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            name, arguments = calls.get(delta.index, ("", ""))
            calls[delta.index] = (name + delta.name, arguments + delta.arguments)
    return list(calls.values())


# ── talking ──────────────────────────────────────────────────────────────────────────────────


async def test_it_introduces_itself() -> None:
    text = await answer("Good morning", tools=TOOLS)
    assert "You said “Good morning”." in text
    assert "Every turn is stored whole or not at all" in text
    assert "get_clock, weather" in text


async def test_it_counts_turns_and_quotes_what_was_said() -> None:
    text = await answer("One", "…", "Two", "…", "Three")
    assert "turn 3 of our conversation" in text
    assert "You said “Three”" in text
    assert "Before that you said “Two”" in text
    assert "It began with “One”" in text


async def test_it_remembers_a_name_of_this_conversation_only() -> None:
    assert "Pleased to meet you, Ada." in await answer("Hello, my name is Ada.")
    assert "Your name is Ada" in await answer("My name is Ada", "…", "What is my name?")
    assert "have not told me" in await answer("Hello", "…", "What is my name?")
    assert "Pleased to meet you, Ada." in await answer("Call me Ada!", tools=TOOLS)


async def test_it_tells_what_was_said() -> None:
    text = await answer("I like trains", "…", "And ships", "…", "What did I say?")
    assert text.splitlines()[1:] == ["1. “I like trains”", "2. “And ships”"]
    assert "first thing" in await answer("What did I say?")


async def test_it_notices_that_a_turn_was_interrupted() -> None:
    text = await after(
        user("One"), said("I was", state="interrupted"), note("cancelled"), user("Two")
    )
    assert "Our last turn was interrupted: the user stopped it." in text
    assert "turn 2" in text
    later = await after(user("One"), note("cancelled"), user("Two"), said("ok"), user("Three"))
    assert "interrupted" not in later


async def test_the_same_conversation_gets_the_same_answer() -> None:
    assert await deltas_for("One", "…", "Two") == await deltas_for("One", "…", "Two")


async def test_it_ends_with_usage_and_a_finish() -> None:
    *_, usage, finish = await deltas_for("Hi")
    assert isinstance(usage, UsageDelta)
    assert usage.usage.input_tokens > 0 and usage.usage.output_tokens > 10
    assert finish == FinishDelta(finish="stop")


async def test_it_stops_where_it_is_told_to() -> None:
    deltas = await deltas_for("Tell me a long story", max_output_tokens=5)
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) == 5
    assert deltas[-1] == FinishDelta(finish="length")


async def test_a_long_story_is_long() -> None:
    deltas = await deltas_for("Please tell me a long story.")
    assert len(deltas) > 500
    assert text_in(deltas).endswith("And that is the whole story.")


async def test_it_thinks_when_asked_to() -> None:
    deltas = await deltas_for("Think about trains.")
    assert isinstance(deltas[0], ReasoningDelta)
    assert text_in(deltas) == "I have thought about trains, and I am all for it."


async def test_it_speaks_at_its_pace() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    deltas = await heard(DemoModel(pace_s=0.25, sleep=sleep))
    assert pauses == [0.25] * (len(deltas) - 2)


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "calls"),
    [
        ("Use the clock tool", [("get_clock", "{}")]),
        ("please use your `get_clock` tool now", [("get_clock", "{}")]),
        ('Call weather with {"city": "Oslo"}', [("weather", '{"city": "Oslo"}')]),
        ('call WEATHER tool with {"city": "{}"} please', [("weather", '{"city": "{}"}')]),
        (
            'Call weather with {"city": "Oslo"}, then call get_clock.',
            [("weather", '{"city": "Oslo"}'), ("get_clock", "{}")],
        ),
    ],
)
async def test_it_calls_the_tools_that_it_is_told_to(
    asked: str, calls: list[tuple[str, str]]
) -> None:
    deltas = await deltas_for(asked, tools=TOOLS)
    assert calls_in(deltas) == calls
    assert deltas[-1] == FinishDelta(finish="tool_calls")


async def test_it_says_what_is_missing() -> None:
    assert 'weather needs city. Say: call weather with {"city": "…"}' in await answer(
        "use the weather tool", tools=TOOLS
    )
    assert "no tool 'rocket'; I have get_clock, weather" in await answer(
        "use the rocket tool", tools=TOOLS
    )
    assert "needs city" in await answer("call weather with {nonsense}", tools=TOOLS)


async def test_it_reports_what_came_back() -> None:
    clock = call("get_clock")
    assert (
        await after(user("Use the clock tool"), clock, result(clock, "noon"))
        == "get_clock says: noon"
    )
    weather = call("weather")
    both = await after(user("Do"), clock, weather, result(clock, "noon"), result(weather, "cold"))
    assert both.splitlines()[1:] == ["- get_clock: noon", "- weather: cold"]


async def test_results_of_earlier_turns_are_not_news() -> None:
    clock = call("get_clock")
    text = await after(user("Use it"), clock, result(clock, "noon"), said("noon"), user("Thanks"))
    assert "turn 2" in text


async def test_it_does_what_the_client_insists_on() -> None:
    assert calls_in(await deltas_for("Hi", tools=TOOLS, tool_choice="required")) == [
        ("get_clock", "{}")
    ]
    chosen = '{"type":"function","function":{"name":"weather"}}'
    assert calls_in(await deltas_for("Hi", tools=TOOLS, tool_choice=chosen)) == [("weather", "{}")]
    assert calls_in(await deltas_for("use the clock tool", tools=TOOLS, tool_choice="none")) == []


# ── trouble, on request ──────────────────────────────────────────────────────────────────────


async def test_it_fails_when_asked_to() -> None:
    with pytest.raises(ModelFailed) as raised:
        await deltas_for("Now please fail.")
    assert (raised.value.reason, raised.value.transient) == ("demo_failure", False)


async def listen(asked: str, spoken: list[Delta]) -> None:
    async for deltas in demo().stream(prompt(asked)):
        spoken += deltas


async def test_it_breaks_off_in_the_middle() -> None:
    spoken: list[Delta] = []
    with pytest.raises(ModelFailed, match="broke off"):
        await listen("break off", spoken)
    assert text_in(spoken).startswith("I was going to tell you")


async def test_it_stalls_until_somebody_loses_patience() -> None:
    spoken: list[Delta] = []
    listening = asyncio.create_task(listen("Please stall", spoken))
    await asyncio.sleep(0.01)
    assert text_in(spoken).endswith("…") and not listening.done()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
