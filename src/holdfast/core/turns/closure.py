"""The events that make an interrupted turn well formed, and those that resume an open turn.

Both are functions from a turn to events; no item is deleted, and none is invented.

*Closing* ends a turn that will be kept. Text so far becomes a message marked interrupted. Calls that never
started get `not run`, calls that started and have no result get `outcome unknown`. An interruption note
comes last; the next time that the model is asked, `note_for_model` puts it in plain words.

*Resuming* goes on with a turn. A step that broke off is set aside: people see it, the model does not. Recorded
results are used. A call that started has an unknown outcome, unless its tool is declared idempotent: then it
runs again, under the same key.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.core.items import (
    Completeness,
    EndedBy,
    Interruption,
    Outcome,
    Path,
    Text,
    ToolCall,
    ToolResult,
    result_for,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import Branch, Pending, Turn, advance
from holdfast.ids import Minter, NoteId

NOT_RUN = "Not run: the turn ended before this call started."
UNKNOWN = (
    "Outcome unknown: this call started, and the turn ended before its result was recorded. "
    "It may or may not have had its effect. Check before doing it again."
)
STOPPED_BY = "by "
"""The beginning of the detail that says who stopped a turn."""
BRANCH_BROKEN = "Interrupted: the agent that worked on this did not come to an end."


def closing(turn: Turn, mint: Minter) -> tuple[ev.Event, ...]:
    """The events that make an interrupted turn well formed; none if it is closed already.

    The turn advanced by them may be kept.
    """
    assert turn.interrupted is not None, "only an interrupted turn is closed"
    if turn.closed or turn.ended is not None:
        return ()
    note = Interruption(
        id=mint(NoteId), ended_by=turn.interrupted.by, detail=turn.interrupted.detail
    )
    left_open: list[ev.Event] = []
    for branch in _innermost_first(turn):
        left_open += _broken_step(branch, "interrupted", why=turn.interrupted.by)
        left_open += (_unanswered(turn, each, mint) for each in branch.pending)
    return (*left_open, ev.Closed(note=note))


def resuming(turn: Turn, mint: Minter, *, after: EndedBy) -> tuple[ev.Event, ...]:
    """The events with which another attempt at this turn begins."""
    assert turn.interrupted is None and turn.ended is None, "only an open turn is resumed"
    lost: list[ev.Event] = []
    for branch in _innermost_first(turn):
        lost += _broken_step(branch, "set_aside", why=after)
        lost += (_unanswered(turn, each, mint) for each in branch.pending if each.lost)
    return (*lost, ev.Resumed(attempt=turn.attempt + 1, after=after))


def advanced(turn: Turn, happened: tuple[ev.Event, ...]) -> Turn:
    """The turn after all these events."""
    for event in happened:
        turn = advance(turn, event)
    return turn


CALLS_LISTED = 30
"""How many calls of a sub-agent that broke off are listed one by one: the last ones."""
ARGUMENT_CHARS = 120
"""How many characters of each listed call's arguments are shown."""


def branch_work(turn: Turn, path: Path) -> str:
    """The calls that a sub-agent and its own sub-agents have made, in words for the agent that gave the task.

    An agent that only learns that the task failed would do all of it again.
    """
    calls = [
        each
        for each in turn.items
        if isinstance(each, ToolCall)
        and each.state == "complete"
        and each.path[: len(path)] == path
    ]
    if not calls:
        return "It had made no calls: nothing was done."
    became: dict[str, Outcome] = {
        each.call: each.outcome for each in turn.items if isinstance(each, ToolResult)
    }
    lines = ["These are the calls that it had made; what is done stays done:"]
    earlier = Counter(each.name for each in calls[:-CALLS_LISTED])
    if earlier:
        names = ", ".join(f"{name} ({count})" for name, count in earlier.most_common(CALLS_LISTED))
        lines.append(f"- {earlier.total()} earlier calls: {names}")
    for call in calls[-CALLS_LISTED:]:
        shown = call.arguments[:ARGUMENT_CHARS]
        more = "…" if len(shown) < len(call.arguments) else ""
        pending = turn.find_pending(call.id)
        left: Outcome = "unknown" if pending is None or pending.may_have_run else "not_run"
        lines.append(f"- {call.name}({shown}{more}): {_BECAME[became.get(call.id, left)]}")
    return "\n".join(lines)


_BECAME: dict[Outcome, str] = {
    "ok": "done",
    "error": "ended with an error",
    "not_run": "not run",
    "unknown": "outcome unknown, it may have had its effect",
    "refused": "refused, it did not run",
    "not_answered": "not answered",
}


def note_for_model(item: Interruption) -> str:
    """The sentence that a model reads in place of this item: the turn broke off here, and why."""
    why = _IN_WORDS[item.ended_by]
    told = item.detail and not item.detail.startswith(STOPPED_BY)  # a model has no use for keys
    detail = f" ({item.detail})" if told else ""
    return (
        f"[The previous turn was interrupted: {why}{detail}. What is shown above is all that was "
        "said and done. Calls marked 'not run' never started; calls marked 'outcome unknown' may "
        "have had their effect.]"
    )


_IN_WORDS: dict[EndedBy, str] = {
    "completed": "it was complete",
    "cancelled": "the user stopped it",
    "disconnected": "the user's connection was lost",
    "deadline": "it ran out of time",
    "model_error": "the model failed",
    "tool_error": "a tool failed",
    "limit": "it reached a limit",
    "crash": "the server went down",
    "superseded": "another server took over",
    "shutdown": "the server was shut down",
    "deleted": "the conversation was deleted",
}


def _innermost_first(turn: Turn) -> list[Branch]:
    """The branches, deepest first: a call can be closed only after the branch that works on it."""
    return sorted(turn.branches, key=lambda each: -len(each.path))


def _broken_step(branch: Branch, state: Completeness, *, why: str) -> tuple[ev.Event, ...]:
    if branch.draft is None:
        return ()
    items = branch.draft.broken(agent=branch.agent, path=branch.path, state=state)
    usage = branch.draft.usage(failed=why == "model_error")
    return (ev.StepBroken(items=items, path=branch.path, why=why, usage=usage),)


def _unanswered(turn: Turn, pending: Pending, mint: Minter) -> ev.ToolFinished:
    call = pending.call
    if not pending.may_have_run:
        return _finished(call, "not_run", NOT_RUN, mint)
    if not isinstance(pending.started, ev.BranchOpened):
        return _unknown(pending, mint)
    branch = turn.branch((*call.path, call.id))
    if branch is not None and branch.idle and not branch.owes_answer:
        return _finished(
            call, "ok", branch.last_words, mint
        )  # the sub-agent was done, its result not yet recorded
    words = f"{BRANCH_BROKEN}\n{branch_work(turn, (*call.path, call.id))}"
    return _finished(call, "unknown", words, mint)


def _unknown(pending: Pending, mint: Minter) -> ev.ToolFinished:
    finished = _finished(pending.call, "unknown", UNKNOWN, mint)
    started = pending.started
    if pending.tried or (isinstance(started, ev.ToolStarted) and started.idempotent):
        result = msgspec.structs.replace(finished.result, idempotent=True)
        return msgspec.structs.replace(finished, result=result)
    return finished


def _finished(call: ToolCall, outcome: Outcome, words: str, mint: Minter) -> ev.ToolFinished:
    return ev.ToolFinished(result=result_for(call, outcome, (Text(text=words),), mint))
