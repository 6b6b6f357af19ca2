"""How a turn that broke off becomes whole, and how one is taken up again."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.core.history.checks import check_turn
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Outcome,
    ToolCall,
    ToolResult,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import (
    BRANCH_BROKEN,
    CALLS_LISTED,
    NOT_RUN,
    UNKNOWN,
    advanced,
    branch_work,
    closing,
    note_for_model,
    resuming,
)
from holdfast.core.turns.effects import AskModel, RunCall, wanted
from holdfast.core.turns.turn import Turn, committed_items
from holdfast.errors import IllegalEvent
from holdfast.ids import CallId, MessageId
from tests.core.builders import (
    after,
    answered,
    asked,
    asking,
    begun,
    branch_opened,
    call,
    called,
    complete,
    finished,
    inside,
    interrupted,
    kept,
    mint,
    note,
    said,
    started,
)

LOOK, FLY, PICK = call("look"), call("fly"), call("pick", waits_for="client")
INNER = call("dig", path=inside(LOOK))


def closed(turn: Turn, by: EndedBy = "cancelled") -> Turn:
    turn = after(turn, interrupted(by, detail="a detail"))
    return advanced(turn, closing(turn, mint))


def outcomes(turn: Turn) -> list[tuple[CallId, str, str]]:
    results = [each for each in turn.items if isinstance(each, ToolResult)]
    return [(each.call, each.outcome, text_of(each.content)) for each in results]


def speaking(turn: Turn, *pieces: str, path: tuple[CallId, ...] = ()) -> Turn:
    item = mint(MessageId)
    turn = after(turn, ev.ItemOpened(item=item, kind="message", path=path))
    return after(turn, *(ev.Grew(item=item, text=text, path=path) for text in pieces))


# ── closing ──────────────────────────────────────────────────────────────────────────────────


def test_words_so_far_become_a_message_that_says_it_broke_off() -> None:
    turn = closed(speaking(asking(), "Hel", "lo"))
    message, last = turn.items[-2:]

    assert isinstance(message, AssistantMessage)
    assert (message.state, text_of(message.content)) == ("interrupted", "Hello")
    assert isinstance(last, Interruption)
    assert (last.ended_by, last.detail) == ("cancelled", "a detail")


def test_calls_are_closed_by_what_is_known_of_them() -> None:
    turn = closed(after(called(LOOK, FLY, PICK), started(FLY)))
    assert outcomes(turn) == [
        (LOOK.id, "not_run", NOT_RUN),
        (FLY.id, "unknown", UNKNOWN),
        (PICK.id, "not_run", NOT_RUN),
    ]


def test_a_call_that_was_half_said_is_set_aside() -> None:
    item = mint(CallId)
    opened = ev.ItemOpened(item=item, kind="call", call_id="c1", name="fly")
    turn = closed(after(asking(), opened, ev.Grew(item=item, text='{"to":"Os')))

    (half,) = (each for each in turn.items if isinstance(each, ToolCall))
    assert half.state == "set_aside"
    assert outcomes(turn) == []


def test_branches_are_closed_from_the_inside_out() -> None:
    turn = after(
        called(LOOK), branch_opened(LOOK), asked(inside(LOOK)), answered(INNER),
        branch_opened(INNER), asked(inside(INNER)),
    )  # fmt: skip
    turn = closed(speaking(turn, "I am dig", path=inside(INNER)))

    assert outcomes(turn) == [
        (INNER.id, "unknown", f"{BRANCH_BROKEN}\nIt had made no calls: nothing was done."),
        (LOOK.id, "unknown", f"{BRANCH_BROKEN}\n{branch_work(turn, (LOOK.id,))}"),
    ]
    assert check_turn(committed_items(kept(turn, by="cancelled"))) == ()


def test_only_the_last_calls_of_a_sub_agent_are_told_one_by_one() -> None:
    """The others are counted by their names, the most frequent first."""
    names = ["look", "dig", "dig", *["fly"] * CALLS_LISTED]
    calls = [call(each, path=inside(LOOK)) for each in names]
    turn = after(
        called(LOOK),
        branch_opened(LOOK),
        asked((LOOK.id,)),
        answered(*calls, finish="tool_calls", path=(LOOK.id,)),
    )
    _, earlier, *told = branch_work(turn, (LOOK.id,)).splitlines()
    assert earlier == "- 3 earlier calls: dig (2), look (1)"
    assert [each.partition("(")[0] for each in told] == ["- fly"] * CALLS_LISTED


def test_a_sub_agent_may_take_on_a_call_that_a_person_has_allowed() -> None:
    """The call lies in the turn before, and its branch in this one."""
    pay = call("pay", waits_for="approval")
    turn = after(begun(carried=(pay,), approved=(pay.id,)), branch_opened(pay))
    turn = kept(closed(turn), by="cancelled")
    assert check_turn(committed_items(turn), carried=turn.request.carried) == ()


def test_closing_a_closed_or_settled_turn_gives_nothing() -> None:
    turn = closed(called(LOOK))
    assert closing(turn, mint) == ()
    assert closing(kept(turn, by="cancelled"), mint) == ()

    dropped = after(begun(), interrupted(), ev.Ended(by="cancelled", kept=False))
    assert closing(dropped, mint) == ()


def test_only_an_interrupted_turn_is_closed() -> None:
    with pytest.raises(AssertionError, match="only an interrupted turn"):
        closing(complete(), mint)


def test_a_complete_turn_that_is_stopped_all_the_same_closes_what_waits() -> None:
    turn = closed(called(PICK))
    assert outcomes(turn) == [(PICK.id, "not_run", NOT_RUN)]
    assert turn.waiting == ()


# ── resuming ─────────────────────────────────────────────────────────────────────────────────


def resumed(turn: Turn) -> Turn:
    return advanced(turn, resuming(turn, mint, after="crash"))


def test_a_step_that_broke_off_is_set_aside_and_asked_again() -> None:
    turn = resumed(speaking(asking(), "Hel"))
    message = turn.items[-1]
    assert isinstance(message, AssistantMessage)
    assert message.state == "set_aside"
    assert wanted(turn) == (AskModel(path=(), agent="butler"),)
    assert turn.attempt == 2


def test_recorded_results_are_used_and_nothing_is_run_again_silently() -> None:
    done, lost, safe, fresh = call("done"), call("lost"), call("safe"), call("fresh")
    turn = after(
        called(done, lost, safe, fresh),
        started(done), finished(done), started(lost), started(safe, idempotent=True),
    )  # fmt: skip

    turn = resumed(turn)

    assert outcomes(turn) == [(done.id, "ok", "done"), (lost.id, "unknown", UNKNOWN)]
    assert wanted(turn) == (RunCall(call=safe), RunCall(call=fresh))


def test_a_call_that_had_started_before_a_crash_is_never_said_not_to_have_run() -> None:
    """It may have had its effect, whether or not anybody comes to starting it again."""
    safe = call("safe")
    turn = resumed(after(called(safe), started(safe, idempotent=True)))

    untrue: Outcome
    for untrue in ("not_run", "refused", "ok"):
        with pytest.raises(IllegalEvent, match="start"):
            after(turn, finished(safe, outcome=untrue))
    turn = after(turn, interrupted())
    turn = after(turn, *closing(turn, mint))

    assert outcomes(turn) == [(safe.id, "unknown", UNKNOWN)]


def test_a_branch_goes_on_where_it_was() -> None:
    turn = after(
        called(LOOK, PICK), branch_opened(LOOK), asked(inside(LOOK)), answered(INNER),
        started(INNER),
    )  # fmt: skip
    turn = resumed(turn)

    assert outcomes(turn) == [(INNER.id, "unknown", UNKNOWN)]
    assert wanted(turn) == (AskModel(path=inside(LOOK), agent="helper"),)
    turn = after(turn, asked(inside(LOOK)), answered(said(path=inside(LOOK))), finished(LOOK))
    assert turn.complete


def test_a_turn_can_be_resumed_again_and_again() -> None:
    turn = asking()
    for attempt in (2, 3, 4):
        turn = resumed(turn)
        assert turn.attempt == attempt
        turn = after(turn, asked())


@pytest.mark.parametrize("turn", [after(begun(), interrupted()), kept(complete())])
def test_only_an_open_turn_is_resumed(turn: Turn) -> None:
    with pytest.raises(AssertionError, match="only an open turn"):
        resuming(turn, mint, after="crash")


# ── in plain words ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", get_args(EndedBy))
def test_the_model_is_told_in_plain_words(by: EndedBy) -> None:
    told = note_for_model(note(by))
    assert told.startswith("[The previous turn was interrupted: ")
    assert "_" not in told
    assert "()" not in told


def test_the_model_is_told_the_detail_if_there_is_one() -> None:
    item = Interruption(id=note().id, ended_by="model_error", detail="overloaded")
    assert "the model failed (overloaded)" in note_for_model(item)
