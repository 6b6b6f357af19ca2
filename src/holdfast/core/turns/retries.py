"""A retry takes over the finished steps of the failed attempt before it.

The attempt was discarded: its session is as if it had never begun. But the client sends the same request again, and
finished steps need not be done, or paid for, a second time. So the new turn takes over the finished steps of the
attempt's journal, with their ids, and goes on from there as if it had been resumed: recorded results are used, a call
that had started has an unknown outcome or runs again under its own key, a call that had not started runs now. Steps
that broke off are left out.

1. Steps are taken over only for the same ground: they answered one version of one history, as one revision of its
   annotations showed it. If the session has moved on since, or the key means another session, the retry starts over.
2. Steps that led to a limit are not taken over: they would lead there again. Such an attempt starts over.
3. Messages that were steered into the attempt, and all that followed them, are not taken over. Their clients were told
   that the attempt failed, and can send them again.
4. From a journal that cannot be read to its end, nothing is taken over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.items import Path
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import resuming
from holdfast.core.turns.turn import Turn, advance
from holdfast.ids import Minter


def retrying(
    turn: Turn, failed: Turn, happened: Iterable[ev.Event], mint: Minter
) -> tuple[ev.Event, ...]:
    """The events that a turn takes over from a failed attempt in the same session; none if none can be used.

    `happened` are the attempt's events as far as its journal can be read, and `failed` is their fold.
    """
    assert turn.untouched, (
        "only a turn that has just begun takes over what another one has finished"
    )
    if failed.ended is None or failed.interrupted is None or failed.interrupted.by == "limit":
        return ()
    if _ground(failed.request) != _ground(turn.request):
        return ()
    taken_over: list[ev.Event] = []
    for event in _finished(happened):
        if isinstance(event, ev.Resumed):
            event = msgspec.structs.replace(event, attempt=turn.attempt + 1)
        turn = advance(turn, event)
        taken_over.append(event)
    if turn.untouched:
        return ()
    return (*taken_over, *resuming(turn, mint, after=failed.interrupted.by))


def _ground(request: ev.TurnRequest) -> tuple[object, ...]:
    """What a step depends on besides the client's message, which is the same in every attempt."""
    return (
        request.base,
        request.base_rev,
        request.source_key,
        request.agent,
        request.carried,
        request.approved,
    )


def _finished(happened: Iterable[ev.Event]) -> list[ev.Event]:
    """The events of an attempt without its begin, its end, steps that broke off, and all after a steered message."""
    finished: list[ev.Event] = []
    asking: dict[Path, ev.StepStarted] = {}
    for event in happened:
        match event:
            case ev.StepStarted():
                asking[event.path] = event
            case ev.Answered():
                finished += (asking.pop(event.path), event)
            case ev.Steered():
                break
            case (
                ev.ToolStarted()
                | ev.ToolFinished()
                | ev.BranchOpened()
                | ev.HandedOff()
                | ev.Compacted()
                | ev.Resumed()
            ):
                finished.append(event)
            case _:
                pass
    return finished
