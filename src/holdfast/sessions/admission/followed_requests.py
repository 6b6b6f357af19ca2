"""Admission of requests that follow the history of their client: each goes on in the line that its content leads to.

No such request waits for another turn, and none is refused because a line is busy: the line is forked instead. A turn
that a dead node has left does not make a line busy (`orphaned_turns.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.history.reconciliation import without_repeats
from holdfast.core.ports import Play
from holdfast.errors import CannotContinue, SessionBusy, SessionConflict
from holdfast.sessions.admission.families import Families
from holdfast.sessions.admission.lanes import Lanes
from holdfast.sessions.admission.orphaned_turns import OrphanedTurns
from holdfast.sessions.admission.wait_budget import WaitBudget
from holdfast.sessions.session_requests import Ask, Line
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import (
    Busy,
    Gone,
    Joined,
    Known,
    Mismatch,
    Missing,
    Moved,
    Replay,
    Unfinished,
)

Admit: TypeAlias = Callable[[Ask, Play, WaitBudget, None], Awaitable[Watch]]


class LineMoved(Exception):
    """The line that a request was to go on in is busy, or has moved: the request looks again."""

    def __init__(self, outcome: Busy | Moved | Gone | Missing) -> None:
        super().__init__(outcome)
        self.busy = outcome if isinstance(outcome, Busy) else None


class FollowedRequests:
    """Admits requests that follow the history of their client."""

    def __init__(
        self,
        families: Families,
        orphaned: OrphanedTurns,
        lanes: Lanes,
        *,
        admit: Admit,
        submit: Admit,
        attach: Callable[[Ask, Joined | Replay | Mismatch | Gone], Awaitable[Watch | None]],
        continuing: Callable[[Ask, Unfinished], Awaitable[Ask]],
    ) -> None:
        """`admit` begins a turn on the line that was found; the others are for a request that has come before."""
        self._families = families
        self._orphaned = orphaned
        self._lanes = lanes
        self._admit = admit
        self._submit = submit
        self._attach = attach
        self._continuing = continuing

    async def submit(self, ask: Ask, play: Play, patience: WaitBudget) -> Watch:
        """Begin a turn in the line that the request's own history leads to, or find the turn that it has begun
        before."""
        ask = msgspec.structs.replace(ask, messages=without_repeats(ask.messages))
        looks = may_stay = True
        while True:
            found = await self._families.find(
                ask,
                is_held=lambda session_id: self._lanes.is_held((ask.tenant, session_id)),
                looks=looks,
                may_stay=may_stay,
            )
            if not isinstance(found, Line):
                known = await self._again(ask, found, play, patience)
                if known is not None:
                    return known
                looks = False
                continue
            try:
                return await self._admit(_in_line(ask, found), play, patience, None)
            except LineMoved as moved:
                busy = moved.busy
                may_stay = busy is not None and await self._orphaned.wait_ended(
                    ask.tenant, busy, patience
                )
            except (SessionBusy, SessionConflict):
                may_stay = False

    async def _again(
        self, ask: Ask, found: Known, play: Play, patience: WaitBudget
    ) -> Watch | None:
        """A watch of the turn that this request has begun before, or that continues it. None if it has moved on."""
        if not isinstance(found, Unfinished):
            return await self._attach(ask, found)
        goes_on = await self._continuing(msgspec.structs.replace(ask, history=None), found)
        if goes_on.continues is None:
            return None
        only = msgspec.structs.replace(goes_on.continues, instead=None)
        try:
            again = msgspec.structs.replace(goes_on, continues=only, on_busy="reject")
            return await self._submit(again, play, patience, None)
        except (CannotContinue, SessionBusy, SessionConflict):
            return None  # another request has moved the line on meanwhile


def _in_line(ask: Ask, line: Line) -> Ask:
    """The request as it goes on in this line: without waiting, and on the version that it was compared with."""
    return msgspec.structs.replace(
        ask, name=line.expected, line=line, on_busy="reject", if_match=None, expire_after_s=None
    )
