"""A retry begins where the attempt before it had come to, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.items import EndedBy, ToolResult, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import UNKNOWN, advanced
from holdfast.core.turns.effects import AskModel, Finish, RunCall, wanted
from holdfast.core.turns.retries import retrying
from holdfast.core.turns.turn import Turn
from tests.core.builders import (
    after,
    answered,
    asked,
    begun,
    branch_opened,
    call,
    finished,
    handed_off,
    inside,
    interrupted,
    mint,
    said,
    started,
    steered,
    summary,
    user,
)

LOOK, FLY = call("look"), call("fly")
ONE_STEP = (asked(), answered(LOOK, finish="tool_calls"), started(LOOK), finished(LOOK, "cold"))


def retry_of(
    *happened: ev.Event, by: EndedBy = "model_error", first: Turn | None = None, **fields: Any
) -> Turn:
    """The retry of a turn in which this happened before it failed."""
    failed = after(first or begun(), *happened, interrupted(by), ev.Ended(by=by, kept=False))
    again = begun(**fields)
    return advanced(again, retrying(again, failed, happened, mint))


def outcomes(turn: Turn) -> list[str]:
    return [each.outcome for each in turn.items if isinstance(each, ToolResult)]


def test_what_was_answered_and_done_is_not_asked_for_again() -> None:
    turn = retry_of(*ONE_STEP, asked())
    assert [each.id for each in turn.items[1:]] == [LOOK.id, ONE_STEP[-1].result.id]
    assert wanted(turn) == (AskModel(path=(), agent="butler"),)
    assert turn.root.steps == 1
    assert turn.acted


def test_an_answer_that_was_whole_need_not_be_given_again() -> None:
    """It ran out of time between its last word and its commit."""
    turn = retry_of(*ONE_STEP, asked(), answered(said("Cold.")), by="deadline")
    assert wanted(turn) == (Finish(),)
    assert turn.usage.output_tokens == 2


def test_a_call_that_had_started_has_an_unknown_outcome_unless_it_may_run_again() -> None:
    again, idle = call("again"), call("idle")
    turn = retry_of(
        asked(),
        answered(FLY, again, idle, finish="tool_calls"),
        started(FLY),
        started(again, idempotent=True),
    )
    assert outcomes(turn) == ["unknown"]
    assert text_of(turn.items[-1].content) == UNKNOWN  # type: ignore[union-attr]
    assert wanted(turn) == (RunCall(call=again), RunCall(call=idle))
    tried = turn.find_pending(again.id)
    assert tried is not None and tried.may_have_run


def test_a_step_that_broke_off_is_left_behind() -> None:
    words = said("Let me", state="set_aside")
    broken = ev.StepBroken(items=(words,))
    turn = retry_of(asked(), broken, *ONE_STEP, asked(), broken, asked())
    assert words.id not in [each.id for each in turn.items]
    assert turn.root.steps == 1


def test_a_sub_agent_goes_on_where_it_was() -> None:
    dig = call("dig", path=inside(LOOK))
    turn = retry_of(
        asked(),
        answered(LOOK, finish="tool_calls"),
        branch_opened(LOOK),
        asked(inside(LOOK)),
        answered(dig, finish="tool_calls"),
        started(dig),
        finished(dig),
        asked(inside(LOOK)),
    )
    assert wanted(turn) == (AskModel(path=inside(LOOK), agent="helper"),)


def test_hand_offs_and_summaries_are_part_of_what_was_done() -> None:
    short = summary()
    turn = retry_of(*ONE_STEP, handed_off(), ev.Compacted(summary=short))
    assert turn.agent == "specialist"
    assert turn.items[-1] == short


def test_an_attempt_that_was_resumed_itself_can_be_gone_on_from() -> None:
    again = call("again")
    begins = (asked(), answered(again, finish="tool_calls"))
    tried = (started(again, idempotent=True), ev.Resumed(attempt=2))
    turn = retry_of(*begins, *tried, started(again, idempotent=True), finished(again))
    assert outcomes(turn) == ["ok"]
    assert turn.attempt == 3, "its own, the one it was resumed with, and the one that retries it"


def test_a_retry_that_was_resumed_before_it_began_counts_on() -> None:
    failed = after(begun(), *ONE_STEP, interrupted("crash"), ev.Ended(by="crash", kept=False))
    again = after(begun(), ev.Resumed(attempt=2))
    turn = advanced(again, retrying(again, failed, ONE_STEP, mint))
    assert (turn.attempt, outcomes(turn)) == (3, ["ok"])


def test_what_people_said_to_the_attempt_is_not_said_again_nor_answered() -> None:
    turn = retry_of(*ONE_STEP, steered("Warm?"), asked(), answered(FLY, finish="tool_calls"))
    assert [each.id for each in turn.items[1:]] == [LOOK.id, ONE_STEP[-1].result.id]
    assert wanted(turn) == (AskModel(path=(), agent="butler"),)


def test_a_limit_is_not_walked_into_again() -> None:
    assert retry_of(*ONE_STEP, by="limit").untouched


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"base": 1},
        {"base_rev": 1},
        {"agent": "cook"},
        {"source_key": "other"},
        {"carried": (FLY,)},
        {"approved": (FLY.id,)},
    ],
    ids=lambda each: next(iter(each)),
)
def test_on_other_ground_it_starts_over(elsewhere: dict[str, Any]) -> None:
    """A turn was committed in between, something was hidden, another agent answers: these are not its steps."""
    assert retry_of(*ONE_STEP, **elsewhere).untouched


def test_nothing_comes_of_nothing() -> None:
    assert retry_of(asked()).untouched
    assert retry_of(ev.Resumed(attempt=2)).attempt == 1


def test_a_journal_without_its_end_is_not_trusted() -> None:
    again = begun()
    for failed in (
        after(begun(), *ONE_STEP),
        after(begun(), *ONE_STEP, interrupted("crash")),
        after(begun(), *ONE_STEP, ev.Ended(by="crash", kept=False)),
    ):
        assert retrying(again, failed, ONE_STEP, mint) == ()


def test_a_turn_is_untouched_until_something_has_happened_in_it() -> None:
    fly = call("fly", waits_for="approval")
    approved = begun(user(), carried=(fly,), approved=(fly.id,))
    assert approved.untouched
    assert after(approved, ev.Resumed(attempt=2)).untouched
    assert not after(approved, started(fly)).untouched
    assert not after(approved, finished(fly, outcome="refused")).untouched
    assert not after(begun(), asked()).untouched
