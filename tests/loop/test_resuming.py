"""A turn is taken up again from every point of its journal: nothing is done twice, nothing is made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.core.items import AssistantMessage, HandOff, Reasoning, ToolCall, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import resuming
from holdfast.core.turns.effects import Finish, wanted
from holdfast.core.turns.journal import Record, fold, numbered
from tests.core.builders import mint
from tests.loop.errand import Errand
from tests.loop.stage import OpenInMemory, calls_of, results_of, scripted


async def journal_of(stage: Errand, *, fine: bool) -> tuple[Record, ...]:
    """The journal of an errand from beginning to end, with or without the events that only watchers need."""
    turn = stage.open("Please see to it", replayable=fine)
    turn.steering = ["Quickly"]
    await stage.go_on(turn)
    began = numbered((ev.Began(request=turn.turn.request),), first=0, at_ms=0)
    return tuple(each for each in (*began, *turn.records) if fine or not ev.is_fine(each.event))


async def resumed(stage: Errand, journal: tuple[Record, ...]) -> OpenInMemory:
    """The turn that this journal tells of, taken up and played to its end."""
    folded = fold(journal)
    assert folded.turn is not None and folded.damage is None
    turn = OpenInMemory(folded.turn, stage.snapshot, first_n=folded.next_n)
    await turn.record(*resuming(turn.turn, mint, after="crash"))
    await stage.go_on(turn)
    return turn


@pytest.mark.parametrize("fine", [False, True], ids=["plain", "replayable"])
async def test_a_turn_can_be_taken_up_again_at_every_point(fine: bool) -> None:
    first = Errand()
    journal = await journal_of(first, fine=fine)
    assert len(journal) > (80 if fine else 30)
    for length in range(1, len(journal) + 1):
        stage = Errand()
        stage.snapshot = first.snapshot
        before = journal[:length]
        turn = await resumed(stage, before)
        assert wanted(turn.turn) == (Finish(),)
        assert_nothing_runs_twice(stage, before, turn)
        assert_outcomes_are_true(before, turn)
        assert_what_was_set_aside_is_not_seen(stage, turn)
        assert sum(isinstance(each, HandOff) for each in turn.turn.items) == 1
        assert turn.turn.agent == "clerk"


async def test_a_turn_may_crash_as_often_as_it_likes() -> None:
    """Each attempt gets a few records further, and the next one takes up from there."""
    first = Errand()
    journal = await journal_of(first, fine=False)
    length, runs = 1, Counter[str]()
    while True:
        stage = Errand()
        stage.snapshot = first.snapshot
        turn = await resumed(stage, journal[:length])
        whole = (*journal[:length], *(e for e in turn.records if not ev.is_fine(e.event)))
        done = {str(each.result.call) for each in finished(whole[:length])}
        runs.update(key for deed in stage.deeds for key in deed.keys if key in done)
        if length >= len(whole) or length > 200:
            break
        journal, length = whole, length + 6
    assert length <= 200
    assert wanted(turn.turn) == (Finish(),)
    assert not runs, "something with a recorded result was run again"


# ── what has to be true of it ────────────────────────────────────────────────────────────────


def started(journal: tuple[Record, ...]) -> Iterator[ev.ToolStarted]:
    return (each.event for each in journal if isinstance(each.event, ev.ToolStarted))


def finished(journal: tuple[Record, ...]) -> Iterator[ev.ToolFinished]:
    return (each.event for each in journal if isinstance(each.event, ev.ToolFinished))


def assert_nothing_runs_twice(
    stage: Errand, before: tuple[Record, ...], turn: OpenInMemory
) -> None:
    done = {str(each.result.call) for each in finished(before)}
    lost = {str(each.call) for each in started(before) if not each.idempotent} - done
    ran = [key for deed in stage.deeds for key in deed.keys]
    assert len(ran) == len(set(ran))
    assert not done & set(ran), "a call with a recorded result ran again"
    assert not lost & set(ran), "a call that may have acted ran again"
    again = {str(each.call) for each in started(before) if each.idempotent} - done
    hand_offs = {str(each.id) for each in calls_of(turn) if each.name == "handoff"}
    assert again - hand_offs <= set(ran), "an idempotent call was not run again"


def assert_outcomes_are_true(before: tuple[Record, ...], turn: OpenInMemory) -> None:
    done = {each.result.call: each.result.outcome for each in finished(before)}
    lost = {each.call for each in started(before) if not each.idempotent} - done.keys()
    found = {each.call: each.outcome for each in results_of(turn)}
    assert {call for call, outcome in found.items() if outcome == "unknown"} == lost
    assert done.items() <= found.items()


def assert_what_was_set_aside_is_not_seen(stage: Errand, turn: OpenInMemory) -> None:
    aside = [
        text_of(each.content) if isinstance(each, AssistantMessage) else each.text
        for each in turn.turn.items
        if isinstance(each, AssistantMessage | Reasoning) and each.state == "set_aside"
    ]
    asked = (prompt for each in stage.team.agents.values() for prompt in scripted(each).prompts)
    shown = b"\n".join(piece for prompt in asked for piece in prompt.messages).decode()
    assert [text for text in aside if text in shown] == []
    assert not any(
        each.state == "set_aside" and str(each.id) in shown
        for each in turn.turn.items
        if isinstance(each, ToolCall)
    )
