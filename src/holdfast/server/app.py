"""The ASGI application, wired together from a store, agents and settings. There is no global object."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.config import ApproveInChat, McpResources
from holdfast.errors import HoldfastError, StoreClosed, StoreDamaged, StoreFault
from holdfast.observe.events import audit, bind, event, is_listening
from holdfast.observe.recent_log import RecentLog
from holdfast.observe.spans import NO_SPAN, Span, is_tracing, span
from holdfast.observe.trouble import Trouble
from holdfast.server.a2a.cards import Cards
from holdfast.server.a2a.endpoints import A2AEndpoints
from holdfast.server.a2a.methods import TaskMethods
from holdfast.server.access.authentication import ANYBODY, Authenticator
from holdfast.server.access.key_watch import KeyWatch
from holdfast.server.access.quotas import Quotas, QuotaSlot
from holdfast.server.access.seals import Seals
from holdfast.server.agents.directory import Directory
from holdfast.server.anthropic.messages import MessagesEndpoint
from holdfast.server.api.approvals import ApprovalsApi
from holdfast.server.api.compaction import CompactionApi
from holdfast.server.api.costs import CostsApi
from holdfast.server.api.families import FamiliesApi
from holdfast.server.api.grants import GrantsApi
from holdfast.server.api.overview import Overview
from holdfast.server.api.sessions import SessionsApi
from holdfast.server.api.source_bindings import SourceBindingsApi
from holdfast.server.api.traces import TracesApi
from holdfast.server.api.turn_lists import TurnLists
from holdfast.server.console_files import ConsoleFiles
from holdfast.server.health import HealthEndpoints
from holdfast.server.http.body_memory import BodyMemory, memory_bytes
from holdfast.server.http.exchange import ClientGone, Exchange, Receive, Send
from holdfast.server.http.origin_guard import OriginGuard, is_preflight
from holdfast.server.http.routing import (
    Caller,
    HttpCall,
    Route,
    Routes,
    refuse_nul,
    refuse_unknown_parameters,
    routes_of,
)
from holdfast.server.http.websocket import WebSocket
from holdfast.server.mcp.endpoint import McpEndpoint
from holdfast.server.metrics import Metrics
from holdfast.server.openai.chat_completions import ChatCompletions
from holdfast.server.openai.conversations import Conversations
from holdfast.server.openai.model_context import ModelContexts
from holdfast.server.openai.model_list import ModelsEndpoint
from holdfast.server.openai.responses import Responses
from holdfast.server.openai.responses_socket import ResponsesSockets, request_id
from holdfast.server.openai.stored_responses import StoredResponses
from holdfast.server.openapi.document import OpenApi
from holdfast.server.problems import after_begin, problem_of, shutting_down, unexpected
from holdfast.server.processes.number_history import NumberHistory
from holdfast.server.processes.numbers import Numbers, OwnNumbers
from holdfast.server.turns.chat_approvals import ChatApprovals
from holdfast.server.turns.conversation_turns import ConversationTurns
from holdfast.server.turns.token_counts import TokenCounts
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.sessions import Sessions
from holdfast.wire.headers import TURN_ID
from holdfast.wire.problems import OPENAI_PROBLEMS, BusyStatus, Refused
from holdfast.wire.trace import read_trace

log = logging.getLogger("holdfast.server")

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})

GONE = 499
"""The status of a request whose client disconnected before the answer. Only logs and metrics show it."""


class App:
    """The ASGI application. It does not close `sessions`: the caller that opened them does."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        *,
        turns: TurnSettings = TurnSettings(),  # noqa: B008
        busy_status: BusyStatus = 409,
        guard: OriginGuard | None = None,
        authenticator: Authenticator | None = None,
        quotas: Quotas | None = None,
        numbers: Numbers | None = None,
        bodies: BodyMemory | None = None,
        mcp_resources: McpResources = "own",
        approve_in_chat: ApproveInChat = "off",
        on_loopback: bool = False,
        recent: RecentLog | None = None,
        published: tuple[str, ...] = (),
        currency: str = "",
        history: NumberHistory | None = None,
    ) -> None:
        self._guard = guard or OriginGuard()
        in_chat = ChatApprovals(sessions, self._guard, approve_in_chat, on_loopback=on_loopback)
        in_conversations = ConversationTurns(sessions, directory, in_chat, turns)
        counters = TokenCounts(sessions, directory)
        seals = Seals(sessions.store, sessions.mint)
        responses = Responses(sessions, directory, seals, in_chat, turns)
        self._sockets = ResponsesSockets(responses, self._serve)
        grants = GrantsApi(sessions.store)
        approvals = ApprovalsApi(sessions, directory, grants, turns)
        compacting = CompactionApi(sessions, directory)
        cards = Cards(directory, self._guard, published, self._needs_key)
        self._health = HealthEndpoints(sessions)
        self._requests = sessions.tally.requests
        self.routes = Routes(
            routes_of(
                self._health,
                Metrics(sessions, numbers or OwnNumbers()),
                OpenApi(lambda: self.routes),
                ChatCompletions(in_conversations),
                MessagesEndpoint(in_conversations, sessions, counters),
                ModelsEndpoint(directory),
                responses,
                ModelContexts(sessions, compacting, counters, seals),
                StoredResponses(sessions, seals),
                Conversations(sessions, directory, seals, turns),
                SessionsApi(sessions, directory, approvals, compacting, turns),
                grants,
                SourceBindingsApi(sessions, directory),
                McpEndpoint(sessions, directory, self._guard, turns, mcp_resources),
                ConsoleFiles(),
                Overview(
                    sessions,
                    recent or RecentLog(),
                    history or NumberHistory(sessions, numbers),
                    currency=currency,
                ),
                FamiliesApi(sessions),
                TurnLists(sessions.store),
                TracesApi(sessions, directory, currency=currency),
                CostsApi(sessions.store, currency=currency),
                cards,
                A2AEndpoints(TaskMethods(sessions, turns, cards)),
            )
        )
        """Every route that this application answers."""
        self._store_trouble = Trouble("the store", log)
        self._busy_status = busy_status
        self._authenticator = authenticator or Authenticator(sessions.store, "off")
        self._quotas = quotas or Quotas()
        self.keys = KeyWatch(self._authenticator.judge)
        self._bodies = bodies or BodyMemory(memory_bytes())

    def drain(self) -> None:
        """The server is about to stop: `/readyz` now tells load balancers to send requests elsewhere."""
        self._health.draining = True

    async def _needs_key(self) -> bool:
        return await self._authenticator.judge(None) is not None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await self._sockets.open(WebSocket(scope, receive, send))
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not supported")
        await self._serve(Exchange(scope, receive, send, request_id=request_id()))

    async def _serve(self, exchange: Exchange, route: Route | None = None) -> None:
        """Answer one request: by `route`, or by the one that the table has for its path."""
        facts = _RequestFacts(route=route)
        _bind(exchange)
        with _span_of(exchange) as here:
            try:
                await self._answer(exchange, facts)
            except ClientGone:
                pass  # no client is left to answer
            finally:
                exchange.close()
                if (caller := facts.caller) is not None:
                    self.keys.leave(caller.key_id, exchange)
                if facts.slot is not None:
                    facts.slot.end()
                self._log_request(exchange, facts)
                _describe(here, exchange, facts)

    async def _answer(self, exchange: Exchange, facts: _RequestFacts) -> None:
        """Answer a request. A failure becomes one answer: a status, or the last event of a stream that had begun."""
        try:
            await self._route(exchange, facts)
            self._store_trouble.worked()
            return
        except Refused as refused:
            problem = refused.problem
        except HoldfastError as error:
            problem = problem_of(error, busy_status=self._busy_status)
            if isinstance(error, StoreClosed) and self._health.draining:
                # It is closed last, so what became of this request is not known here.
                problem = exchange.ended_by or shutting_down(exchange.headers)
            if TURN_ID.name in exchange.about:
                problem = after_begin(problem, exchange.headers)
            is_told = isinstance(error, StoreDamaged)  # by an event, once for each cause
            if isinstance(error, StoreFault):
                self._store_trouble.failed(str(error), error=error)
            elif problem.status == 500 and not is_told:
                log.exception("%s %s (%s)", exchange.method, exchange.path, exchange.request_id)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if exchange.ended_by is None and not self._health.draining:
                raise
            problem = exchange.ended_by or shutting_down(exchange.headers)
        except Exception as error:
            log.error(
                "%s %s (%s)", exchange.method, exchange.path, exchange.request_id, exc_info=error
            )
            problem = unexpected(exchange.request_id)
        exchange.code = problem.code
        match exchange.state:
            case "reading":
                await exchange.refuse(problem)
            case "streaming":
                await exchange.fail(problem)
            case "answering" | "done":
                # The answer is complete, or its size was announced: nothing can be added to it.
                log.error(
                    "the answer has begun, so the client does not get this problem: %s (%s)",
                    problem.message,
                    exchange.request_id,
                )

    async def _route(self, exchange: Exchange, facts: _RequestFacts) -> None:
        if is_preflight(exchange):
            self._guard.check(exchange)
            allowed = self._guard.preflight(self.routes.methods(exchange.raw_path))
            await exchange.answer(204, b"", headers=allowed)
            return
        names: tuple[str, ...] = ()
        if (route := facts.route) is None:
            found = self.routes.find(exchange.method, exchange.raw_path)
            route = facts.route = found.route
            names = found.names
        if route.problems is not OPENAI_PROBLEMS:
            exchange.answer_problems_in(route.problems)
        refuse_nul(exchange)
        if (
            route.scope is None
        ):  # load balancers and browsers may ask by IP address, which is no host of ours
            self._guard.check_open(exchange)
            await route.handler(HttpCall(exchange, ANYBODY, names))
            return
        self._guard.check(exchange)
        caller = facts.caller = await self._authenticator.admit(exchange, route.scope)
        self.keys.enter(caller.key_id, exchange)
        facts.names = names
        facts.slot = slot = self._quotas.enter(exchange, caller)
        if route.load is not None:
            slot.occupy(route.load)
        body = await exchange.body(bytes_max=route.body_bytes_max, room=self._bodies)
        call = HttpCall(exchange, caller, names, body, slot.occupy)
        refuse_unknown_parameters(call, route)
        await route.handler(call)

    def _log_request(self, exchange: Exchange, facts: _RequestFacts) -> None:
        """Log one line for each request, and one in the audit log if its route belongs there."""
        label = facts.route.label if facts.route else "unknown"
        status = exchange.status or GONE
        tenant, key = (caller.tenant, caller.key_id) if (caller := facts.caller) else (None, None)
        self._requests[label, status] += 1
        if is_listening():
            event(
                "request.answered" if exchange.status else "request.abandoned",
                route=label,
                status=status,
                code=exchange.code or None,
                tenant=tenant,
                key=key,
                client=self._guard.client_of(exchange),
                ms=round(exchange.age_s * 1000),
            )
        done = exchange.audit
        if done is None and facts.route and facts.route.audit:
            done = facts.route.audit, " ".join(facts.names)
        if done is not None:
            audit(
                done[0],
                tenant=tenant,
                key=key,
                client=self._guard.client_of(exchange),
                about=done[1] or None,
                status=status,
                code=exchange.code or None,
            )


