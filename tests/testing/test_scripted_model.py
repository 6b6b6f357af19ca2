"""A model in a test's hands."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from holdfast.core.turns.deltas import (
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.models.model import Model, ModelFailed
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.models.conversations import heard, prompt


async def test_it_says_what_it_is_told_to_and_remembers_what_it_was_asked() -> None:
    model = ScriptedModel(says("Hel", "lo", usage=Usage(output_tokens=2)), "Bye")
    assert await heard(model, prompt("Hi")) == [
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
        UsageDelta(usage=Usage(output_tokens=2)),
        FinishDelta(finish="stop"),
    ]
    assert await heard(model, prompt("Hi", "Hello", "Bye")) == [
        TextDelta(text="Bye"),
        FinishDelta(finish="stop"),
    ]
    assert [len(each.messages) for each in model.prompts] == [1, 3]
    assert [each.content for each in model.messages()] == ["Hi", "Hello", "Bye"]
    assert [each.content for each in model.messages(0)] == ["Hi"]
    assert repr(model) == "<ScriptedModel asked 2 times, 0 answers left>"


async def test_it_thinks_refuses_and_calls() -> None:
    script = says("Hi", thinks=["Hm"], refuses=["No"], calls=[("a", "{}"), ("b", "[1]", "mine")])
    assert await heard(ScriptedModel(script)) == [
        ReasoningDelta(text="Hm"),
        TextDelta(text="Hi"),
        TextDelta(text="No", refusal=True),
        ToolCallDelta(index=0, call_id="call_0", name="a"),
        ToolCallDelta(index=0, arguments="{"),
        ToolCallDelta(index=0, arguments="}"),
        ToolCallDelta(index=1, call_id="mine", name="b"),
        ToolCallDelta(index=1, arguments="["),
        ToolCallDelta(index=1, arguments="1]"),
        FinishDelta(finish="tool_calls"),
    ]


async def test_it_fails_at_any_delta() -> None:
    for at in range(3):
        model = ScriptedModel(says("a", "b").failing(at=at))
        spoken = []
        async with aclosing(model.stream(prompt())) as deltas:
            for _ in range(at):
                spoken.append(await anext(deltas))  # noqa: PERF401
            with pytest.raises(ModelFailed, match="scripted to fail"):
                await anext(deltas)
        assert len(spoken) == at
        assert model.left_early == 0
    with pytest.raises(ModelFailed, match="busy"):
        await heard(ScriptedModel(fails("busy", status=429, retry_after_s=3)))


async def test_it_ends_without_a_finish() -> None:
    assert await heard(ScriptedModel(says("a", "b").ending(at=1))) == [TextDelta(text="a")]


async def test_it_waits_at_a_gate() -> None:
    gate = Gate()
    model = ScriptedModel(says("a", "b").waiting(gate, at=1))
    asking = asyncio.create_task(heard(model))
    await gate.reached.wait()
    assert (repr(gate), model.speaking, asking.done()) == ("<Gate held>", 1, False)
    gate.release()
    assert len(await asking) == 3
    assert (repr(gate), repr(Gate())) == ("<Gate open>", "<Gate closed>")
    assert model.speaking == 0


async def test_it_notices_who_leaves_early() -> None:
    model = ScriptedModel(says("a", "b"))
    async with aclosing(model.stream(prompt())) as deltas:
        await anext(deltas)
    assert (model.speaking, model.left_early) == (0, 1)


async def test_it_can_make_answers_up() -> None:
    model: Model = ScriptedModel("first", otherwise=lambda asked: f"{len(asked.messages)} messages")
    assert (await heard(model))[0] == TextDelta(text="first")
    assert (await heard(model))[0] == TextDelta(text="1 messages")
    await model.close()


async def test_a_question_too_many_is_the_tests_mistake() -> None:
    model = ScriptedModel()
    model.will("one")
    await heard(model)
    with pytest.raises(AssertionError, match="was asked 2 times"):
        await heard(model)
