"""How long a request may wait for its session, and what the session was when the request came."""

from __future__ import annotations

import asyncio

from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.resends import Arrival, arrival
from holdfast.errors import SessionBusy
from holdfast.ids import TurnId
from holdfast.sessions.admission.lanes import Lane
from holdfast.sessions.admission.session_lookup import ResolvedSession
from holdfast.sessions.session_requests import Ask

RETRY_AFTER_S = 1.0
"""What a client is told who meets a session that is busy: most turns take a few seconds."""


class WaitBudget:
    """How long a request may still wait for its session."""

    def __init__(
        self, ask: Ask, came_ms: int, lane: Lane | None, seen: ResolvedSession | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.came_ms = came_ms
        """By the store's clock."""
        self._until = self._loop.time() + ask.wait_s
        self._used: bool = False
        self.came_at = lane.base if lane else None
        """What the session was when the request came, if a turn was open then and that is known."""
        self.bound = lane.session if lane else None
        """The session that was in use when the request came, if that is known: it waits for that one."""
        self._seen = seen
        """What was there when the request came, as far as it was remembered."""

    def since(self, snapshot: Snapshot) -> Arrival:
        """What a session was when the request came: others may overtake a request although nothing is in its way, if its
        own T1 is slow. What was remembered when the request came has overtaken nothing."""
        came_at, seen = self.came_at, self._seen
        session_id = snapshot.session_id
        known = came_at[1] if came_at is not None and came_at[0] == session_id else None
        least = seen.snapshot.version if seen is not None and seen.expected == session_id else 0
        return arrival(snapshot, at_ms=self.came_ms, known=known, least=least)

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._loop.time())

    def demand(self, ask: Ask, turn_id: TurnId | None) -> None:
        """Raise SessionBusy if there is none left."""
        if self.left_s <= 0:
            raise session_busy(ask, turn_id)

    def once(self) -> bool:
        """True the first time."""
        first, self._used = not self._used, True
        return first


def session_busy(ask: Ask, turn_id: TurnId | None) -> SessionBusy:
    return SessionBusy(str(ask.name), turn_id=str(turn_id or "?"), retry_after_s=RETRY_AFTER_S)
