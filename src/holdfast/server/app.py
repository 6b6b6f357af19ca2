"""All the wiring: one ASGI application from a store, agents and settings. No global object."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import HoldfastError
from holdfast.ids import Tenant
from holdfast.server.api import Api
from holdfast.server.approvals import Approvals
from holdfast.server.chat import Chat
from holdfast.server.compacting import Compacting
from holdfast.server.directory import Directory, ModelEntry
from holdfast.server.exchange import ClientGone, Exchange, Receive, Send
from holdfast.server.guards import Guard
from holdfast.server.methods import only
from holdfast.server.problems import problem_of, unexpected
from holdfast.sessions.sessions import Sessions
from holdfast.wire.headers import NAMES
from holdfast.wire.problems import BusyStatus, Problem, Refused

log = logging.getLogger("holdfast.server")

LOCAL = Tenant("local")

SHUTTING_DOWN = Problem(
    status=503,
    code="server_shutting_down",
    message="the server is shutting down, and another one goes on with this turn; retry to hear of it",
    kind="server_error",
    retry_after_s=1.0,
    should_retry=True,
)


class App:
    """The ASGI application. Whoever opens the sessions closes them."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        *,
        names: tuple[str, ...] = NAMES,
        policy: Policy = Policy(),  # noqa: B008
        deadline_s: float = limits.turn_deadline_s,
        expire_after_s: float | None = None,
        busy_status: BusyStatus = 409,
        guard: Guard | None = None,
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._chat = Chat(
            sessions,
            directory,
            names=names,
            policy=policy,
            deadline_s=deadline_s,
            expire_after_s=expire_after_s,
        )
        approvals = Approvals(sessions, directory, policy=policy, deadline_s=deadline_s)
        self._api = Api(sessions, directory, approvals, Compacting(sessions, directory))
        self._busy_status = busy_status
        self._guard = guard or Guard()
        self.draining = False
        """Set when the server is about to stop: whoever balances load should look elsewhere."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not spoken here")
        exchange = Exchange(scope, receive, send, request_id=f"req_{secrets.token_hex(12)}")
        try:
            await self._answer(exchange)
        except ClientGone:
            pass  # nobody is there to be told
        finally:
            exchange.close()

    def end_stateless(self) -> None:
        """The grace time of a shutdown is over: end the turns that no store will end."""
        self._chat.end_stateless()

    async def _answer(self, exchange: Exchange) -> None:
        """One failure, one answer: as a status, or as the last event of a stream that had begun."""
        try:
            await self._route(exchange)
            return
        except Refused as refused:
            problem = refused.problem
        except HoldfastError as error:
            problem = problem_of(error, busy_status=self._busy_status)
            if problem.status == 500:
                log.exception("%s %s (%s)", exchange.method, exchange.path, exchange.request_id)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not self.draining:
                raise
            problem = SHUTTING_DOWN
        except Exception as error:
            log.error(
                "%s %s (%s)", exchange.method, exchange.path, exchange.request_id, exc_info=error
            )
            problem = unexpected(exchange.request_id)
        match exchange.state:
            case "reading":
                await exchange.refuse(problem)
            case "streaming":
                await exchange.fail(problem)
            case "answering" | "done":
                # The answer was whole, or its size was announced: nothing can be added to it.
                log.error("too late to say so: %s (%s)", problem.message, exchange.request_id)

    async def _route(self, exchange: Exchange) -> None:
        path = exchange.path
        if path in ("/healthz", "/readyz"):  # whoever asks for these knows us by an address only
            only(exchange, "GET", "HEAD")
            await (self._ready if path == "/readyz" else self._alive)(exchange)
            return
        self._guard.check(exchange)
        if path == "/v1/chat/completions":
            only(exchange, "POST")
            await self._chat.serve(exchange, LOCAL)
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            only(exchange, "GET")
            await self._models(exchange, path.removeprefix("/v1/models").removeprefix("/"))
        elif path == "/api" or path.startswith("/api/"):
            await self._api.serve(exchange, LOCAL)
        else:
            raise Refused(_not_found(path))

    async def _alive(self, exchange: Exchange) -> None:
        await exchange.answer(200, b'{"status":"alive"}')

    async def _ready(self, exchange: Exchange) -> None:
        if self.draining:
            status, why = 503, "draining"
        elif not self._sessions.lease.is_live:
            status, why = 503, "the store has not been reached for a while"
        else:
            status, why = 200, "ready"
        await exchange.answer(status, msgspec.json.encode({"status": why}))

    async def _models(self, exchange: Exchange, name: str) -> None:
        entries = self._directory.entries()
        if not name:
            listed = {"object": "list", "data": [_model(each) for each in entries]}
            await exchange.answer(200, msgspec.json.encode(listed))
            return
        chosen = self._directory.named(name)  # refuses what there is not
        found = next((each for each in entries if each.id == name), None)
        entry = found or ModelEntry(id=name, agent=chosen.agent, source="")
        await exchange.answer(200, msgspec.json.encode(_model(entry)))


def _model(entry: ModelEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": entry.source or "holdfast",
    }


def _not_found(path: str) -> Problem:
    return Problem(
        status=404,
        code="unknown_url",
        message=f"there is nothing at {path[:200]}; see /v1/models, /v1/chat/completions and /api/sessions",
        should_retry=False,
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return
