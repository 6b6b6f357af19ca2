"""`/v1/responses` as a WebSocket: requests one after the other over one connection, each answered by its events.

Stored Responses are the same as over HTTP, and any connection finds them. Unstored ones (`store: false`) live with the
socket: only requests on this socket can continue the last few of them. A continuation that fails also drops the
Response that it continued, as OpenAI does, so that no client builds on a state that may not be what it thinks.

A request with `generate: false` prepares another one: its input is kept here and goes in front of the input of the
request that continues it; nothing else happens.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from holdfast import limits
from holdfast.ids import ResponseId
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.routing import HttpCall, Route
from holdfast.server.http.websocket import WebSocket
from holdfast.server.openai.responses import Responses
from holdfast.sessions.stateless_turns import LooseConversation
from holdfast.wire.openai.responses.items import InputPiece
from holdfast.wire.openai.responses.request import ResponsesAsk, read_responses_request
from holdfast.wire.openai.responses.socket import read_message
from holdfast.wire.problems import Refused, not_found, permanent

PATH = "/v1/responses"

Serve: TypeAlias = Callable[[Exchange, Route], Coroutine[Any, Any, None]]
"""Serves one request by this route: authentication, quotas, the handler, and the answer if it fails."""


def request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


class ResponsesSockets:
    """The endpoint for WebSockets."""

    def __init__(self, responses: Responses, serve: Serve) -> None:
        self._responses = responses
        self._serve = serve

    async def open(self, socket: WebSocket) -> None:
        """Serve a socket from its opening to its end."""
        handshake = socket.handshake(request_id())
        if handshake.path.rstrip("/") == PATH:
            route = Route(
                f"GET {PATH}", "chat", load="watchers", handler=partial(self._talk, socket)
            )
        else:
            route = Route("GET /{path...}", None, handler=_refuse)
        await self._serve(handshake, route)

    async def _talk(self, socket: WebSocket, call: HttpCall) -> None:
        """Accept a socket, and answer its messages until it ends."""
        await socket.accept(call.exchange.upgraded())
        call.exchange.on_end = socket.key_revoked.set
        talk = SocketExchange(self._responses)
        route = Route(
            f"MESSAGE {PATH}",
            "chat",
            body_bytes_max=limits.body_bytes_max,
            load="turns",
            handler=talk.answer,
        )
        async for message in socket.messages():
            # In a task of its own, so that the log lines of one message do not carry another's request id.
            await asyncio.create_task(self._serve(socket.exchange(message, request_id()), route))


async def _refuse(call: HttpCall) -> None:
    where = call.exchange.raw_path[:200]
    raise not_found("unknown_url", f"there is no WebSocket at {where}; there is one at {PATH}")


class _Prepared(Struct, frozen=True):
    """A request with `generate: false` that waits for another one to continue it."""

    previous: ResponseId | None
    input: tuple[InputPiece, ...]
    size_bytes: int
    """The size of the messages that it came in."""


class SocketExchange:
    """Answers the requests of one socket, and holds its unstored Responses."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._held: dict[ResponseId, LooseConversation | _Prepared] = {}
        """The Responses that only this socket can continue, the oldest first."""

    async def answer(self, call: HttpCall) -> None:
        """Answer one message."""
        said = read_message(call.body)
        generates = said.generate is not False
        seal = await self._responses.seals.asked_in(call.tenant, call.body)
        asked = read_responses_request(call.body, needs_input=generates, seal=seal)
        asked = msgspec.structs.replace(asked, stream=True)
        # A Response that is continued is dropped, and held again once the continuation has succeeded.
        taken: dict[ResponseId, LooseConversation | _Prepared] = {}
        asked, loose = self._resolved(asked, taken)
        if not generates:
            size = len(call.body) + sum(_size(each) for each in taken.values())
            if size > limits.body_bytes_max:
                raise Refused(TOO_LARGE)
            response_id = await self._responses.prepare(call, asked)
            self._hold({**taken, response_id: _Prepared(asked.previous, asked.input, size)})
            return
        answered = await self._responses.answer(call, asked, loose)
        if answered is None:
            return
        self._hold(taken)
        if not asked.store and answered.loose is not None:
            self._hold({answered.response_id: answered.loose})

    def _resolved(
        self, asked: ResponsesAsk, taken: dict[ResponseId, LooseConversation | _Prepared]
    ) -> tuple[ResponsesAsk, LooseConversation | None]:
        """The request with the prepared input in front of its own, and the loose conversation that it continues."""
        while asked.previous is not None and asked.previous in self._held:
            held = taken[asked.previous] = self._held.pop(asked.previous)
            if isinstance(held, LooseConversation):
                if asked.store:
                    break  # a stored Response can only continue a stored one
                return asked, held
            asked = msgspec.structs.replace(
                asked, previous=held.previous, input=(*held.input, *asked.input)
            )
        return asked, None

    def _hold(self, news: dict[ResponseId, LooseConversation | _Prepared]) -> None:
        self._held |= news
        while len(self._held) > limits.socket_held_max or self._weight() > _BYTES_MAX:
            if len(self._held) == 1:
                return  # the latest Response is always held: continuing it is what a socket is for
            del self._held[next(iter(self._held))]

    def _weight(self) -> int:
        return sum(map(_size, self._held.values()))


def _size(held: LooseConversation | _Prepared) -> int:
    if isinstance(held, LooseConversation):
        return held.snapshot.size_bytes + sum(map(len, held.blobs.values()))
    return held.size_bytes


TOO_LARGE = permanent(
    413,
    "request_too_large",
    f"the input that was prepared on this socket is larger than {limits.body_bytes_max} bytes; "
    "send less, or let it be answered in between",
)


_BYTES_MAX = limits.socket_held_bytes_max
