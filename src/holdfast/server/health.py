"""`/healthz` and `/readyz`: what load balancers ask, without a key and by an address only."""

from __future__ import annotations

import msgspec

from holdfast.server.routing import Call
from holdfast.sessions.sessions import Sessions


class Health:
    """Whether we are there, and whether more work is welcome."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.draining = False
        """Set when the server is about to stop: whoever balances load should look elsewhere."""

    async def alive(self, call: Call) -> None:
        node = str(self._sessions.lease.node)
        await call.exchange.answer(200, msgspec.json.encode({"status": "alive", "node": node}))

    async def ready(self, call: Call) -> None:
        if self.draining:
            status, why = 503, "draining"
        elif not self._sessions.lease.is_live:
            status, why = 503, "the store has not been reached for a while"
        else:
            status, why = 200, "ready"
        said: dict[str, object] = {"status": why}
        if failing := self._sessions.supervisor.failing:
            said["failing"] = failing
        await call.exchange.answer(status, msgspec.json.encode(said))
