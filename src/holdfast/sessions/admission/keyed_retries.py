"""A keyed retry takes over the finished steps of the failed attempt before it (`core/turns/retries.py` says which).

The turn's player does this first, in one append: after a crash either all of these steps are in the journal, or none
is, and the node that resumes the turn tries again.
"""

from __future__ import annotations

from functools import partial

from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import fold
from holdfast.core.turns.retries import retrying
from holdfast.ids import TurnId
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.watch import journaled
from holdfast.store.outcomes import Fence
from holdfast.store.store import Store


def retried(store: Store, fence: Fence, of: TurnId | None, play: Play) -> Play:
    """A player that first takes over the finished steps of the attempt `of`; `play` itself if `of` is None."""
    if of is None:
        return play

    async def play_on(turn: OpenTurn) -> None:
        if turn.turn.untouched:
            finished = await _finished_steps(store, fence, of, turn)
            if finished:
                await turn.record(*finished)
        await play(turn)

    return play_on


async def _finished_steps(
    store: Store, fence: Fence, of: TurnId | None, turn: OpenTurn
) -> tuple[ev.Event, ...]:
    """The finished steps of the latest attempt that has any event of its own.

    An attempt that ended before it could take over the steps of the attempt before it is skipped.
    """
    while of is not None:
        row = await persistently(partial(store.turn, fence.tenant, of))
        records = [each async for some in journaled(store, fence.tenant, of, 0) for each in some]
        failed = fold(records).turn
        if row is None or row.session_id != fence.session_id or failed is None:
            break
        if not failed.untouched:
            return retrying(turn.turn, failed, (each.event for each in records), turn.mint)
        of = row.retry_of
    return ()
