"""What should happen next in a turn. An effect is a request to the player: it has happened once an event says so.

`wanted(turn)` computes the effects; the player carries them out and records events. An effect that is under way (a
step or a tool has started) is not returned again.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import Path, ToolCall
from holdfast.core.turns.turn import Branch, Turn
from holdfast.core.turns.unfinished_turns import CUT


class AskModel(Value):
    """Ask the agent's model for the next step of this branch."""

    path: Path
    agent: str


class RunCall(Value):
    """A call has neither started nor a result: run it, open a branch for it, or refuse it."""

    call: ToolCall


class ReturnBranch(Value):
    """A sub-agent has given its last answer; record it as the result of the sub-agent's call."""

    call: ToolCall
    text: str


class StopAtLimit(Value):
    """Going on would pass a bound; record the interruption instead."""

    limit: str


class Close(Value):
    """The turn was interrupted: make it well formed (`turns/closure.py`), or discard it."""


class Finish(Value):
    """The turn is complete: commit it."""


Effect: TypeAlias = AskModel | RunCall | ReturnBranch | StopAtLimit | Close | Finish


def wanted(turn: Turn) -> tuple[Effect, ...]:
    """The effects that should start now. Empty while the player can only wait for effects under way."""
    if turn.ended is not None:
        return ()
    if turn.interrupted is not None:
        return (Close(),)
    if turn.complete:  # then it has passed no limit
        return (Finish(),)
    limit = limit_reached(turn)
    if limit is not None:
        return (StopAtLimit(limit=limit),)
    return tuple(effect for branch in turn.branches for effect in _wanted_in(turn, branch))


def _wanted_in(turn: Turn, branch: Branch) -> tuple[Effect, ...]:
    if branch.pending:
        return tuple(RunCall(call=each.call) for each in branch.pending if each.runnable)
    if branch.draft is not None:
        return ()
    if branch.owes_answer:
        return (AskModel(path=branch.path, agent=branch.agent),)
    # The root's last answer completes the turn, so this branch is a sub-agent's.
    pending = turn.find_pending(branch.path[-1])
    assert pending is not None, "a branch lives as long as its call is pending"
    return (ReturnBranch(call=pending.call, text=branch.last_words),)


def limit_reached(turn: Turn) -> str | None:
    """The name of the bound that this turn has reached, or None. A complete turn has reached none.

    An answer that the model cut off for length is not whole, so that counts as a limit too.
    """
    bounds, spent = turn.request.limits, turn.request.spent
    if turn.root.draft is None and turn.root.finish == "length":
        return CUT
    if turn.complete:
        return None
    growing = sum(each.draft.chars for each in turn.branches if each.draft is not None)
    if spent.output_chars + turn.output_chars + growing >= (
        bounds.output_chars_max or limits.output_chars_max
    ):
        return "output_chars"
    cost_micros = spent.cost_micros + turn.usage.cost_micros
    if bounds.cost_micros_max is not None and cost_micros >= bounds.cost_micros_max:
        return "cost"
    calls_max = limits.calls_max if bounds.calls_max is None else bounds.calls_max
    if spent.calls + turn.calls > calls_max:
        return "calls"
    steps_max = bounds.steps_max or limits.steps_max
    for branch in turn.branches:
        steps = branch.steps if branch.path else spent.steps + branch.steps
        if steps >= steps_max and branch.idle and branch.owes_answer:
            return "steps"
    return None
