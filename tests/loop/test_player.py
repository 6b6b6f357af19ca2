"""A turn is played: the model speaks, tools run, the model speaks again, until everything is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from holdfast import limits
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    Image,
    Inline,
    Opaque,
    Text,
    TurnLimits,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import (
    Delta,
    ExtraDelta,
    FinishDelta,
    PartDelta,
    TextDelta,
    ToolCallDelta,
)
from holdfast.core.turns.effects import Close, Finish, wanted
from holdfast.errors import Superseded, TurnFailed
from holdfast.models.model import ModelFailed, Prompt
from holdfast.testing import Gate, Script, fails, says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.loop.stage import (
    Deed,
    Model,
    OpenInMemory,
    Stage,
    agent,
    assert_nobody_works,
    bytes_of_turn,
    outcomes,
    scripted,
    words,
)

LOOK = ("look", "{}")


def last_words(turn: OpenInMemory) -> str:
    return turn.turn.root.last_words


async def test_one_step_is_one_answer() -> None:
    stage = Stage(agent("butler", says("It is ", "cold.", usage=ev.Usage(output_tokens=2))))
    turn = await stage.play("How is the weather?")
    assert wanted(turn.turn) == (Finish(),)
    assert last_words(turn) == "It is cold."
    assert turn.turn.usage.output_tokens == 2
    assert [type(each) for each in turn.events if not ev.is_fine(each)] == [
        ev.StepStarted,
        ev.Answered,
    ]


async def test_a_large_picture_of_a_model_lies_in_the_store() -> None:
    data = bytes(limits.inline_bytes_max + 1)
    picture = Image(source=Inline(media_type="image/png", data=data))
    script = Script(TextDelta(text="Here."), PartDelta(part=picture), FinishDelta(finish="stop"))
    turn = await Stage(agent("butler", script)).play("Draw a gull.")
    (answer,) = turn.turn.items[-1:]
    assert isinstance(answer, AssistantMessage)
    text, drawn = answer.content
    assert text == Text(text="Here.")
    assert isinstance(drawn, Image) and isinstance(drawn.source, Blob)
    assert await turn.blob(drawn.source.digest) == data


async def test_tools_run_and_the_model_hears_of_it() -> None:
    look = Deed("look", read_only=True)
    butler = agent("butler", says("Let me see.", calls=[LOOK]), says("Cold."), tools=[look])
    turn = await Stage(butler).play("And now?")
    assert last_words(turn) == "Cold."
    assert [words(each) for each in scripted(butler).messages()] == [
        "And now?",
        "Let me see.",
        "look done",
    ]
    assert look.runs[0].tenant == "acme"


async def test_tools_run_side_by_side_but_not_too_many_at_once() -> None:
    count = 3 * limits.calls_side_by_side_max
    look = Deed("look")
    butler = agent("butler", says(calls=[LOOK] * count), says("Done."), tools=[look])
    await Stage(butler).play("Go")
    assert len(set(look.keys)) == count
    assert look.at_work_most == limits.calls_side_by_side_max


async def test_each_result_is_recorded_when_it_comes() -> None:
    gate = Gate()
    slow, quick = Deed("slow", gate=gate), Deed("quick")
    butler = agent(
        "butler", says(calls=[("slow", "{}"), ("quick", "{}")]), says("Done."), tools=[slow, quick]
    )
    stage = Stage(butler)
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert outcomes(turn) == {"quick": "ok"}
    gate.release()
    await playing
    assert outcomes(turn) == {"quick": "ok", "slow": "ok"}
    stage.kept(turn)


async def test_calls_with_one_provider_id_are_told_apart() -> None:
    """Some servers number every call 0; a provider would refuse two calls with one id."""
    look = Deed("look")
    butler = agent("butler", says(calls=[(*LOOK, "c0"), (*LOOK, "c0")]), "Done.", tools=[look])
    await Stage(butler).play("Go")
    assert len(set(look.keys)) == 2


async def test_state_that_a_tool_remembers_is_seen_by_the_next_one() -> None:
    seen: list[dict[str, str]] = []

    async def remember(run: ToolRun) -> ToolOutput:
        seen.append(dict(run.state))
        change = ev.StateSet(name="todo", value=f"[{len(seen)}]")
        return ToolOutput(content=(Text(text="noted"),), changes=(change,))

    note = Deed("note", do=remember)
    step = says(calls=[("note", "{}")])
    stage = Stage(agent("butler", step, step, "Done.", tools=[note]))
    turn = await stage.next("Go")
    assert seen == [{}, {"todo": "[1]"}]
    assert dict(stage.snapshot.state) == {"todo": "[2]"}
    assert len(turn.turn.changes) == 2


# ── steering ─────────────────────────────────────────────────────────────────────────────────


async def test_people_are_heard_between_two_steps() -> None:
    first = says("Let me see.", calls=[LOOK])
    butler = agent("butler", first, "Cold.", "As you wish.", tools=[Deed("look")])
    stage = Stage(butler)
    turn = stage.open("And now?")
    turn.steering = ["In Bergen, I mean", "Politely, please", "And quickly"]
    await stage.go_on(turn)
    # The first is heard before anything is said, the others where the step before has ended.
    assert turn.steering == []
    assert last_words(turn) == "As you wish."
    asked = [words(each) for each in scripted(butler).messages()]
    assert asked == [
        "And now?",
        "In Bergen, I mean",
        "Let me see.",
        "look done",
        "Politely, please",
        "Cold.",
        "And quickly",
    ]


# ── limits ───────────────────────────────────────────────────────────────────────────────────


async def limited(bound: TurnLimits, *scripts: Script | str) -> OpenInMemory:
    butler = agent("butler", *scripts, tools=[Deed("look")])
    turn = await Stage(butler).play("Go", limits=bound)
    assert wanted(turn.turn) == (Close(),)
    return turn


def limit_of(turn: OpenInMemory) -> str:
    assert turn.turn.interrupted is not None and turn.turn.interrupted.by == "limit"
    return turn.turn.interrupted.detail


async def test_a_turn_ends_truthfully_at_its_limits() -> None:
    step = says(calls=[LOOK], usage=ev.Usage(cost_micros=10))
    assert limit_of(await limited(TurnLimits(steps_max=2), step, step)) == "steps"
    assert limit_of(await limited(TurnLimits(cost_micros_max=20), step, step)) == "cost"
    assert (
        limit_of(await limited(TurnLimits(), says("Once upon", finish="length"))) == "output_tokens"
    )
    too_many = await limited(TurnLimits(calls_max=2), says(calls=[LOOK] * 3))
    assert limit_of(too_many) == "calls"
    assert outcomes(too_many) == {}


@pytest.mark.parametrize("size", [1, 20, 5_000])
async def test_a_model_that_does_not_stop_is_stopped_while_it_speaks(size: int) -> None:
    model = Model(says(*["x" * size] * 10_000))
    stage = Stage(agent("butler", model=model))
    turn = await stage.play("Tell me everything", limits=TurnLimits(output_chars_max=2_000))
    assert limit_of(turn) == "output_chars"
    assert model.left_early == 1
    assert turn.turn.root.draft is not None
    assert turn.turn.root.draft.chars <= 2_000 + 1_024 + size


# ── failures ─────────────────────────────────────────────────────────────────────────────────

ANSWER = says("Let ", "me ", "see.", thinks=["Hmm"], calls=[LOOK, LOOK])


@pytest.mark.parametrize("at", range(len(ANSWER.steps)))
@pytest.mark.parametrize("how", ["fails", "breaks off"])
async def test_a_model_that_fails_fails_the_turn_and_nothing_half_is_recorded(
    at: int, how: str
) -> None:
    script = ANSWER.failing(at=at) if how == "fails" else ANSWER.ending(at=at)
    look = Deed("look")
    stage = Stage(agent("butler", says(calls=[LOOK]), script, tools=[look]))
    turn = stage.open("Go")
    with pytest.raises(ModelFailed) as raised:
        await stage.player(turn)
    assert raised.value.reason == ("scripted" if how == "fails" else "upstream_broke_off")
    assert_nobody_works(stage.team)
    assert len(look.runs) == 1
    assert sum(isinstance(each, ev.Answered) for each in turn.events) == 1
    await turn.record(ev.Interrupted(by="model_error"))
    stage.kept(turn)


@pytest.mark.parametrize(
    "extras",
    [
        [Opaque(owner="demo", json="{}")] * (limits.opaques_max + 1),
        [Opaque(owner="demo", json=" " * (limits.opaque_bytes_max + 1))],
    ],
    ids=["too many", "too large"],
)
async def test_what_cannot_be_kept_is_the_models_failure(extras: list[Opaque]) -> None:
    deltas = [ExtraDelta(kind="message", extra=each) for each in extras]
    script = Script(TextDelta(text="Hm"), *deltas, FinishDelta(finish="stop"))
    with pytest.raises(ModelFailed, match="cannot be kept"):
        await Stage(agent("butler", script)).play("Go")


async def test_more_calls_at_once_than_providers_take_back_are_not_recorded() -> None:
    """They would be part of the history, and every later request would be refused."""
    stage = Stage(agent("butler", says(calls=[LOOK] * (limits.calls_per_step_max + 1))))
    turn = stage.open("Go")
    with pytest.raises(ModelFailed, match="calls at once"):
        await stage.player(turn)
    assert not any(isinstance(each, ev.Answered) for each in turn.events)


async def test_an_agent_that_is_gone_is_a_clear_failure() -> None:
    stage = Stage(agent("butler"))
    with pytest.raises(TurnFailed, match="not in its source") as raised:
        await stage.play("Go", agent="gardener")
    assert raised.value.reason == "agent_not_found"


async def test_a_turn_that_is_somebody_elses_now_stops_everything() -> None:
    class Lost(OpenInMemory):
        async def record(self, *events: ev.Event) -> None:
            if any(isinstance(each, ev.ToolFinished) for each in events):
                raise Superseded(self.turn.request.turn_id, token=1)
            await super().record(*events)

    gate = Gate()
    slow, quick = Deed("slow", gate=gate), Deed("quick")
    calls = [("slow", "{}"), ("quick", "{}"), ("quick", "{}")]
    stage = Stage(agent("butler", says(calls=calls), tools=[slow, quick]))
    turn = stage.open("Go")
    turn.__class__ = Lost
    with pytest.raises(Superseded):
        await stage.player(turn)
    assert_nobody_works(stage.team)


async def test_a_model_that_cancels_itself_is_a_failure_and_not_a_cancellation() -> None:
    class Odd(Model):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
            yield (TextDelta(text="Hm"),)
            raise asyncio.CancelledError

    with pytest.raises(TurnFailed, match="from inside"):
        await Stage(agent("butler", model=Odd())).play("Go")


async def test_a_turn_that_has_ended_otherwise_is_left_alone() -> None:
    stage = Stage(agent("butler"))
    turn = stage.open("Go")
    await turn.record(ev.Interrupted(by="cancelled"))
    before = bytes_of_turn(turn)
    await stage.go_on(turn)
    assert bytes_of_turn(turn) == before


async def test_an_answer_without_words_is_an_answer() -> None:
    turn = await Stage(agent("butler", Script(FinishDelta(finish="stop")))).play("Go")
    assert turn.turn.complete


async def test_a_call_without_a_name_is_not_one() -> None:
    script = Script(ToolCallDelta(index=0, arguments="{}"), FinishDelta(finish="tool_calls"))
    turn = await Stage(agent("butler", script)).play("Go")
    assert turn.turn.complete


async def test_every_step_of_every_branch_has_a_name_of_its_own() -> None:
    """Providers tell two requests apart by it."""
    ask = says(calls=[("transfer_task", '{"agent":"scout","task":"look"}')] * 2)
    scout = agent("scout", model=Model(otherwise=lambda prompt: says("Found.")))
    butler = agent("butler", ask, ask, fails(), sub_agents=("scout",))
    with pytest.raises(ModelFailed):
        await Stage(butler, scout).play("Go")
    asked = [each.call_key for each in (*scripted(butler).prompts, *scripted(scout).prompts)]
    assert len(asked) == len(set(asked)) == 7
