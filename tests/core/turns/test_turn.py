"""The turn machine, event by event: what each one changes, and when it cannot happen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.items import AssistantMessage, Outcome, ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import (
    Pending,
    Turn,
    advance,
    advance_all,
    begin,
    committed_items,
    demand_growable,
    grow,
    same_text,
)
from holdfast.errors import IllegalEvent
from holdfast.ids import CallId, ItemId, MessageId, NoteId, ReasoningId
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
    frozen,
    handed_off,
    inside,
    interrupted,
    kept,
    mint,
    note,
    request,
    result,
    said,
    started,
    steered,
    summary,
    thought,
    user,
)

LOOK, FLY, ASK_CLIENT = call("look"), call("fly"), call("pick", waits_for="client")
MESSAGE = mint(MessageId)
OPENED = ev.ItemOpened(item=MESSAGE, kind="message")

# ── beginning ────────────────────────────────────────────────────────────────────────────────


def test_a_turn_begins_with_its_input_and_owes_an_answer() -> None:
    hello = user("Hello")
    turn = begun(hello, agent="butler")

    assert tuple(turn.items) == (hello,)
    assert turn.agent == "butler"
    assert turn.root.idle
    assert turn.root.owes_answer
    assert not turn.complete


def test_calls_that_a_person_allowed_run_first() -> None:
    allowed = call("fly", waits_for="approval")
    other = call("pick", waits_for="approval")
    turn = begun(result(other, outcome="refused"), carried=(allowed, other), approved=(allowed.id,))

    assert turn.root.pending == (Pending(call=msgspec.structs.replace(allowed, waits_for=None)),)
    assert turn.calls == 1
    assert not turn.root.idle


# ── speaking ─────────────────────────────────────────────────────────────────────────────────


def test_a_step_opens_a_draft_that_grows_and_is_replaced_by_its_answer() -> None:
    turn = after(asking(), OPENED, ev.Grew(item=MESSAGE, text="Hel"))
    assert turn.root.draft is not None
    assert [each.text for each in turn.root.draft.items] == ["Hel"]
    assert len(turn.items) == 1

    spoken = AssistantMessage(id=MESSAGE, content=said("Hello").content)
    turn = after(turn, answered(spoken, cost_micros=7))

    assert turn.root.draft is None
    assert turn.items[-1] == spoken
    assert (turn.root.steps, turn.root.last_words) == (1, "Hello")
    assert turn.usage == ev.Usage(output_tokens=1, cost_micros=7)
    assert turn.complete


SECOND = mint(MessageId)
PIECES = st.lists(
    st.builds(
        ev.Grew,
        item=st.sampled_from([MESSAGE, SECOND, mint(MessageId)]),
        text=st.sampled_from(["", "a", "bc"]),
        refusal=st.booleans(),
        path=st.sampled_from([(), inside(LOOK)]),
    )
    | st.sampled_from([OPENED, ev.ItemOpened(item=SECOND, kind="message"), interrupted()]),
    max_size=12,
)


def _folded(fold: Callable[[Turn], Turn], turn: Turn) -> Turn | str:
    """The turn, or why there is none."""
    try:
        return fold(turn)
    except IllegalEvent as error:
        return str(error)


@given(happened=PIECES)
def test_events_that_come_together_are_folded_as_if_they_came_one_by_one(
    happened: list[ev.Event],
) -> None:
    for turn in (asking(), after(asking(), OPENED), complete(), kept(complete())):
        together = _folded(lambda turn: advance_all(turn, happened), turn)
        assert together == _folded(lambda turn: reduce(advance, happened, turn), turn)


@given(happened=PIECES)
def test_a_piece_of_the_same_text_as_a_legal_one_is_legal(happened: list[ev.Event]) -> None:
    """So a recorder need not ask again."""
    pieces = [each for each in happened if isinstance(each, ev.Grew)]
    for turn in (asking(), after(asking(), OPENED)):
        for first, second in pairwise(pieces):
            if same_text(first, second) and isinstance(
                _folded(partial(grow, event=first), turn), Turn
            ):
                assert advance_all(turn, (first, second)) == advance(advance(turn, first), second)


@given(happened=PIECES)
def test_what_is_wrong_with_a_piece_is_known_before_it_is_folded(happened: list[ev.Event]) -> None:
    for turn in (asking(), after(asking(), OPENED), complete(), kept(complete())):
        for event in happened:
            then = _folded(partial(advance, event=event), turn)
            if isinstance(event, ev.Grew):
                asked_before = _folded(partial(_demanded, piece=event), turn)
                assert asked_before == (then if isinstance(then, str) else turn)
            turn = turn if isinstance(then, str) else then


def _demanded(turn: Turn, piece: ev.Grew) -> Turn:
    demand_growable(turn, piece)
    return turn


def test_usage_and_characters_add_up_over_steps() -> None:
    turn = called(call(arguments="12345"))
    turn = after(turn, finished(_only_call(turn), outcome="error"), asked())
    turn = after(turn, answered(thought("abc"), said("de"), cost_micros=3))

    assert turn.output_chars == 5 + 3 + 2
    assert turn.usage.output_tokens == 1 + 2
    assert turn.usage.cost_micros == 3
    assert turn.root.steps == 2


def test_a_broken_step_is_set_aside_and_may_be_tried_again() -> None:
    half = said("Hel", state="set_aside")
    usage = ev.Usage(input_tokens=5)
    turn = after(asking(), ev.StepBroken(items=(half,), why="model_error", usage=usage))

    assert turn.items[-1] == half
    assert (turn.output_chars, turn.usage) == (3, usage)
    assert after(turn, asked(), answered(said())).complete


def test_an_answer_that_was_cut_off_for_length_completes_nothing() -> None:
    turn = after(asking(), answered(said("And then"), finish="length"))
    assert not turn.complete
    assert turn.root.idle


def test_a_call_that_was_set_aside_is_not_pending() -> None:
    turn = called(call(state="set_aside"))
    assert turn.root.idle
    assert not turn.root.owes_answer


# ── calls ────────────────────────────────────────────────────────────────────────────────────


def _only_call(turn: Turn) -> ToolCall:
    (pending,) = turn.root.pending
    return pending.call


def test_results_come_in_any_order_and_then_the_model_speaks_again() -> None:
    turn = after(called(LOOK, FLY), started(LOOK), started(FLY), finished(FLY))
    assert [each.call for each in turn.root.pending] == [LOOK]
    assert not turn.root.idle

    turn = after(turn, finished(LOOK))
    assert turn.root.idle
    assert turn.root.owes_answer


@pytest.mark.parametrize("read_only", [False, True])
def test_a_turn_has_acted_once_a_tool_that_is_not_read_only_started(read_only: bool) -> None:
    turn = after(called(LOOK), started(LOOK, read_only=read_only))
    assert turn.acted is not read_only
    assert after(turn, finished(LOOK)).acted is not read_only


def test_acting_is_not_forgotten_when_a_read_only_tool_follows() -> None:
    assert after(called(LOOK, FLY), started(FLY), started(LOOK, read_only=True)).acted


def test_what_a_tool_wants_remembered_comes_with_its_result() -> None:
    todo, memory = (
        ev.StateSet(name="todo", value='["pack"]'),
        ev.MemoryDeleted(memory_id="m1", agent="butler"),
    )
    turn = after(called(LOOK, FLY), started(LOOK), started(FLY))
    assert turn.changes == ()
    turn = after(turn, finished(FLY, changes=(todo,)), finished(LOOK, changes=(memory,)))
    assert turn.changes == (todo, memory)


def test_a_turn_completes_with_calls_that_wait_for_the_client() -> None:
    turn = called(LOOK, ASK_CLIENT)
    assert not turn.complete
    turn = after(turn, started(LOOK), finished(LOOK))
    assert turn.complete
    assert turn.waiting == (ASK_CLIENT,)


NOT_STARTED: dict[Outcome, bool] = {
    "ok": False,
    "unknown": False,
    "error": True,
    "not_run": True,
    "refused": True,
    "not_answered": True,
}


@pytest.mark.parametrize("outcome", NOT_STARTED)
def test_an_outcome_tells_the_truth_about_whether_the_call_started(outcome: Outcome) -> None:
    """`not run` after a start would deny an effect; `ok` without one would invent it."""
    fresh, running = called(LOOK), after(called(LOOK), started(LOOK))
    legal_before = NOT_STARTED[outcome]
    legal_after = outcome == "error" or not legal_before
    for turn, legal in ((fresh, legal_before), (running, legal_after)):
        if legal:
            assert after(turn, finished(LOOK, outcome=outcome)).root.idle
        else:
            with pytest.raises(IllegalEvent, match=r"started|did not start"):
                advance(turn, finished(LOOK, outcome=outcome))


# ── branches ─────────────────────────────────────────────────────────────────────────────────


def test_a_sub_agent_works_in_the_branch_of_its_call() -> None:
    turn = after(called(LOOK), branch_opened(LOOK, agent="helper"))
    branch = turn.branch(inside(LOOK))
    assert branch is not None
    assert (branch.agent, branch.owes_answer, turn.agent) == ("helper", True, "butler")
    assert turn.items[-1].path == inside(LOOK)
    assert not turn.acted

    turn = after(turn, asked(inside(LOOK)), answered(said("Found", path=inside(LOOK))))
    assert turn.branch(inside(LOOK)) is not None
    turn = after(turn, finished(LOOK, "Found"))
    assert turn.branch(inside(LOOK)) is None
    assert turn.root.idle


def test_branches_side_by_side_and_inside_each_other_do_not_disturb_one_another() -> None:
    inner = call("dig", path=inside(LOOK))
    turn = after(
        called(LOOK, FLY),
        branch_opened(LOOK),
        branch_opened(FLY),
        asked(inside(FLY)),
        asked(inside(LOOK)),
        answered(inner),
        branch_opened(inner),
        asked(inside(inner)),
    )
    assert [each.path for each in turn.branches] == [
        (),
        inside(LOOK),
        inside(FLY),
        inside(inner),
    ]
    turn = after(turn, answered(said(path=inside(inner))), finished(inner))
    turn = after(turn, answered(said(path=inside(FLY))), finished(FLY))
    assert [each.path for each in turn.branches] == [(), inside(LOOK)]


def test_sub_agents_nest_as_deep_as_the_bound_and_no_deeper() -> None:
    turn, last = called(LOOK), LOOK
    for _ in range(limits.branch_depth_max):
        path = inside(last)
        turn = after(turn, branch_opened(last), asked(path), answered(last := call(path=path)))

    with pytest.raises(IllegalEvent, match=f"{limits.branch_depth_max} deep already"):
        advance(turn, branch_opened(last))
    assert after(turn, finished(last, outcome="refused")).find_pending(last.id) is None


# ── hand-offs, steering, summaries ───────────────────────────────────────────────────────────


def test_after_a_hand_off_another_agent_speaks() -> None:
    turn = after(called(LOOK), handed_off("specialist"))
    assert turn.agent == "specialist"
    turn = after(turn, branch_opened(LOOK), handed_off("digger", path=inside(LOOK)))
    branch = turn.branch(inside(LOOK))
    assert branch is not None
    assert (turn.agent, branch.agent) == ("specialist", "digger")


def test_steering_makes_the_model_speak_once_more() -> None:
    turn = after(complete(), steered("Louder", "please"))
    assert not turn.complete
    assert turn.root.owes_answer
    assert len(turn.items) == 4


def test_a_summary_takes_its_place_among_the_items() -> None:
    told = summary(covers_to=3)
    turn = after(begun(base_length=3), ev.Compacted(summary=told))
    assert turn.items[-1] == told
    assert turn.root.owes_answer


def test_a_sub_agent_s_summary_lies_in_its_branch() -> None:
    turn = after(called(LOOK), branch_opened(LOOK))
    told = summary(path=inside(LOOK))
    assert after(turn, ev.Compacted(summary=told)).items[-1] == told


# ── interruptions, resuming, ends ────────────────────────────────────────────────────────────


def test_what_was_under_way_may_still_report_after_an_interruption() -> None:
    late = finished(LOOK)
    turn = after(called(LOOK, FLY), started(LOOK), interrupted("deadline"), late)
    assert turn.items[-1] == late.result
    assert [each.call for each in turn.root.pending] == [FLY]

    speaking = after(asking(), OPENED, interrupted(), ev.Grew(item=MESSAGE, text="Hi"))
    half = AssistantMessage(id=MESSAGE, content=said("Hi").content, state="interrupted")
    assert after(speaking, ev.StepBroken(items=(half,))).root.draft is None
    assert not after(asking(), interrupted(), answered(said())).complete


def test_resuming_lets_idempotent_tools_run_again_and_keeps_branches() -> None:
    inner = call("dig", path=inside(FLY))
    turn = after(
        called(LOOK, FLY),
        started(LOOK, idempotent=True),
        branch_opened(FLY),
        asked(inside(FLY)),
        answered(inner),
        started(inner, idempotent=True),
        ev.Resumed(attempt=2),
    )
    look, fly = turn.root.pending
    assert look.runnable
    assert isinstance(fly.started, ev.BranchOpened)
    assert _present(turn.find_pending(inner.id)).runnable
    assert turn.attempt == 2


def _present(pending: Pending | None) -> Pending:
    assert pending is not None
    return pending


def test_a_kept_turn_hands_over_its_items_and_no_other_does() -> None:
    turn = complete()
    for early in (turn, after(turn, ev.Ended(by="superseded", kept=False))):
        with pytest.raises(AssertionError, match="only a kept turn"):
            committed_items(early)
    assert committed_items(kept(turn)) == tuple(turn.items)


# ── what cannot happen ───────────────────────────────────────────────────────────────────────

INNER = call("dig", path=inside(LOOK))
ELSEWHERE = inside(call("unheard-of"))


def working() -> Turn:
    """A sub-agent is being asked, next to a tool that runs and a call that waits for the client."""
    turn = called(LOOK, FLY, ASK_CLIENT, base_length=3)
    return after(turn, branch_opened(LOOK), asked(inside(LOOK)), started(FLY))


def stopped() -> Turn:
    return after(called(LOOK), interrupted("deadline"))


def closed() -> Turn:
    return after(begun(), interrupted(), ev.Closed(note=note()))


def settled() -> Turn:
    return kept(complete())


def waits_in_branch() -> ev.Event:
    return answered(call(path=inside(LOOK), waits_for="client"))


def misplaced(of: ToolCall) -> ev.ToolFinished:
    return ev.ToolFinished(result=msgspec.structs.replace(result(of), path=ELSEWHERE))


def misplaced_task() -> ev.BranchOpened:
    return ev.BranchOpened(call=FLY.id, agent="helper", task=user(path=ELSEWHERE))


def misnamed(kind: ev.DraftKind, item: ItemId) -> ev.ItemOpened:
    return ev.ItemOpened(item=item, kind=kind)


IMPOSSIBLE: list[tuple[str, Callable[[], Turn], ev.Event, str]] = [
    ("begin twice", begun, ev.Began(request=request()), "it has begun already"),
    # asking
    ("ask in a branch that is not there", begun, asked(ELSEWHERE), "no such branch"),
    ("ask while asking", asking, asked(), "not the model's turn"),
    ("ask while calls are pending", lambda: called(LOOK), asked(), "not the model's turn"),
    ("ask after the last word", complete, asked(), "not the model's turn"),
    ("ask after a stop", lambda: after(begun(), interrupted()), asked(), r"interrupted \(cancelled"),
    # drafts
    ("open where nobody speaks", begun, OPENED, "no model is being asked"),
    ("open twice", lambda: after(asking(), OPENED), OPENED, "is open already"),
    ("open in a branch that is not there", asking,
     ev.ItemOpened(item=MESSAGE, kind="message", path=ELSEWHERE), "no such branch"),
    ("open a message under a call's id", asking, misnamed("message", mint(CallId)), "is no message"),
    ("open a call under a message's id", asking, misnamed("call", MESSAGE), "is no call"),
    ("open reasoning under a note's id", asking, misnamed("reasoning", mint(NoteId)),
     "is no reasoning"),
    ("grow what is not open", asking, ev.Grew(item=MESSAGE, text="?"), "was not opened"),
    ("grow where nobody speaks", begun, ev.Grew(item=MESSAGE, text="?"), "no model is being asked"),
    # answers
    ("answer unasked", begun, answered(said()), "no model is being asked"),
    ("drop what was opened", lambda: after(asking(), OPENED), answered(said()), "it drops items"),
    ("answer in another branch", asking, answered(said(path=ELSEWHERE), path=()), "in the branch"),
    ("wait in a sub-agent's branch", working, waits_in_branch(), "only the turn's own agent"),
    ("answer with half a message", asking, answered(said(state="interrupted")), "answer is whole"),
    ("answer with half a thought", asking, answered(thought(state="set_aside")), "answer is whole"),
    ("answer with half a call", asking, answered(call(state="interrupted")), "never made"),
    ("wait with a call set aside", asking, answered(call(state="set_aside", waits_for="client")),
     "never made"),
    # broken steps
    ("break what nobody said", begun, ev.StepBroken(), "no model is being asked"),
    ("break with whole words", asking, ev.StepBroken(items=(said(),)), "but the step is set_aside"),
    ("break as interrupted while going on", asking,
     ev.StepBroken(items=(said(state="interrupted"),)), "but the step is set_aside"),
    ("break in another branch", asking,
     ev.StepBroken(items=(said(path=ELSEWHERE, state="set_aside"),)), "in the branch"),
    ("break off a call as if it had been made", lambda: after(asking(), interrupted()),
     ev.StepBroken(items=(call(state="interrupted"),)), "never made"),
    # tools
    ("start what nobody called", asking, started(FLY), "is not pending"),
    ("start twice", working, started(FLY), "has started already"),
    ("start what a sub-agent works on", working, started(LOOK), "has started already"),
    ("start what waits for the client", working, started(ASK_CLIENT), "waits for the client"),
    ("start after a stop", stopped, started(LOOK), r"interrupted \(deadline"),
    ("finish what nobody called", asking, finished(FLY), "is not pending"),
    ("finish in another branch", working, misplaced(FLY), "its call's own branch"),
    ("finish what did not start", lambda: called(LOOK), finished(LOOK), "did not start"),
    ("deny what started", working, finished(FLY, outcome="not_run"), "started"),
    ("finish while the branch is asking", working, finished(LOOK), "still at work"),
    ("finish while the branch has calls",
     lambda: after(working(), answered(INNER)), finished(LOOK), "still at work"),
    ("finish while a branch inside the branch is asking",
     lambda: after(working(), answered(INNER), branch_opened(INNER), asked(inside(INNER))),
     finished(LOOK), "still at work"),
    ("finish twice", lambda: after(working(), finished(FLY)), finished(FLY), "is not pending"),
    # branches
    ("open a branch for no call", asking, branch_opened(FLY), "is not pending"),
    ("open a branch for a running call", working, branch_opened(FLY), "has started already"),
    ("open a branch for the client's call", working, branch_opened(ASK_CLIENT), "for the client"),
    ("put a task elsewhere", lambda: called(FLY), misplaced_task(), "task lies in the branch"),
    ("open a branch after a stop", stopped, branch_opened(LOOK), r"interrupted \(deadline"),
    # hand-offs, steering, summaries
    ("hand off mid-sentence", asking, handed_off(), "still speaking"),
    ("hand off a branch that is not there", begun, handed_off(path=ELSEWHERE), "no such branch"),
    ("hand off after a stop", stopped, handed_off(), "was interrupted"),
    ("steer mid-sentence", asking, steered(), "not between two steps"),
    ("steer while calls are pending", working, steered(), "not between two steps"),
    ("steer a sub-agent", begun, ev.Steered(items=(user(path=ELSEWHERE),)), "own agent"),
    ("steer with nothing", begun, ev.Steered(items=()), "say something"),
    ("steer after a stop", stopped, steered(), "was interrupted"),
    ("sum up mid-sentence", asking, ev.Compacted(summary=summary()), "is speaking"),
    ("sum up the turn itself", lambda: begun(base_length=3),
     ev.Compacted(summary=summary(covers_to=4)), "committed history only"),
    ("sum up in a branch that is not there", begun,
     ev.Compacted(summary=summary(path=ELSEWHERE)), "no such branch"),
    ("sum up while the sub-agent is speaking", working,
     ev.Compacted(summary=summary(path=inside(LOOK))), "is speaking"),
    ("sum up after a stop", stopped, ev.Compacted(summary=summary()), "was interrupted"),
    # ends
    ("interrupt twice", stopped, interrupted(), r"interrupted \(deadline"),
    ("interrupt as completed", asking, interrupted("completed"), "not an interrupted one"),
    ("resume an attempt out of order", begun, ev.Resumed(attempt=3), "attempt 1 is the last"),
    ("resume mid-sentence", asking, ev.Resumed(attempt=2), "a step is still open"),
    ("resume over a call that may have acted",
     lambda: after(called(FLY), started(FLY)), ev.Resumed(attempt=2), "the outcome of"),
    ("resume after a stop", stopped, ev.Resumed(attempt=2), "was interrupted"),
    ("close what goes on", complete, ev.Closed(note=note()), "only an interrupted turn"),
    ("close with a call open", stopped, ev.Closed(note=note()), "still open"),
    ("close mid-sentence",
     lambda: after(asking(), interrupted()), ev.Closed(note=note()), "still open"),
    ("close with a branch open",
     lambda: after(working(), interrupted()), ev.Closed(note=note()), "still open"),
    ("close twice", closed, ev.Closed(note=note()), "only an interrupted turn is closed, once"),
    ("keep half a turn", asking, ev.Ended(by="completed", kept=True), "only a whole turn"),
    ("keep a stopped turn unclosed", stopped, ev.Ended(by="deadline", kept=True), "a whole turn"),
    ("keep an answer cut off for length",
     lambda: after(asking(), answered(said(), finish="length")),
     ev.Ended(by="completed", kept=True), "only a whole turn"),
    ("discard a completed turn", complete, ev.Ended(by="completed", kept=False), "turn is kept"),
    ("call a completed turn cancelled", complete, ev.Ended(by="cancelled", kept=True),
     "it ended by completed"),
    ("call a stopped turn completed", closed, ev.Ended(by="completed", kept=True),
     "it ended by cancelled"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "event", "because"),
    [case[1:] for case in IMPOSSIBLE],
    ids=[case[0] for case in IMPOSSIBLE],
)
def test_it_is_not_possible_to(state: Callable[[], Turn], event: ev.Event, because: str) -> None:
    turn = state()
    before = frozen(turn)

    with pytest.raises(IllegalEvent, match=because) as refused:
        advance(turn, event)

    assert refused.value.event == type(event).__name__
    assert frozen(turn) == before


@pytest.mark.parametrize("event", [case[2] for case in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE])
@pytest.mark.parametrize("kept_or_not", [True, False])
def test_a_settled_turn_accepts_nothing(event: ev.Event, kept_or_not: bool) -> None:
    turn = settled() if kept_or_not else after(begun(), ev.Ended(by="crash", kept=False))
    with pytest.raises(IllegalEvent, match="the turn is settled"):
        advance(turn, event)


def test_every_kind_of_event_has_a_case_that_cannot_happen() -> None:
    assert {type(case[2]) for case in IMPOSSIBLE} == set(get_args(ev.Event))


def test_a_reasoning_id_may_open_reasoning() -> None:
    turn = after(asking(), ev.ItemOpened(item=mint(ReasoningId), kind="reasoning"))
    assert turn.root.draft is not None
    assert len(turn.root.draft.items) == 1


def test_beginning_is_a_function_of_the_request() -> None:
    began = ev.Began(request=request())
    assert begin(began) == begin(began)
