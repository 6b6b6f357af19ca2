"""The base of every connection, HTTP or WebSocket.

1. The handler that has written an answer can wait until the socket has taken all of it (`taken`).
2. A client that reads nothing of its answer is disconnected after a while.
3. A connection is in the register until it is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from http import HTTPStatus

from holdfast import limits
from holdfast.server.http.connection_register import ConnectionRegister
from holdfast.wire.problems import Problem


class BaseConnection(asyncio.Protocol):
    """Added to each of uvicorn's protocols: it knows when the socket has taken an answer, and disconnects a client that
    reads nothing."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    register: ConnectionRegister
    _lost = False
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._is_taken()
        self.register.leave(self.transport)
        super().connection_lost(exc)

    async def taken(self) -> bool:
        """Wait until the socket has taken everything written so far. False if it never will."""
        if self._is_lost():
            return False
        # With a mark of 0, "below the mark" means that nothing is left in our own buffer. Under TLS being at
        # the mark counts as above it, so it is 1. Under TLS "taken" also means encrypted and passed on: up to a
        # buffer's size may not have reached the socket yet, and there is no way to find out.
        encrypted = self.transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=1 if encrypted else 0, low=0)
        await self.wait_writable()
        if self._is_lost():
            return False
        self.transport.set_write_buffer_limits()
        return True

    def _is_lost(self) -> bool:
        """Whether the client has gone. A failed write closes the transport at once; `connection_lost` comes later."""
        return self._lost or self.transport.is_closing()

    async def wait_writable(self) -> None:
        """Wait until the transport takes more bytes."""
        raise NotImplementedError

    @property
    def is_writable(self) -> bool:
        """Whether a piece of the answer that is streamed now can be written without waiting. Never on a WebSocket,
        where an answer is sent as messages."""
        return False

    def write_piece(self, piece: bytes) -> None:
        """Write a piece. Only while the connection `is_writable`."""
        raise NotImplementedError

    @property
    def body_is_whole(self) -> bool:
        """Whether all of the request's body has arrived, so that reading it needs no waiting."""
        return False

    def start_now(self, status: int, headers: Mapping[str, str]) -> bool:
        """Write the head of an answer, if that is a plain case. False if the web server has to: then nothing was written."""
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(limits.write_stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def _is_taken(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def bare_answer(problem: Problem) -> bytes:
    """The bytes of an answer that the connection sends itself, before the application is asked, and then closes."""
    body, reason = problem.body(), HTTPStatus(problem.status).phrase
    head = (
        f"HTTP/1.1 {problem.status} {reason}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nx-request-id: req_{secrets.token_hex(12)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


NOT_HTTP = Problem(
    status=400, code="invalid_http_request", message="this is not a valid HTTP request"
)
