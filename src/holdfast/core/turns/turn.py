"""One turn, from request to end: a pure fold. No I/O happens here.

`advance(turn, event)` returns the turn after an event; `wanted(turn)` in `turns/effects.py` returns what should happen
next. A player carries out those effects and records the events that follow; a node that recovers a turn folds its
journal. Both use the same fold, so both come to the same state.

1. A turn is in the history entirely, or not at all: items leave here only through `committed_items`.
2. Every call in a kept turn has exactly one result, and it comes later; only calls that wait for the
   client or for an approval may be left to the next turn.
3. An interrupted turn starts nothing; a settled turn accepts nothing.
4. The first interruption decides how the turn ended; later ones are illegal.
5. Leaving out the fine events (`ItemOpened`, `Grew`) changes drafts only.

A turn has branches: its own agent speaks in the root (the empty path); a sub-agent speaks in the branch
of the call that it works on. Each branch alternates between a model's step and the calls that the step made.

         ┌──────────── StepBroken ───────────┐
         ▼                                   │
      (idle) ── StepStarted ──► (asking) ────┘
         ▲                         │ Answered
         │ all results             ▼
         └─────────────────── (calls pending) ── no calls: the branch is done
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, assert_never

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.log import Log
from holdfast.core.items import AssistantMessage, Item, Path, Reasoning, ToolCall, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.draft import ID_KIND, Draft
from holdfast.errors import IllegalEvent
from holdfast.ids import CallId

# ── what a turn is ───────────────────────────────────────────────────────────────────────────


class Pending(Value):
    """A call without a result. `started` is its intent, or the branch that works on it."""

    call: ToolCall
    started: ev.ToolStarted | ev.BranchOpened | None = None
    tried: bool = False
    """The call had started before a crash, and may be started again: it may have run."""

    @property
    def may_have_run(self) -> bool:
        return self.tried or self.started is not None

    @property
    def runnable(self) -> bool:
        return self.started is None and self.call.waits_for is None

    @property
    def lost(self) -> bool:
        """Whether a crash leaves the call's outcome unknown. A branch is not lost: its journal goes on."""
        return isinstance(self.started, ev.ToolStarted) and not self.started.idempotent


class Branch(Value):
    """The part of the turn in which one agent speaks."""

    path: Path
    agent: str
    owes_answer: bool
    """Once no call is pending, the model speaks next. False when its last answer made no call."""
    draft: Draft | None = None
    """The step under way, with the text so far; None when no model is being asked."""
    pending: tuple[Pending, ...] = ()
    steps: int = 0
    last_words: str = ""
    finish: ev.Finish = "stop"

    @property
    def idle(self) -> bool:
        """Between two steps: no model is being asked, no call is pending."""
        return self.draft is None and not self.pending


