"""How the retry of a failed attempt begins where that attempt had come to.

The attempt was discarded: its session is as if it had not been. But the client asks for the same again, and what was
finished need not be done, or paid for, a second time. So the new turn takes over the journal's finished steps, under
their own ids, and goes on from there as if it had been resumed: recorded results are used, a call that had started has
an unknown outcome or is run again under its own key, a call that had not runs now. Steps that broke off are left behind.

1. Only on the same ground. The steps were an answer to one history, as one revision of its annotations showed it; if
   the session has moved on since, or is another one by now, the retry starts over.
2. Not what led to a limit: the same steps would lead there again. Such an attempt is tried afresh.
3. Not what other people said to the attempt, nor what came after it. They were told that it failed, and will say it
   again if they still mean it.
4. A journal that cannot be read to its end is not trusted with anything.
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
    """The events with which a turn begins that retries one of the same session; none, if nothing is of use.

    `failed` is the fold of what `happened` in that one, as far as its journal can be read.
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
    """What a step depends on besides what was asked, which is the same in every attempt."""
    return (
        request.base,
        request.base_rev,
        request.source_key,
        request.agent,
        request.carried,
        request.approved,
    )


def _finished(happened: Iterable[ev.Event]) -> list[ev.Event]:
    """What happened in an attempt, without its beginning, its end, and the steps that broke off."""
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
