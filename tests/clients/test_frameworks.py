"""Frameworks that run tools of their own: parallel calls, then another round, then another message.

Each talk is held over each API that the framework speaks, streamed and not, in a named conversation and in none. It
is judged by what the framework saw, by what the model was asked, by whether answers were streams, and by what the
store holds.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta, ToolCallDelta
from holdfast.testing import Gate, Script, says
from tests.clients.frameworks import FRAMEWORKS, INSTRUCTOR, TELLERS, Framework
from tests.clients.judges import Said, ends, has_streamed, spoken, stored
from tests.clients.programs import drive, killed
from tests.e2e.world import World

pytestmark = [pytest.mark.slow, pytest.mark.clients]


def script(tool: str) -> tuple[Script, ...]:
    """The answers of the model. It sends two calls side by side, as some providers do."""
    oslo, rome = (partial(ToolCallDelta, index=n) for n in range(2))
    return (
        Script(
            TextDelta(text="Let me "),
            TextDelta(text="look."),
            oslo(call_id="call_oslo", name=tool, arguments='{"city":'),
            rome(call_id="call_rome", name=tool, arguments='{"city": "R'),
            oslo(arguments=' "Oslo"}'),
            rome(arguments='ome"}'),
            FinishDelta(finish="tool_calls"),
        ),
        says(calls=[(tool, '{"city": "Paris"}', "call_paris")]),
        says("It ", "rains."),
        says("It will ", "rain."),
    )


def talk(tool: str) -> Said:
    """All that is said."""
    return [
        ("user", "Weather in Oslo, Rome and Paris?"),
        ("assistant", "Let me look."),
        ("call", tool),
        ("call", tool),
        *PARALLEL,
        ("call", tool),
        ("result", "rain in Paris"),
        ("assistant", "It rains."),
        ("user", "And tomorrow?"),
        ("assistant", "It will rain."),
    ]


PARALLEL = [("result", "rain in Oslo"), ("result", "rain in Rome")]

CASES = [
    pytest.param(each, how, id=f"{each.name}-{how}") for each in FRAMEWORKS for how in each.ways
]


@pytest.mark.parametrize(("framework", "how"), CASES)
async def test_a_framework_runs_its_tools_in_rounds(
    world: World, framework: Framework, how: str
) -> None:
    world.upstream.will(*script(framework.tool))
    whole = talk(framework.tool)
    saw: dict[str, Any] = await drive(framework, how, world)
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert sorted(saw["ran"][:2]) == ["Oslo", "Rome"] and saw["ran"][2:] == ["Paris"]
    assert await has_streamed(world) == ("streamed" in how)
    asked = [_sorted(each) for each in spoken(world)]
    lengths = (1, 6, 8, 10)
    if how.endswith("-named"):
        assert asked == [_sorted(whole[:n]) for n in lengths]
        assert _sorted(await _held(world)) == _sorted(whole)
        assert await ends(world) == ["committed"] * 4
    else:
        assert list(map(_worked, asked)) == [_worked(_sorted(whole[:n])) for n in lengths]
    await world.verify()


RETRIED = [
    pytest.param(each, how, id=f"{each.name}-{how}")
    for each in FRAMEWORKS
    for how in each.ways
    if each.retries and how.endswith("-plain-named")
]


@pytest.mark.parametrize(("framework", "how"), RETRIED)
async def test_a_framework_does_not_notice_that_the_server_was_killed(
    world: World, framework: Framework, how: str
) -> None:
    """In the middle of the answer to its results: no tool runs again, and nothing is stored twice."""
    first, second, third, fourth = script(framework.tool)
    gate = Gate()
    world.upstream.will(first, second, third.waiting(gate, at=1), third, fourth)
    saw = await killed(world, gate, drive(framework, how, world))
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert sorted(saw["ran"]) == ["Oslo", "Paris", "Rome"]
    assert _sorted(await _held(world)) == _sorted(talk(framework.tool))
    assert await ends(world) == ["committed", "committed", "discarded", "committed", "committed"]
    await world.verify()


INVALID, VALID = '{"city": "Oslo", "degrees": "cold"}', '{"city": "Oslo", "degrees": 4}'
OSLO, ROME = [{"city": city, "degrees": 4} for city in ("Oslo", "Rome")]


@pytest.mark.parametrize("how", [each for each in INSTRUCTOR.ways if "parallel" not in each])
async def test_instructor_asks_again_for_what_is_not_valid(world: World, how: str) -> None:
    plain = "plain" in how
    arguments, tool = ((INVALID, VALID), "Weather") if plain else ((VALID,), "PartialWeather")
    world.upstream.will(*(says(calls=[(tool, each, f"c_{each[-2]}")]) for each in arguments))
    saw = await drive(INSTRUCTOR, how, world)
    assert saw["answers"] == [OSLO]
    assert len(world.upstream.requests) == len(arguments)
    assert all("Weather" in str(each.json["tool_choice"]) for each in world.upstream.requests)
    assert await has_streamed(world) == ("streamed" in how)
    await world.verify()


@pytest.mark.parametrize("how", [each for each in INSTRUCTOR.ways if "parallel" in each])
async def test_instructor_takes_several_calls_of_one_answer(world: World, how: str) -> None:
    calls = [("Weather", json.dumps(each), f"call_{each['city']}") for each in (OSLO, ROME)]
    world.upstream.will(says(calls=calls))
    saw = await drive(INSTRUCTOR, how, world)
    assert saw["answers"] == [OSLO, ROME]
    assert len(world.upstream.requests) == 1
    await world.verify()


async def test_instructor_does_not_notice_that_the_server_was_killed(world: World) -> None:
    """In the middle of the answer to what was not valid."""
    gate = Gate()
    wrong, right = [says("So:", calls=[("Weather", each, "c1")]) for each in (INVALID, VALID)]
    world.upstream.will(wrong, right.waiting(gate, at=1), right)
    saw = await killed(world, gate, drive(INSTRUCTOR, "chat-plain-named", world))
    assert saw["answers"] == [OSLO]
    assert len(world.upstream.requests) == 3
    await world.verify()


async def _held(world: World) -> Said:
    """What the conversation holds, without the instructions that some frameworks send as messages."""
    return [each for each in await stored(world) if each[0] != "system"]


def _sorted(said: Said) -> Said:
    """The same talk, with the results of parallel calls in one order: frameworks send them as they come."""
    parallel = [n for n, each in enumerate(said) if each in PARALLEL]
    for place, result in zip(parallel, sorted(said[n] for n in parallel), strict=True):
        said = [*said[:place], result, *said[place + 1 :]]
    return said


def _worked(said: Said) -> Said:
    """What a framework must tell again. Some drop the text before their calls, or tell it later."""
    return [each for each in said if each[0] != "assistant"]


ANSWERED = "[[ ## answer ## ]]\n{}\n\n[[ ## completed ## ]]"


def words_of(framework: Framework) -> tuple[Script, ...]:
    """The answers of the model, in the words that a framework expects of it."""
    calls, once = script(framework.tool)[:2]
    answers = ("It rains.", "It will rain.")
    if framework.name == "smolagents":
        said = [
            ("final_answer", msgspec.json.encode({"answer": each}).decode()) for each in answers
        ]
        return (calls, once, *(says(calls=[each]) for each in said))
    if framework.name == "dspy":
        silent = Script(*(each for each in calls.steps if not isinstance(each, TextDelta)))
        return (silent, once, *(says(ANSWERED.format(each)) for each in answers))
    return (calls, once, *map(says, answers))


@pytest.mark.parametrize(
    ("framework", "how"),
    [pytest.param(each, how, id=f"{each.name}-{how}") for each in TELLERS for how in each.ways],
)
async def test_a_framework_that_tells_its_calls_in_its_own_words_runs_them_in_rounds(
    world: World, framework: Framework, how: str
) -> None:
    """Its history is nothing that this server has said: what the model must be told is what came of the calls."""
    world.upstream.will(*words_of(framework))
    saw: dict[str, Any] = await drive(framework, how, world)
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert sorted(saw["ran"][:2]) == ["Oslo", "Rome"] and saw["ran"][2:] == ["Paris"]
    told = [str(each.json["messages"]) for each in world.upstream.requests]
    assert len(told) == 4, "each round asks once"
    assert ["rain in Oslo" in each and "rain in Rome" in each for each in told[:2]] == [False, True]
    assert "rain in Paris" in told[2] and "And tomorrow?" in told[3]
    assert await has_streamed(world) == ("streamed" in how)
    await world.verify()


@pytest.mark.parametrize("framework", TELLERS, ids=str)
async def test_such_a_framework_does_not_notice_that_the_server_was_killed(
    world: World, framework: Framework
) -> None:
    first, second, third, fourth = words_of(framework)
    gate = Gate()
    world.upstream.will(first, second, third.waiting(gate, at=0), third, fourth)
    saw = await killed(world, gate, drive(framework, "chat-plain-named", world))
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert sorted(saw["ran"]) == ["Oslo", "Paris", "Rome"]
    assert len(world.upstream.requests) == 5
    await world.verify()
