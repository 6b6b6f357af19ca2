"""A turn may be stopped at every point; afterwards nobody works, and what is there can be kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from holdfast import limits
from holdfast.core.items import Opaque, TurnLimits
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import Delta, ExtraDelta, TextDelta
from holdfast.core.turns.effects import Finish, wanted
from holdfast.models.model import ModelFailed, Prompt
from holdfast.testing import Gate, Script, says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.loop.errand import Errand
from tests.loop.stage import (
    Deed,
    Model,
    OpenInMemory,
    Stage,
    agent,
    assert_nobody_works,
    outcomes,
    results_of,
    task,
)


async def stopped_after(ticks: int, *, again_after: int | None = None) -> OpenInMemory:
    """An errand that is cancelled after so many turns of the event loop; perhaps once more after that."""
    stage = Errand()
    turn = stage.open("Please see to it")
    turn.steering = ["Quickly", "And thank you"]
    playing = asyncio.create_task(stage.player(turn))
    for _ in range(ticks):
        await asyncio.sleep(0)
    playing.cancel()
    if again_after is not None:
        for _ in range(again_after):
            await asyncio.sleep(0)
        playing.cancel()
    (failure,) = await asyncio.gather(playing, return_exceptions=True)
    assert failure is None or isinstance(failure, asyncio.CancelledError), failure
    assert_nobody_works(stage.team)
    if failure is not None:
        await turn.record(ev.Interrupted(by="cancelled"))
    stage.kept(turn)
    return turn


@pytest.mark.parametrize(
    "again_after",
    [None, 0, *(pytest.param(ticks, marks=pytest.mark.thorough) for ticks in (1, 2)), 3],
)
async def test_a_turn_can_be_stopped_at_every_await(again_after: int | None) -> None:
    ticks = 0
    while wanted((turn := await stopped_after(ticks, again_after=again_after)).turn) != (Finish(),):
        ticks += 1
    assert ticks > 50
    assert {each.outcome for each in results_of(turn)} == {"ok", "error"}


class AtOnce(Model):
    """Says everything in one go, as an upstream does that is faster than we are."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        async with aclosing(super().stream(prompt)) as coming:
            yield [delta async for deltas in coming for delta in deltas]


async def test_a_limit_is_noticed_in_the_middle_of_what_came_together() -> None:
    model = AtOnce(says(*["word "] * 1000))
    turn = await Stage(agent("butler", model=model)).play(
        "Go", limits=TurnLimits(output_chars_max=500)
    )
    assert turn.turn.interrupted is not None and turn.turn.interrupted.by == "limit"
    assert turn.turn.root.draft is not None
    assert 500 <= turn.turn.root.draft.chars < 1000


async def test_what_was_said_before_something_that_cannot_be_kept_was_said() -> None:
    too_many = ExtraDelta(kind="message", extra=Opaque(owner="p", json="{}"))
    deltas: list[Delta] = [TextDelta(text="Half"), *[too_many] * (limits.opaques_max + 1)]
    stage = Stage(agent("butler", model=AtOnce(Script(*deltas))))
    turn = stage.open("Go")
    with pytest.raises(ModelFailed, match="cannot be kept"):
        await stage.player(turn)
    assert turn.turn.root.draft is not None and turn.turn.root.draft.items[0].text == "Half"


async def test_a_turn_that_is_cancelled_while_it_stops_by_itself_says_so() -> None:
    """A limit ends it; before its tools have let go somebody cancels. Whoever did may not be ignored."""
    let_go, gate = asyncio.Event(), Gate()

    class Slow(Deed):
        async def run(self, run: ToolRun) -> ToolOutput:
            try:
                return await super().run(run)
            finally:
                await let_go.wait()

    scout = agent("scout", says("Much", usage=ev.Usage(cost_micros=9)))
    butler = agent(
        "butler",
        says(calls=[("slow", "{}"), task("scout")]),
        tools=[Slow("slow", gate=gate)],
        sub_agents=("scout",),
    )
    stage = Stage(butler, scout)
    turn = stage.open("Go", limits=TurnLimits(cost_micros_max=9))
    playing = asyncio.create_task(stage.player(turn))
    for _ in range(60):
        await asyncio.sleep(0)
    assert turn.turn.interrupted is not None and not playing.done()
    playing.cancel()
    await asyncio.sleep(0)
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert_nobody_works(stage.team)
    stage.kept(turn)


async def test_a_tool_that_takes_its_time_to_stop_is_waited_for() -> None:
    """Leaving it behind would let it act in a turn that has ended."""
    let_go = asyncio.Event()

    class Slow(Deed):
        async def run(self, run: ToolRun) -> ToolOutput:
            try:
                return await super().run(run)
            finally:
                await let_go.wait()

    gate = Gate()
    slow = Slow("slow", gate=gate)
    stage = Stage(agent("butler", says(calls=[("slow", "{}")]), tools=[slow]))
    turn = stage.open("Go")
    playing = asyncio.create_task(stage.player(turn))
    await gate.reached.wait()
    for _ in range(5):
        playing.cancel()
        await asyncio.sleep(0)
    assert not playing.done()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert_nobody_works(stage.team)
    await turn.record(ev.Interrupted(by="cancelled"))
    assert outcomes(turn) == {}
    stage.kept(turn)
