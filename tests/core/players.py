"""Somebody to play a turn, and somebody who gets everything wrong. Both see the turn only from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from holdfast.core.items import EndedBy
from holdfast.core.turns import effects as wish
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing
from holdfast.core.turns.effects import wanted
from holdfast.core.turns.turn import Turn
from tests.core.builders import (
    answered,
    asked,
    branch_opened,
    call,
    finished,
    handed_off,
    inside,
    interrupted,
    mint,
    note,
    request,
    said,
    started,
    steered,
    summary,
)

# ── a player who does the least ──────────────────────────────────────────────────────────────


def played_out(turn: Turn) -> Turn:
    """The turn after everybody did the least: what is wanted, and else what is under way.

    Fails if that does not come to an end, or if the turn wants nothing while nothing is under way.
    """
    patience = 20 + 4 * sum(_open_ends(turn))
    for _ in range(patience):
        if turn.ended is not None:
            return turn
        wishes = wanted(turn)
        turn = advanced(turn, fulfilled(turn, wishes[0]) if wishes else carried_on(turn))
    raise AssertionError(f"no end after {patience} rounds; it wants {wanted(turn)}")


def fulfilled(turn: Turn, effect: wish.Effect) -> tuple[ev.Event, ...]:
    """What happens when this wish is carried out, from beginning to end."""
    match effect:
        case wish.AskModel():
            return asked(effect.path), answered(said(path=effect.path))
        case wish.RunCall():
            return started(effect.call), finished(effect.call)
        case wish.ReturnBranch():
            return (finished(effect.call, effect.text),)
        case wish.StopAtLimit():
            return (interrupted("limit", detail=effect.limit),)
        case wish.Close():
            return (*closing(turn, mint), ev.Ended(by=how_it_ends(turn), kept=True))
        case wish.Finish():
            return (ev.Ended(by="completed", kept=True),)
        case _:
            assert_never(effect)


def first_of(effect: wish.Effect) -> ev.Event | None:
    """The event that puts this wish under way, if it takes some time."""
    match effect:
        case wish.AskModel():
            return asked(effect.path)
        case wish.RunCall():
            return started(effect.call)
        case _:
            return None


def carried_on(turn: Turn) -> tuple[ev.Event, ...]:
    """What is under way comes to its end: the first model that is speaking, or tool that is running."""
    for branch in turn.branches:
        if branch.draft is not None:
            items = [each.completed(agent="", path=branch.path) for each in branch.draft.items]
            return (answered(*items, path=branch.path),)
        for pending in branch.pending:
            if isinstance(pending.started, ev.ToolStarted):
                return (finished(pending.call),)
    raise AssertionError("it wants nothing, and nothing is under way")


def how_it_ends(turn: Turn) -> EndedBy:
    return turn.interrupted.by if turn.interrupted else "completed"


def _open_ends(turn: Turn) -> Iterator[int]:
    for branch in turn.branches:
        yield 1 + len(branch.pending) + (len(branch.draft.items) if branch.draft else 0)


# ── what cannot happen ───────────────────────────────────────────────────────────────────────


def impossible(turn: Turn) -> Iterator[ev.Event]:
    """Events that this turn cannot accept, whatever state it is in. There are always some."""
    unheard_of = call("unheard-of")
    yield ev.Began(request=request())
    yield asked((unheard_of.id,))
    yield started(unheard_of)
    yield finished(unheard_of)
    yield branch_opened(unheard_of)
    yield ev.Grew(item=said().id, text="?")
    yield ev.Resumed(attempt=turn.attempt)
    yield interrupted("completed")
    yield ev.Compacted(summary=summary(covers_to=turn.request.base_length + 1))
    yield ev.Ended(by="completed" if turn.interrupted else "cancelled", kept=True)
    if turn.closed or not turn.interrupted or len(turn.branches) > 1 or not turn.root.idle:
        yield ev.Closed(note=note())
    if not turn.complete and not turn.closed:
        yield ev.Ended(by=how_it_ends(turn), kept=True)
    if any(branch.draft is not None for branch in turn.branches):
        yield ev.Resumed(attempt=turn.attempt + 1)
    yield from _impossible_now(turn)
    yield from _impossible_in_branches(turn)


def _impossible_now(turn: Turn) -> Iterator[ev.Event]:
    if turn.interrupted or turn.ended:
        yield asked()
        yield handed_off()
        yield steered()
        yield interrupted("cancelled")
        yield ev.Compacted(summary=summary())
        yield ev.Resumed(attempt=turn.attempt + 1)
    if turn.ended:
        yield answered(said())
        yield ev.StepBroken()
        yield ev.Ended(by=turn.ended.by, kept=turn.ended.kept)


def _impossible_in_branches(turn: Turn) -> Iterator[ev.Event]:
    for branch in turn.branches:
        path = branch.path
        if branch.draft is None:
            yield answered(said(path=path), path=path)
            yield ev.StepBroken(path=path)
            yield ev.ItemOpened(item=said().id, kind="message", path=path)
        else:
            yield handed_off(path=path)
            if path:
                yield answered(call(path=path, waits_for="client"))
            yield answered(said(path=(*path, call().id)), path=path)
            yield ev.StepBroken(items=(said(path=path),), path=path)
            for item in branch.draft.items:
                opened = ev.ItemOpened(item=item.id, kind=item.kind, path=path)
                yield opened
                yield answered(path=path)
        if not branch.idle or not branch.owes_answer:
            yield asked(path)
        for pending in branch.pending:
            if pending.may_have_run:
                yield finished(pending.call, outcome="not_run")
            else:
                yield finished(pending.call, outcome="unknown")
            if not pending.runnable:
                yield started(pending.call)
                yield branch_opened(pending.call)
            inner = turn.branch(inside(pending.call))
            if inner is not None and not inner.idle:
                yield finished(pending.call)