class Turn(Value):
    """A turn as far as it has come: always the fold of its journal."""

    request: ev.TurnRequest
    items: Log[Item]
    branches: tuple[Branch, ...]
    """The root first; a branch is gone once its call has its result."""
    usage: ev.Usage = ev.Usage()
    changes: tuple[ev.Change, ...] = ()
    calls: int = 0
    output_chars: int = 0
    acted: bool = False
    """A tool that is not declared read-only has started."""
    attempt: int = 1
    interrupted: ev.Interrupted | None = None
    closed: bool = False
    ended: ev.Ended | None = None

    @property
    def root(self) -> Branch:
        return self.branches[0]

    @property
    def agent(self) -> str:
        """The agent that speaks in the root now; the commit makes it the session's current agent."""
        return self.branches[0].agent

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls of the root that wait for the client or for an approval: the next turn answers them."""
        pending = self.root.pending
        return tuple(each.call for each in pending if each.call.waits_for) if pending else ()

    @property
    def spent(self) -> ev.Usage:
        """The usage of the turn, with that of steps that are under way, or were when the turn was interrupted."""
        failed = self.interrupted is not None and self.interrupted.by == "model_error"
        open_steps = (each.draft.usage(failed=failed) for each in self.branches if each.draft)
        return sum(open_steps, self.usage)

    @property
    def complete(self) -> bool:
        """Whether the turn can be committed as completed: only calls that wait for the next turn are left."""
        root = self.branches[0]
        done = len(self.branches) == 1 and root.draft is None and not self.interrupted
        if not done or root.finish == "length":
            return False
        if not root.pending:
            return not root.owes_answer
        return all(each.call.waits_for for each in root.pending)

    @property
    def untouched(self) -> bool:
        """Whether the turn has only begun: no step, no call. It may have been resumed any number of times."""
        return (
            self.root.steps == 0
            and len(self.items) == len(self.request.input)
            and not any(each.may_have_run for each in self.root.pending)
        )

    def branch(self, path: Path) -> Branch | None:
        if not path:  # nearly always, and this runs for every token
            return self.branches[0]
        return next((each for each in self.branches if each.path == path), None)

    def find_pending(self, call: CallId) -> Pending | None:
        return next((p for b in self.branches for p in b.pending if p.call.id == call), None)


NO_MODEL_ASKED = "no model is being asked here"
SETTLED = "the turn is settled"

# ── the fold ─────────────────────────────────────────────────────────────────────────────────


def begin(event: ev.Began) -> Turn:
    """The turn that this request begins."""
    request = event.request
    approved: tuple[Pending, ...] = ()
    if request.approved:
        approved = tuple(
            Pending(call=msgspec.structs.replace(call, waits_for=None))
            for call in request.carried
            if call.id in request.approved
        )
    root = Branch(path=(), agent=request.agent, owes_answer=True, pending=approved)
    return Turn(request=request, items=Log(request.input), branches=(root,), calls=len(approved))


def advance(turn: Turn, event: ev.Event) -> Turn:
    """The turn after `event`. Raises IllegalEvent if the event cannot happen now."""
    if turn.ended is not None:
        raise _illegal(event, SETTLED)
    match event:  # first what every turn has: to find out what an event is not takes longest
        case ev.StepStarted():
            return _step_started(turn, event)
        case ev.Answered():
            return _answered(turn, event)
        case ev.Ended():
            return _ended(turn, event)
        case ev.ItemOpened():
            return _item_opened(turn, event)
        case ev.Grew():
            return grow(turn, event)
        case ev.StepBroken():
            return _step_broken(turn, event)
        case ev.ToolStarted():
            return _tool_started(turn, event)
        case ev.ToolFinished():
            return _tool_finished(turn, event)
        case ev.BranchOpened():
            return _branch_opened(turn, event)
        case ev.HandedOff():
            return _handed_off(turn, event)
        case ev.Steered():
            return _steered(turn, event)
        case ev.Compacted():
            return _compacted(turn, event)
        case ev.Interrupted():
            return _interrupted(turn, event)
        case ev.Resumed():
            return _resumed(turn, event)
        case ev.Closed():
            return _closed(turn, event)
        case ev.Began():
            raise _illegal(event, "it has begun already")
        case _:  # pragma: no cover
            assert_never(event)


def advance_all(turn: Turn, events: Sequence[ev.Event]) -> Turn:
    """The turn after all of `events`, in order. Raises IllegalEvent if one of them cannot happen.

    A run of pieces of one text makes one new turn value, not one per piece.
    """
    piece: ev.Grew | None = None
    more: list[str] = []
    for event in events:
        if type(event) is ev.Grew and piece is not None and same_text(piece, event):
            more.append(event.text)
            continue
        if piece is not None:
            turn, piece = grow(turn, piece, more), None
        if type(event) is ev.Grew:
            piece, more = event, []
        else:
            turn = advance(turn, event)
    return turn if piece is None else grow(turn, piece, more)


def same_text(piece: ev.Grew, other: ev.Grew) -> bool:
    """Whether both pieces grow the same text. If nothing happens in between, the second is legal after the first."""
    return piece.item == other.item and piece.refusal == other.refusal and piece.path == other.path


def demand_growable(turn: Turn, piece: ev.Grew) -> None:
    """Raise the IllegalEvent that `grow` would raise for this piece, if any. Costs less than `grow`."""
    if turn.ended is not None:
        raise _illegal(piece, SETTLED)
    if _present(_asking(turn, piece.path, piece).draft).find(piece.item) is None:
        raise _not_opened(piece)


def grow(turn: Turn, event: ev.Grew, more: Sequence[str] = ()) -> Turn:
    """The turn after a piece of a text and `more` pieces of it. Raises IllegalEvent if the text cannot grow now."""
    if turn.ended is not None:
        raise _illegal(event, SETTLED)
    branch = _asking(turn, event.path, event)
    draft = _present(branch.draft).grown(event, more)
    if draft is None:
        raise _not_opened(event)
    return _replaced(turn, msgspec.structs.replace(branch, draft=draft))


def _item_opened(turn: Turn, event: ev.ItemOpened) -> Turn:
    branch = _asking(turn, event.path, event)
    draft = _present(branch.draft)
    if draft.find(event.item) is not None:
        raise _illegal(event, f"{event.item} is open already")
    if not event.item.startswith(ID_KIND[event.kind].prefix):
        raise _illegal(event, f"{event.item} is no {event.kind}")
    return _replaced(turn, msgspec.structs.replace(branch, draft=draft.opened(event)))


def _step_started(turn: Turn, event: ev.StepStarted) -> Turn:
    _going_on(turn, event)
    branch = _branch(turn, event.path, event)
    if not branch.idle or not branch.owes_answer:
        raise _illegal(event, "it is not the model's turn to speak here")
    return _replaced(
        turn,
        msgspec.structs.replace(
            branch, draft=Draft(estimate=event.estimate), steps=branch.steps + 1
        ),
    )


def _answered(turn: Turn, event: ev.Answered) -> Turn:
    branch = _asking(turn, event.path, event)
    draft = _present(branch.draft)
    missing = {each.id for each in draft.items} - {each.id for each in event.items}
    if missing:
        raise _illegal(event, f"it drops items that were opened: {sorted(missing)}")
    _spoken_in(branch, event.items, event)
    for each in event.items:
        if each.state != "complete":
            _set_aside(each, event)
    calls = [each for each in event.items if isinstance(each, ToolCall)]
    if branch.path and any(call.waits_for for call in calls):
        raise _illegal(event, "only the turn's own agent may wait for the client")
    pending = tuple([Pending(call=call) for call in calls if call.state == "complete"])
    branch = msgspec.structs.replace(
        branch,
        draft=None,
        pending=pending,
        owes_answer=bool(pending),
        last_words=_words(event.items),
        finish=event.finish,
    )
    return msgspec.structs.replace(
        turn,
        items=turn.items.extended(event.items),
        branches=_with(turn, branch),
        usage=turn.usage + event.usage,
        changes=turn.changes + event.changes,
        calls=turn.calls + len(calls),
        output_chars=turn.output_chars + _chars(event.items),
    )


def _step_broken(turn: Turn, event: ev.StepBroken) -> Turn:
    branch = _asking(turn, event.path, event)
    _spoken_in(branch, event.items, event)
    fate = "interrupted" if turn.interrupted else "set_aside"
    for each in event.items:
        if isinstance(each, ToolCall):
            _set_aside(each, event)
        elif each.state not in ("set_aside", fate):
            raise _illegal(event, f"{each.id} is {each.state}, but the step is {fate}")
    return msgspec.structs.replace(
        turn,
        items=turn.items.extended(event.items),
        branches=_with(turn, msgspec.structs.replace(branch, draft=None)),
        usage=turn.usage + event.usage,
        output_chars=turn.output_chars + _chars(event.items),
    )


def _tool_started(turn: Turn, event: ev.ToolStarted) -> Turn:
    _going_on(turn, event)
    return msgspec.structs.replace(
        _with_started(turn, event.call, event), acted=turn.acted or not event.read_only
    )


def _tool_finished(turn: Turn, event: ev.ToolFinished) -> Turn:
    result = event.result
    branch = _owner(turn, result.call, event)
    if result.path != branch.path:
        raise _illegal(event, "a result lies in its call's own branch")
    inner = (*branch.path, result.call)
    pending = _present(turn.find_pending(result.call))
    if result.outcome == "ok" and pending.started is None:
        raise _illegal(event, f"{result.call} did not start")
    if result.outcome in (_NEEDS_NO_START if pending.may_have_run else _NEEDS_START):
        raise _illegal(
            event, f"{result.call} {'started' if pending.may_have_run else 'did not start'}"
        )
    if any(each.path[: len(inner)] == inner and not each.idle for each in turn.branches):
        raise _illegal(event, "its branch is still at work")
    left = tuple(each for each in branch.pending if each.call.id != result.call)
    branches = tuple(
        msgspec.structs.replace(branch, pending=left) if each.path == branch.path else each
        for each in turn.branches
        if each.path[: len(inner)] != inner
    )
    return msgspec.structs.replace(
        turn,
        items=turn.items.appended(result),
        branches=branches,
        changes=turn.changes + event.changes,
    )


_NEEDS_START = ("unknown",)
_NEEDS_NO_START = ("not_run", "refused", "not_answered")


def _branch_opened(turn: Turn, event: ev.BranchOpened) -> Turn:
    _going_on(turn, event)
    owner = _owner(turn, event.call, event)
    path = (*owner.path, event.call)
    if event.task.path != path:
        raise _illegal(event, "a branch's task lies in the branch")
    if len(path) > limits.branch_depth_max:
        raise _illegal(event, f"sub-agents are {limits.branch_depth_max} deep already")
    turn = _with_started(turn, event.call, event)
    branch = Branch(path=path, agent=event.agent, owes_answer=True)
    return msgspec.structs.replace(
        turn, items=turn.items.appended(event.task), branches=(*turn.branches, branch)
    )


def _handed_off(turn: Turn, event: ev.HandedOff) -> Turn:
    _going_on(turn, event)
    branch = _branch(turn, event.item.path, event)
    if branch.draft is not None:
        raise _illegal(event, "the agent is still speaking")
    branch = msgspec.structs.replace(branch, agent=event.item.to_agent)
    return msgspec.structs.replace(
        turn, items=turn.items.appended(event.item), branches=_with(turn, branch)
    )


def _steered(turn: Turn, event: ev.Steered) -> Turn:
    _going_on(turn, event)
    root = turn.root
    if not root.idle:
        raise _illegal(event, "the turn is not between two steps")
    if not event.items or any(each.path for each in event.items):
        raise _illegal(event, "people say something, to the turn's own agent")
    return msgspec.structs.replace(
        turn,
        items=turn.items.extended(event.items),
        branches=_with(turn, msgspec.structs.replace(root, owes_answer=True)),
    )


def _compacted(turn: Turn, event: ev.Compacted) -> Turn:
    _going_on(turn, event)
    if _branch(turn, event.summary.path, event).draft is not None:
        raise _illegal(event, "the model is speaking")
    if event.summary.covers_to > turn.request.base_length:
        raise _illegal(event, "a summary covers committed history only")
    return msgspec.structs.replace(
        turn, items=turn.items.appended(event.summary), usage=turn.usage + event.usage
    )


def _interrupted(turn: Turn, event: ev.Interrupted) -> Turn:
    _going_on(turn, event)
    if event.by == "completed":
        raise _illegal(event, "a completed turn is not an interrupted one")
    return msgspec.structs.replace(turn, interrupted=event)


def _resumed(turn: Turn, event: ev.Resumed) -> Turn:
    _going_on(turn, event)
    if event.attempt != turn.attempt + 1:
        raise _illegal(event, f"attempt {turn.attempt} is the last one")
    if any(each.draft is not None for each in turn.branches):
        raise _illegal(event, "a step is still open")
    lost = [each.call.id for b in turn.branches for each in b.pending if each.lost]
    if lost:
        raise _illegal(event, f"the outcome of {lost} is unknown")
    branches = tuple(
        msgspec.structs.replace(each, pending=tuple(map(_rerunnable, each.pending)))
        for each in turn.branches
    )
    return msgspec.structs.replace(turn, branches=branches, attempt=event.attempt)


def _closed(turn: Turn, event: ev.Closed) -> Turn:
    if turn.interrupted is None or turn.closed:
        raise _illegal(event, "only an interrupted turn is closed, once")
    if len(turn.branches) > 1 or not turn.root.idle:
        raise _illegal(event, "something is still open")
    return msgspec.structs.replace(turn, items=turn.items.appended(event.note), closed=True)


def _ended(turn: Turn, event: ev.Ended) -> Turn:
    expected = turn.interrupted.by if turn.interrupted else "completed"
    if event.kept and not (turn.complete or turn.closed):
        raise _illegal(event, "only a whole turn is kept")
    if event.by == "completed" and not event.kept:
        raise _illegal(event, "a completed turn is kept")
    if event.kept and event.by != expected:
        raise _illegal(event, f"it ended by {expected}")
    return msgspec.structs.replace(turn, ended=event)


# ── what leaves a turn ───────────────────────────────────────────────────────────────────────


def committed_items(turn: Turn) -> tuple[Item, ...]:
    """The items that a kept turn adds to its session's history."""
    assert turn.ended is not None and turn.ended.kept, "only a kept turn has items to commit"
    return tuple(turn.items)


