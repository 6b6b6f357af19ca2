"""Agents work together: tasks are given and come back, conversations are handed over."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import (
    AssistantMessage,
    HandOff,
    Permissions,
    ToolCall,
    UserMessage,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import closing
from holdfast.models.model import Prompt
from holdfast.testing import Gate, Script, fails, says
from tests.core.builders import mint
from tests.loop.stage import (
    Deed,
    Model,
    OpenInMemory,
    Stage,
    agent,
    calls_of,
    handoff,
    messages_of,
    outcomes,
    results_of,
    scripted,
    task,
    told,
    words,
)

USED = ev.Usage(input_tokens=1, output_tokens=10)


# ── giving a task ────────────────────────────────────────────────────────────────────────────


async def test_a_task_is_given_and_its_result_comes_back() -> None:
    scout = agent("scout", says("All ", "quiet.", usage=USED), instruction="You look.")
    butler = agent(
        "butler",
        says(calls=[task("scout", expected_output="one line")], usage=USED),
        says("All is quiet.", usage=USED),
        sub_agents=("scout",),
        instruction="You serve.",
    )
    turn = await Stage(butler, scout).play("Is it?", instructions=("Be brief.",))
    assert told(turn, "transfer_task") == "All quiet."
    assert turn.turn.usage == USED + USED + USED
    (prompt,) = scripted(scout).prompts
    assert prompt.system == "You look."
    assert [words(each) for each in messages_of(prompt)] == [
        "Look around\n\nExpected output: one line"
    ]
    assert scripted(butler).prompts[0].system == "You serve.\n\nBe brief."


async def test_a_sub_agent_sees_its_own_work_and_nothing_else() -> None:
    look = Deed("look", read_only=True)
    scout = agent("scout", says("Hm.", calls=[("look", "{}")]), "Quiet.", tools=[look])
    butler = agent(
        "butler", "Hello.", says(calls=[task("scout")]), "So it is.", sub_agents=("scout",)
    )
    stage = Stage(butler, scout)
    await stage.next("Good day")
    turn = await stage.next("Is it?", client_tools=(ev.ToolDefinition(name="tell"),))
    assert [words(each) for each in scripted(scout).messages()] == [
        "Look around",
        "Hm.",
        "look done",
    ]
    assert [each.name for each in scripted(scout).prompts[0].tools] == ["look"]
    assert {each.path for each in calls_of(turn) if each.name == "look"} == {
        (calls_of(turn)[0].id,)
    }
    # And the butler sees the result only, in this turn and in the next.
    scripted(butler).will("Good night.")
    await stage.next("Thank you")
    assert "Hm." not in [words(each) for each in scripted(butler).messages()]


async def test_colleagues_of_colleagues_and_all_that_they_use_up() -> None:
    runner = agent("runner", says("I ran.", usage=USED))
    scout = agent(
        "scout",
        says(calls=[task("runner"), task("runner")], usage=USED),
        says("They ran.", usage=USED),
        sub_agents=("runner",),
    )
    butler = agent("butler", says(calls=[task("scout")]), "Done.", sub_agents=("scout",))
    scripted(runner).will(says("I ran, too.", usage=USED))
    turn = await Stage(butler, scout, runner).play("Run")
    assert turn.turn.usage == ev.Usage(input_tokens=4, output_tokens=40)
    assert sorted(len(each.path) for each in results_of(turn)) == [0, 1, 1]


async def test_a_circle_of_colleagues_ends_and_is_told() -> None:
    def passing(to: str) -> Model:
        def choose(prompt: Prompt) -> Script:
            tried = any(message.role == "tool" for message in messages_of(prompt))
            return says("Nobody would.") if tried else says(calls=[task(to)])

        return Model(otherwise=choose)

    one = agent("one", model=passing("two"), sub_agents=("two",))
    two = agent("two", model=passing("one"), sub_agents=("one",))
    turn = await Stage(one, two).play("Go")
    deepest = max(calls_of(turn), key=lambda each: len(each.path))
    assert len(deepest.path) == limits.branch_depth_max
    (answer,) = [each for each in results_of(turn) if each.call == deepest.id]
    assert answer.outcome == "error"
    assert turn.turn.complete


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "do not fit"),
        ('{"agent":"scout"}', "do not fit"),
        ('{"agent":"scout","task":" "}', "empty"),
        ('{"agent":"gardener","task":"dig"}', "There are: scout."),
        ('{"agent":"ghost","task":"boo"}', "There are: scout."),
    ],
)
async def test_a_task_that_cannot_be_given_is_told(arguments: str, why: str) -> None:
    butler = agent(
        "butler",
        says(calls=[("transfer_task", arguments)]),
        "Well.",
        sub_agents=("scout", "ghost"),
    )
    turn = await Stage(butler, agent("scout"), agent("gardener")).play("Go")
    assert outcomes(turn) == {"transfer_task": "error"}
    assert why in told(turn, "transfer_task")


SPEAKING = says("I ", "see ", thinks=["Hmm"], calls=[("look", "{}")], usage=USED)


@pytest.mark.parametrize("at", range(len(SPEAKING.steps)))
@pytest.mark.parametrize("how", ["fails", "breaks off"])
async def test_a_sub_agent_whose_model_fails_is_an_error_for_who_asked(at: int, how: str) -> None:
    script = SPEAKING.failing(at=at) if how == "fails" else SPEAKING.ending(at=at)
    butler = agent(
        "butler", says(calls=[task("scout")], usage=USED), "A pity.", sub_agents=("scout",)
    )
    turn = await Stage(butler, agent("scout", script)).play("Go")
    assert outcomes(turn) == {"transfer_task": "error"}
    assert "scout could not finish" in told(turn, "transfer_task")
    spent = any(isinstance(each, type(SPEAKING.steps[-2])) for each in script.steps)
    assert turn.turn.usage == (USED + USED if spent else USED)
    left = [each for each in turn.turn.items if isinstance(each, AssistantMessage | ToolCall)]
    assert all(each.state == "set_aside" for each in left if each.path)


async def test_who_gave_a_task_that_failed_hears_what_was_done_for_it() -> None:
    """An agent that only hears of the failure gives the task again, and what has an effect happens twice."""
    pay, fly = Deed("pay"), Deed("fly")
    runner = agent("runner", says(calls=[("pay", '{"n":2}')]), fails("boom"), tools=[pay])
    scout = agent(
        "scout",
        says(calls=[("pay", '{"n":1}'), ("fly", "{}"), task("runner")]),
        fails("boom"),
        tools=[pay, fly],
        sub_agents=("runner",),
        permissions=Permissions(allow=("pay", "transfer_task"), deny=("fly",)),
    )
    butler = agent("butler", says(calls=[task("scout")]), "A pity.", sub_agents=("scout",))
    turn = await Stage(butler, scout, runner).play("Go")
    (call,) = [each for each in calls_of(turn) if not each.path]
    (result,) = [each for each in results_of(turn) if each.call == call.id]
    heard = text_of(result.content).splitlines()
    assert heard[0] == "scout could not finish: boom"
    assert set(heard[2:]) == {
        '- pay({"n":1}): done',
        "- fly({}): refused, it did not run",
        '- transfer_task({"agent":"runner","task":"Look around"}): ended with an error',
        '- pay({"n":2}): done',
    }


async def test_what_a_failed_sub_agent_did_is_told_in_bounds() -> None:
    pay = Deed("pay")
    many = says(calls=[("pay", msgspec.json.encode({"to": "x" * 9_000}).decode())] * 50)
    butler = agent("butler", says(calls=[task("scout")]), "A pity.", sub_agents=("scout",))
    scout = agent("scout", many, fails("boom"), tools=[pay])
    heard = told(await Stage(butler, scout).play("Go"), "transfer_task")
    assert "- 20 earlier calls: pay (20)" in heard
    assert heard.count("…): done") == 30 and len(heard) < 6_000


async def test_a_task_that_a_turn_was_stopped_in_says_what_was_done_for_it() -> None:
    gate = Gate()
    pay, fly = Deed("pay"), Deed("fly", gate=gate)
    scout = agent(
        "scout", says(calls=[("pay", "{}")]), says(calls=[("fly", "{}")]), tools=[pay, fly]
    )
    butler = agent("butler", says(calls=[task("scout")]), sub_agents=("scout",))
    stage = Stage(butler, scout)
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    playing.cancel()
    await asyncio.wait([playing])
    await turn.record(ev.Interrupted(by="deadline"))
    await turn.record(*closing(turn.turn, mint))
    heard = told(turn, "transfer_task")
    assert "- pay({}): done" in heard
    assert "- fly({}): outcome unknown" in heard


async def test_one_failing_sub_agent_leaves_the_others_alone() -> None:
    gate = Gate()
    good = agent("good", says("Fine.").waiting(gate, at=0))
    bad = agent("bad", fails("out of order"))
    butler = agent(
        "butler", says(calls=[task("good"), task("bad")]), "So so.", sub_agents=("good", "bad")
    )
    stage = Stage(butler, good, bad)
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert [each.outcome for each in results_of(turn)] == ["error"]
    gate.release()
    await playing
    assert [each.outcome for each in results_of(turn)] == ["error", "ok"]


async def test_as_many_sub_agents_speak_at_once_as_tools_may_run() -> None:
    most = 0

    def choose(prompt: Prompt) -> Script:
        nonlocal most
        most = max(most, model.speaking + 1)
        return says("a", "b", "c")

    model = Model(otherwise=choose)
    count = 3 * limits.calls_side_by_side_max
    butler = agent("butler", says(calls=[task("scout")] * count), "Done.", sub_agents=("scout",))
    turn = await Stage(butler, agent("scout", model=model)).play("Go")
    assert len(results_of(turn)) == count
    assert most == limits.calls_side_by_side_max


async def test_nobody_can_be_asked_on_a_sub_agents_behalf() -> None:
    fly = Deed("fly")
    scout = agent(
        "scout",
        says(calls=[("fly", "{}")]),
        "No.",
        tools=[fly],
        permissions=Permissions(ask=("*",)),
    )
    butler = agent("butler", says(calls=[task("scout")]), "No.", sub_agents=("scout",))
    turn = await Stage(butler, scout).play("Go")
    assert outcomes(turn)["fly"] == "refused"
    assert fly.runs == []


async def test_a_tool_called_like_one_of_ours_does_not_hide_it() -> None:
    """Two tools with one name are refused by every provider."""
    mine = Deed("transfer_task")
    butler = agent(
        "butler", says(calls=[task("scout")]), "Done.", tools=[mine], sub_agents=("scout",)
    )
    turn = await Stage(butler, agent("scout", "Quiet.")).play("Go")
    assert told(turn, "transfer_task") == "Quiet."
    (offered,) = scripted(butler).prompts[0].tools
    assert "the scout" in offered.description
    # Whoever has no colleagues may call a tool as they like.
    alone = agent("alone", says(calls=[("transfer_task", "{}")]), "Done.", tools=[mine])
    await Stage(alone).play("Go")
    assert len(mine.runs) == 1


# ── handing over ─────────────────────────────────────────────────────────────────────────────


def hand_offs(turn: OpenInMemory) -> list[tuple[str, str]]:
    return [(e.from_agent, e.to_agent) for e in turn.turn.items if isinstance(e, HandOff)]


async def test_whoever_takes_over_speaks_from_the_next_step_on() -> None:
    clerk = agent("clerk", "At your service.", "Good night.", instruction="You count.")
    butler = agent("butler", says(calls=[handoff("clerk")]), handoffs=("clerk",))
    stage = Stage(butler, clerk)
    turn = await stage.next("The bill, please")
    assert hand_offs(turn) == [("butler", "clerk")]
    assert stage.snapshot.agent == "clerk"
    assert next(words(each) for each in scripted(clerk).messages()) == "The bill, please"
    assert scripted(clerk).prompts[0].system == "You count."
    await stage.next("Good night")
    assert len(scripted(clerk).prompts) == 2


async def test_a_hand_off_beside_another_call_lets_that_call_run_as_whose_it_is() -> None:
    """The look is the butler's, with the butler's tools and rules, whoever speaks by then."""
    gate = Gate()
    look = Deed("look", gate=gate)
    butler = agent(
        "butler",
        says(calls=[handoff("clerk"), *[("look", "{}")] * (limits.calls_side_by_side_max + 1)]),
        tools=[look],
        handoffs=("clerk",),
    )
    clerk = agent("clerk", "I see.", permissions=Permissions(deny=("*",)))
    stage = Stage(butler, clerk)
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    gate.release()
    await playing
    assert {each.outcome for each in results_of(turn)} == {"ok"}
    assert {each.agent for each in look.runs} == {"butler"}
    assert turn.turn.agent == "clerk"


async def test_a_conversation_is_handed_over_once() -> None:
    butler = agent(
        "butler", says(calls=[handoff("clerk"), handoff("cook")]), handoffs=("clerk", "cook")
    )
    turn = await Stage(butler, agent("clerk", "Yes?"), agent("cook")).play("Go")
    assert hand_offs(turn) == [("butler", "clerk")]
    assert [each.outcome for each in results_of(turn)] == ["ok", "error"]


@pytest.mark.parametrize("arguments", ["{", "{}", '{"agent":"cook"}', '{"agent":"ghost"}'])
async def test_a_hand_off_to_nobody_is_told(arguments: str) -> None:
    butler = agent(
        "butler", says(calls=[("handoff", arguments)]), "Well.", handoffs=("clerk", "ghost")
    )
    turn = await Stage(butler, agent("clerk"), agent("cook")).play("Go")
    assert outcomes(turn) == {"handoff": "error"}
    assert turn.turn.agent == "butler"


async def test_a_sub_agent_is_not_offered_to_hand_over_and_cannot() -> None:
    scout = agent("scout", says(calls=[handoff("clerk")]), "Well.", handoffs=("clerk",))
    butler = agent("butler", says(calls=[task("scout")]), "Done.", sub_agents=("scout",))
    turn = await Stage(butler, scout, agent("clerk")).play("Go")
    assert scripted(scout).prompts[0].tools == ()
    assert outcomes(turn)["handoff"] == "error"
    assert hand_offs(turn) == []


async def test_an_agent_that_works_on_its_own_task_does_not_hand_the_conversation_over() -> None:
    """It speaks in both places; only in one of them is it talking to the user."""
    butler = agent(
        "butler",
        says(calls=[task("butler")]),
        says(calls=[handoff("clerk")]),
        "Well.",
        "Done.",
        sub_agents=("butler",),
        handoffs=("clerk",),
    )
    turn = await Stage(butler, agent("clerk")).play("Go")
    assert outcomes(turn)["handoff"] == "error"
    assert hand_offs(turn) == []


async def test_a_sub_agent_that_is_gone_when_its_turn_is_resumed_is_an_error_for_who_asked() -> (
    None
):
    gate = Gate()
    butler = agent("butler", says(calls=[task("scout")]), "A pity.", sub_agents=("scout",))
    stage = Stage(butler, agent("scout", says("Hm").waiting(gate, at=0)))
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
    later = Stage(butler, snapshot=stage.snapshot)
    broken = turn.turn.branches[1].path
    await turn.record(ev.StepBroken(path=broken), ev.Resumed(attempt=2))
    await later.go_on(turn)
    assert outcomes(turn) == {"transfer_task": "error"}
    assert isinstance(turn.turn.items[2], UserMessage)
