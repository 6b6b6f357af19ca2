"""What a turn wants next, and which bound it has come to."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.core.items import TurnLimits
from holdfast.core.turns import events as ev
from holdfast.core.turns.effects import (
    AskModel,
    Close,
    Effect,
    Finish,
    ReturnBranch,
    RunCall,
    StopAtLimit,
    limit_reached,
    wanted,
)
from holdfast.core.turns.turn import Turn
from holdfast.ids import MessageId
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
    handed_off,
    inside,
    interrupted,
    kept,
    mint,
    note,
    said,
    started,
    steered,
)

LOOK, FLY = call("look"), call("fly")
ASK_CLIENT, ASK_PERSON = call("pick", waits_for="client"), call("pay", waits_for="approval")
HELPING = after(called(LOOK), branch_opened(LOOK))
HELPED = after(HELPING, asked(inside(LOOK)), answered(said("Found it", path=inside(LOOK))))

WANTED: list[tuple[str, Turn, list[Effect]]] = [
    ("a turn that has begun", begun(), [AskModel(path=(), agent="butler")]),
    ("a model that is being asked", asking(), []),
    ("a broken step", after(asking(), ev.StepBroken()), [AskModel(path=(), agent="butler")]),
    ("calls side by side", called(LOOK, FLY), [RunCall(call=LOOK), RunCall(call=FLY)]),
    ("one of two started", after(called(LOOK, FLY), started(LOOK)), [RunCall(call=FLY)]),
    ("one of two answered", after(called(LOOK, FLY), started(LOOK), finished(LOOK)),
     [RunCall(call=FLY)]),
    ("all running", after(called(LOOK), started(LOOK)), []),
    ("all answered", after(called(LOOK), finished(LOOK, outcome="error")),
     [AskModel(path=(), agent="butler")]),
    ("an answer", complete(), [Finish()]),
    ("steering after the answer", after(complete(), steered()),
     [AskModel(path=(), agent="butler")]),
    ("a hand-off", after(begun(), handed_off("specialist")),
     [AskModel(path=(), agent="specialist")]),
    ("calls that only the client can answer", called(ASK_CLIENT, ASK_PERSON), [Finish()]),
    ("a call next to one that waits", called(LOOK, ASK_CLIENT), [RunCall(call=LOOK)]),
    ("a branch", HELPING, [AskModel(path=inside(LOOK), agent="helper")]),
    ("a branch that is being asked", after(HELPING, asked(inside(LOOK))), []),
    ("a branch with its last word said", HELPED, [ReturnBranch(call=LOOK, text="Found it")]),
    ("a branch that has returned", after(HELPED, finished(LOOK)),
     [AskModel(path=(), agent="butler")]),
    ("two branches, each with its own wish",
     after(called(LOOK, FLY), branch_opened(LOOK), branch_opened(FLY)),
     [AskModel(path=inside(LOOK), agent="helper"), AskModel(path=inside(FLY), agent="helper")]),
    ("an interruption, whatever is under way", after(HELPING, interrupted()), [Close()]),
    ("a closed turn", after(begun(), interrupted(), ev.Closed(note=note())), [Close()]),
    ("a kept turn", kept(complete()), []),
    ("a discarded turn", after(begun(), ev.Ended(by="crash", kept=False)), []),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "effects"), [c[1:] for c in WANTED], ids=[c[0] for c in WANTED])
def test_what_is_wanted_of(turn: Turn, effects: list[Effect]) -> None:
    assert list(wanted(turn)) == effects


def test_calls_that_a_person_has_allowed_are_run_before_the_model_is_asked() -> None:
    turn = begun(carried=(ASK_PERSON,), approved=(ASK_PERSON.id,))
    (run,) = wanted(turn)
    assert isinstance(run, RunCall)
    assert run.call.id == ASK_PERSON.id
    turn = after(turn, started(run.call), finished(run.call))
    assert wanted(turn) == (AskModel(path=(), agent="butler"),)


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


def grown(turn: Turn, chars: int) -> Turn:
    item = mint(MessageId)
    opened = ev.ItemOpened(item=item, kind="message")
    return after(turn, opened, ev.Grew(item=item, text="x" * chars))


def one_step(**bounds: int) -> Turn:
    """A turn that has spoken five characters, made one call, paid 100 and will be asked again."""
    turn = after(asking(limits=TurnLimits(**bounds)), answered(LOOK, said("Hey"), cost_micros=100))
    return after(turn, finished(LOOK, outcome="error"))


BOUNDS: list[tuple[str, Turn, str | None]] = [
    ("nothing is near", one_step(), None),
    ("characters left", one_step(output_chars_max=6), None),
    ("characters used up", one_step(output_chars_max=5), "output_chars"),
    ("characters used up while speaking",
     grown(after(one_step(output_chars_max=10), asked()), 5), "output_chars"),
    ("cost left", one_step(cost_micros_max=101), None),
    ("cost used up", one_step(cost_micros_max=100), "cost"),
    ("as many calls as allowed", one_step(calls_max=1), None),
    ("a call too many", one_step(calls_max=0), "calls"),
    ("steps left", one_step(steps_max=2), None),
    ("steps used up", one_step(steps_max=1), "steps"),
    ("the last step under way", after(one_step(steps_max=2), asked()), None),
    ("steps used up in a branch, not before its last word",
     after(called(LOOK, limits=TurnLimits(steps_max=1)), branch_opened(LOOK), asked(inside(LOOK)),
           answered(said(path=inside(LOOK)))), None),
    ("an answer cut off for length", after(asking(), answered(said(), finish="length")),
     "output_tokens"),
    ("a complete turn has passed no bound",
     after(asking(limits=TurnLimits(steps_max=1, calls_max=0, cost_micros_max=0)),
           answered(ASK_CLIENT)), None),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "limit"), [c[1:] for c in BOUNDS], ids=[c[0] for c in BOUNDS])
def test_a_turn_stops_at_its_bounds(turn: Turn, limit: str | None) -> None:
    assert limit_reached(turn) == limit
    assert (StopAtLimit(limit=limit or "") in wanted(turn)) is (limit is not None)


def test_without_bounds_of_its_own_a_turn_has_the_server_s() -> None:
    assert limit_reached(grown(asking(), limits.output_chars_max - 1)) is None
    assert limit_reached(grown(asking(), limits.output_chars_max)) == "output_chars"

    calls = tuple(call() for _ in range(limits.calls_max))
    assert limit_reached(called(*calls)) is None
    assert limit_reached(called(*calls, FLY)) == "calls"

    turn = begun()
    for _ in range(limits.steps_max):
        assert limit_reached(turn) is None
        turn = after(turn, asked(), ev.StepBroken())
    assert limit_reached(turn) == "steps"