class _RequestFacts(Struct):
    """The facts of a request that its log line and its span need."""

    route: Route | None = None
    caller: Caller | None = None
    """None until the request was authenticated."""
    names: tuple[str, ...] = ()
    slot: QuotaSlot | None = None


def _bind(exchange: Exchange) -> None:
    """Give every log line and span of this request its id, and the client's trace if it sent one."""
    trace = read_trace(exchange.headers)
    if trace is None:
        bind(request=exchange.request_id)
    else:
        # A server that exports no spans passes the trace on with a span id that no collector knows.
        parent = trace.parent(None if is_tracing() else secrets.token_hex(8))
        bind(request=exchange.request_id, trace=trace.trace_id, traceparent=parent)


def _span_of(exchange: Exchange) -> Span:
    """The span of a request; none for health checks and metrics."""
    if exchange.path in UNTRACED:
        return NO_SPAN
    attributes = {"http.request.method": exchange.method, "url.path": exchange.path}
    return span(exchange.method, "server", attributes)


def _describe(here: Span, exchange: Exchange, facts: _RequestFacts) -> None:
    """Set on a request's span what is known once it was answered."""
    status = exchange.status or GONE
    if facts.route is not None:
        here.rename(facts.route.label)
        here.set("http.route", facts.route.pattern)
    here.set("http.response.status_code", status)
    here.set("holdfast.request.id", exchange.request_id)
    if status >= 500 or status == GONE:
        here.fail(str(status))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return
