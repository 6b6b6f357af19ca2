"""How a model is to speak: the agent says, the client says more, and nobody is forced for ever."""

from __future__ import annotations

import pytest

from holdfast.core.items import ToolCall, UserMessage, plain_text, result_for
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.ids import CallId, MessageId
from holdfast.loop.parameters import merged, unforced
from holdfast.testing import says
from tests.core.builders import mint
from tests.loop.stage import Deed, Stage, agent, scripted, task


def test_a_request_wins_where_it_says_something() -> None:
    agents = Parameters(temperature=0.1, stop=("END",), seed=7, others=(("a", "1"), ("b", "1")))
    request = Parameters(temperature=0.0, max_output_tokens=5, others=(("b", "2"), ("c", "2")))
    assert merged(agents, request) == Parameters(
        temperature=0.0,
        max_output_tokens=5,
        stop=("END",),
        seed=7,
        others=(("a", "1"), ("b", "2"), ("c", "2")),
    )
    assert merged(agents, Parameters()) == agents


async def test_sub_agents_keep_their_own() -> None:
    scout = agent("scout", "Quiet.", parameters=Parameters(seed=1))
    butler = agent("butler", says(calls=[task("scout")]), "Well.", sub_agents=("scout",))
    await Stage(butler, scout).play("Go", parameters=Parameters(temperature=1.0))
    assert scripted(scout).prompts[0].parameters == Parameters(seed=1)
    assert scripted(butler).prompts[0].parameters == Parameters(temperature=1.0)


@pytest.mark.parametrize(
    ("choice", "then"),
    [
        ("none", "none"),
        ("auto", "auto"),
        ("required", "auto"),
        ('{"type":"function","name":"look"}', "auto"),
        ("[]", "auto"),
        (
            '{"type":"allowed_tools","mode":"required","tools":[]}',
            '{"type":"allowed_tools","mode":"auto","tools":[]}',
        ),
        (
            '{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}',
            '{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}',
        ),
    ],
)
def test_a_forced_choice_becomes_a_free_one(choice: str, then: str) -> None:
    assert unforced(choice) == then


async def test_a_model_that_was_forced_to_call_a_tool_may_answer_after_that() -> None:
    """It would call one tool after the other until it reached a limit."""
    butler = agent("butler", says(calls=[("look", "{}")]), "Cold.", tools=[Deed("look")])
    await Stage(butler).play("Look!", parameters=Parameters(tool_choice="required"))
    asked = [each.parameters.tool_choice for each in scripted(butler).prompts]
    assert asked == ["required", "auto"]


async def test_a_client_that_requires_a_call_means_one_of_its_own_tools() -> None:
    """The agent's own call would meet the choice, and the turn would end without the call that the client waits for."""
    answers = (says(calls=[("look", "{}")]), says(calls=[("book", "{}")]))
    butler = agent("butler", *answers, tools=[Deed("look")])
    theirs = ToolDefinition(name="book")
    await Stage(butler).play(
        "Book!", parameters=Parameters(tool_choice="required"), client_tools=(theirs,)
    )
    asked = [each.parameters.tool_choice for each in scripted(butler).prompts]
    assert asked == ["required", "required"]


async def test_calls_that_a_request_brings_along_do_not_meet_its_choice() -> None:
    """A client without a conversation sends its history again, with the calls of earlier turns."""
    called = ToolCall(id=mint(CallId), call_id="c", name="look", arguments="{}")
    result = result_for(called, "ok", plain_text("Cold."), mint)
    butler = agent("butler", says(calls=[("look", "{}")]), "Cold.", tools=[Deed("look")])
    said = UserMessage(id=mint(MessageId), content=plain_text("Again!"))
    await Stage(butler).play(called, result, said, parameters=Parameters(tool_choice="required"))
    asked = [each.parameters.tool_choice for each in scripted(butler).prompts]
    assert asked == ["required", "auto"]