# ── helpers ──────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")


def _present(value: T | None) -> T:
    assert value is not None
    return value


def _illegal(event: ev.Event, because: str) -> IllegalEvent:
    return IllegalEvent(type(event).__name__, because)


def _not_opened(piece: ev.Grew) -> IllegalEvent:
    return _illegal(piece, f"{piece.item} was not opened")


def _going_on(turn: Turn, event: ev.Event) -> None:
    if turn.interrupted is not None:
        raise _illegal(event, f"the turn was interrupted ({turn.interrupted.by})")


def _branch(turn: Turn, path: Path, event: ev.Event) -> Branch:
    branch = turn.branch(path)
    if branch is None:
        raise _illegal(event, "there is no such branch")
    return branch


def _asking(turn: Turn, path: Path, event: ev.Event) -> Branch:
    branch = _branch(turn, path, event)
    if branch.draft is None:
        raise _illegal(event, NO_MODEL_ASKED)
    return branch


def _owner(turn: Turn, call: CallId, event: ev.Event) -> Branch:
    for branch in turn.branches:
        if any(each.call.id == call for each in branch.pending):
            return branch
    raise _illegal(event, f"{call} is not pending")


def _spoken_in(branch: Branch, items: tuple[ev.Answer, ...], event: ev.Event) -> None:
    for each in items:
        if each.path != branch.path:
            raise _illegal(event, "an answer lies in the branch that gave it")


