"""One WebSocket, over ASGI: opened by a request, then each message is a request, one after the other.

Handlers see no difference: a message is an `Exchange` like any other, whose answer is sent as messages. So what
is true of HTTP is true here, from API keys and quotas to what becomes of a turn whose client has disconnected.

1. A task always listens, so that a disconnect is noticed in the middle of an answer.
2. A socket ends between two answers: when its client has disconnected, has been silent for a long time, has been
   connected for as long as it may, its key is revoked, or the server is about to stop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from holdfast import limits
from holdfast.server.http.exchange import CONNECTION, Exchange, Message, Receive, Send
from holdfast.wire.headers import HEADERS, problem_headers
from holdfast.wire.openai.responses.socket import (
    error_event,
    lane_of,
    too_many_waiting,
    too_old,
    with_lane,
)
from holdfast.wire.problems import Problem
from holdfast.wire.sse import bodies

ONE_REQUEST_ONLY = frozenset(each.name.encode() for each in HEADERS if each.once) | {
    b"content-length"
}
"""Headers that are about one request. The messages of a socket do not inherit them from the request that opened it."""

GOING_AWAY, NOT_ALLOWED, RESTARTING = 1001, 1008, 1012


class StoppableConnection(Protocol):
    """A connection that knows when its server is about to stop."""

    leaving: asyncio.Event


class WebSocket:
    """A WebSocket, and the messages that its client sends."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Receive,
        send: Send,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._clock = clock
        connection: StoppableConnection | None = (scope.get("extensions") or {}).get(CONNECTION)
        self._leaving = connection.leaving if connection else asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self.key_revoked = asyncio.Event()
        """Set when the client may not use the socket any longer."""

    # ── opening ──

    def handshake(self, request_id: str) -> Exchange:
        """The request that opens this socket. Answering it refuses the socket; `accept` opens it."""

        async def receive() -> Message:
            came = await self._receive()
            kind = "http.disconnect" if came["type"] == "websocket.disconnect" else "http.request"
            return {"type": kind}

        async def send(message: Message) -> None:
            await self._say({**message, "type": f"websocket.{message['type']}"})

        return Exchange(self._as_http("GET"), receive, send, request_id=request_id)

    async def accept(self, headers: Mapping[str, str]) -> None:
        """Open the socket."""
        said = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
        await self._say({"type": "websocket.accept", "headers": said})

    # ── messages ──

    async def messages(self) -> AsyncIterator[bytes]:
        """The client's messages, each after the one before was answered; ends when the socket does."""
        ends_at = self._clock() + limits.socket_lifetime_s
        listening = asyncio.create_task(self._listen())
        try:
            while await self._wait_for_news(ends_at):
                yield self._waiting.popleft()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def exchange(self, body: bytes, request_id: str) -> Exchange:
        """A message as a request, and its answer as messages."""
        reply, brought = _Reply(self, lane_of(body)), [body]

        async def receive() -> Message:
            if brought:
                return {"type": "http.request", "body": brought.pop()}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        return Exchange(self._as_http("POST"), receive, reply.send, request_id=request_id)

    async def say(self, event: bytes) -> None:
        """Send an event to the client."""
        await self._say({"type": "websocket.send", "text": event.decode()})

    async def say_problem(self, problem: Problem, lane: str | None = None) -> None:
        event = error_event(problem.status, problem.body(), problem_headers(problem))
        await self.say(with_lane(event, lane))

    async def _wait_for_news(self, ends_at: float) -> bool:
        """Wait for the next message. False if there will be none; the socket is then closed."""
        if self._clock() >= ends_at:
            await self.say_problem(too_old())
            await self._close(GOING_AWAY, "it has lasted for as long as one may")
            return False
        ends = self._gone, self._leaving, self.key_revoked
        if not (self._waiting or any(each.is_set() for each in ends)):
            left_s = min(limits.socket_idle_s, ends_at - self._clock())
            if not await _any_of(self._news, *ends, within_s=left_s):
                if self._clock() >= ends_at:
                    return await self._wait_for_news(ends_at)
                await self._close(GOING_AWAY, "nothing was said for a long time")
                return False
        self._news.clear()
        if self.key_revoked.is_set():
            await self._close(NOT_ALLOWED, "its API key is not good any more")
        elif self._leaving.is_set():
            await self._close(RESTARTING, "the server is shutting down")
        return bool(self._waiting) and not any(each.is_set() for each in ends)

    async def _listen(self) -> None:
        while (came := await self._receive())["type"] != "websocket.disconnect":
            text: str | None = came.get("text")
            body = text.encode() if text is not None else came.get("bytes") or b""
            if len(self._waiting) >= limits.socket_waiting_max:
                await self.say_problem(too_many_waiting(), lane_of(body))
                continue
            self._waiting.append(body)
            self._news.set()
        self._gone.set()

    # ── pieces ──

    def _as_http(self, method: str) -> dict[str, object]:
        scope = self._scope
        headers = scope["headers"]
        if method != "GET":
            headers = [pair for pair in headers if pair[0].lower() not in ONE_REQUEST_ONLY]
        return {
            **scope,
            "type": "http",
            "method": method,
            "scheme": {"ws": "http", "wss": "https"}.get(scope.get("scheme", "ws"), "http"),
            "headers": headers,
        }

    async def _close(self, code: int, reason: str) -> None:
        await self._say({"type": "websocket.close", "code": code, "reason": reason})

    async def _say(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            self._gone.set()  # as over HTTP, an answer to a client that has gone is dropped


class _Reply:
    """The answer to one message: it takes ASGI's HTTP messages, and sends them over the socket."""

    def __init__(self, socket: WebSocket, lane: str | None) -> None:
        self._socket = socket
        self._lane = lane
        self._status = 0
        self._headers: dict[str, str] = {}
        self._refusal = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in message["headers"]
            }
            return
        piece: bytes = message.get("body", b"")
        if self._status == 200:
            for event in bodies(piece):
                await self._tell(event)
            return
        self._refusal += piece
        if not message.get("more_body", False):
            await self._tell(error_event(self._status, self._refusal, self._headers))

    async def _tell(self, event: bytes) -> None:
        await self._socket.say(with_lane(event, self._lane))


async def _any_of(*events: asyncio.Event, within_s: float) -> bool:
    """Wait until one of these is set; False if none is in time."""
    waits = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return bool(done)
