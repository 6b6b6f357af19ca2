"""`/healthz` and `/readyz`: checks for load balancers, without a key and under any host name."""

from __future__ import annotations

import msgspec

from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.sessions.sessions import Sessions
from holdfast.wire.openai.answer_types import Health as HealthObject

_YES = AnswerDescription("Yes.", HealthObject)
_NO = AnswerDescription("Not now; `status` says why.", HealthObject, 503)


class HealthEndpoints:
    """Whether the process is alive, and whether it takes more requests."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.draining = False
        """Set when the server is about to stop: load balancers should then send requests elsewhere."""

    @Route("GET /healthz", None, "isAlive", _YES, _NO)
    @Route("HEAD /healthz", None, "isAliveHead", _YES, _NO)
    async def alive(self, call: HttpCall) -> None:
        """Whether the process is alive.

        Says which `node` has answered.
        """
        node = str(self._sessions.lease.node)
        await call.exchange.answer(200, msgspec.json.encode({"status": "alive", "node": node}))

    @Route("GET /readyz", None, "isReady", _YES, _NO)
    @Route("HEAD /readyz", None, "isReadyHead", _YES, _NO)
    async def ready(self, call: HttpCall) -> None:
        """Whether it can take requests.

        The store is reached, and the server is not about to stop; `failing` names
        [tasks of the server](metrics.md#tasks) that do not work at the moment.
        """
        if self.draining:
            status, why = 503, "draining"
        elif self._sessions.store.unreadable:
            status, why = 503, "damaged"
        elif self._sessions.store.read_only is not None:
            # Reading goes on, so it is worth sending requests here.
            status, why = 200, "read-only"
        elif not self._sessions.lease.is_live:
            status, why = 503, "the store has not been reached for a while"
        else:
            status, why = 200, "ready"
        said: dict[str, object] = {"status": why}
        if why in ("read-only", "damaged"):
            said["reason"] = self._sessions.store.read_only
        if failing := self._sessions.supervisor.failing:
            said["failing"] = failing
        await call.exchange.answer(status, msgspec.json.encode(said))