def _set_aside(item: ev.Answer, event: ev.Event) -> None:
    """Demand that an item that broke off is a call that was set aside: it was never made, so it is never run."""
    if not isinstance(item, ToolCall):
        raise _illegal(event, f"{item.id} is {item.state}, but an answer is whole")
    if item.state != "set_aside" or item.waits_for:
        raise _illegal(event, f"{item.id} broke off, so it was never made; set it aside")


def _with(turn: Turn, branch: Branch) -> tuple[Branch, ...]:
    if len(turn.branches) == 1:  # nearly always, and this runs for every token
        return (branch,)
    return tuple(branch if each.path == branch.path else each for each in turn.branches)


def _replaced(turn: Turn, branch: Branch) -> Turn:
    return msgspec.structs.replace(turn, branches=_with(turn, branch))


def _with_started(turn: Turn, call: CallId, event: ev.ToolStarted | ev.BranchOpened) -> Turn:
    owner = _owner(turn, call, event)
    if not _present(turn.find_pending(call)).runnable:
        raise _illegal(event, f"{call} has started already, or waits for the client")
    pending = tuple(
        msgspec.structs.replace(each, started=event) if each.call.id == call else each
        for each in owner.pending
    )
    return _replaced(turn, msgspec.structs.replace(owner, pending=pending))


def _rerunnable(pending: Pending) -> Pending:
    """The call as it is after a crash: if its tool is idempotent and had started, it may be started again."""
    started = pending.started
    again = isinstance(started, ev.ToolStarted) and started.idempotent
    return msgspec.structs.replace(pending, started=None, tried=True) if again else pending


def _chars(items: tuple[ev.Answer, ...]) -> int:
    return sum(map(_chars_of, items))


def _chars_of(item: ev.Answer) -> int:
    match item:
        case AssistantMessage():
            return len(text_of(item.content))
        case Reasoning():
            return len(item.text)
        case ToolCall():
            return len(item.arguments)
        case _:  # pragma: no cover
            assert_never(item)


def _words(items: tuple[ev.Answer, ...]) -> str:
    return "".join([text_of(each.content) for each in items if isinstance(each, AssistantMessage)])
