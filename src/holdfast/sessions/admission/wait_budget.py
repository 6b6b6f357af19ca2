"""How long a request may wait for its session, and how the session stood when the request arrived."""

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
"""The `Retry-After` of a busy session: most turns take a few seconds."""


class WaitBudget:
    """How long one request may still wait for its session."""

    def __init__(
        self, ask: Ask, came_ms: int, lane: Lane | None, seen: ResolvedSession | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.came_ms = came_ms
        """When the request arrived, by the store's clock."""
        self._until = self._loop.time() + ask.wait_s
        self._used: bool = False
        self.came_at = lane.base if lane else None
        """The session and version at which the request arrived, if a turn was open then and that is known."""
        self.bound = lane.session if lane else None
        """The session that was busy when the request arrived, if that is known: the request waits for it."""
        self._seen = seen
        """The cached session when the request arrived, if there was one."""

    def since(self, snapshot: Snapshot) -> Arrival:
        """How a session stood when the request arrived. Others may overtake a request that need not wait, if its own
        begin transaction is slow. Versions that were cached when the request arrived have not overtaken it."""
        came_at, seen = self.came_at, self._seen
        session_id = snapshot.session_id
        known = came_at[1] if came_at is not None and came_at[0] == session_id else None
        least = seen.snapshot.version if seen is not None and seen.expected == session_id else 0
        return arrival(snapshot, at_ms=self.came_ms, known=known, least=least)

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._loop.time())

    def demand(self, ask: Ask, turn_id: TurnId | None) -> None:
        """Raise SessionBusy if no time is left."""
        if self.left_s <= 0:
            raise session_busy(ask, turn_id)

    def once(self) -> bool:
        """True on the first call only."""
        first, self._used = not self._used, True
        return first


def session_busy(ask: Ask, turn_id: TurnId | None) -> SessionBusy:
    return SessionBusy(str(ask.name), turn_id=str(turn_id or "?"), retry_after_s=RETRY_AFTER_S)
