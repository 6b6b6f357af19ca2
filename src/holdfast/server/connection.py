"""One connection: uvicorn's, and what uvicorn leaves to its applications or to nobody.

1. Whoever has written an answer can ask whether the socket has taken all of it (`taken`).
2. A request whose head does not come to its end is given up after a while.
3. So is a client that takes nothing of what it is sent, and a head that does not fit.
4. What is not HTTP at all is told so in the same words as everything else.
"""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast import limits
from holdfast.server.exchange import CONNECTION
from holdfast.wire.problems import Problem


class Connection(HttpToolsProtocol):
    """A connection of our server."""

    _lost = False
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._head_is_there()
        self._is_taken()
        super().connection_lost(exc)

    async def taken(self) -> bool:
        """Wait until the socket has taken everything written so far. False if it never will."""
        if self._is_lost():
            return False
        # With a mark of 0, "below the mark" means that nothing is left in our own buffer. Under TLS being at
        # the mark counts as above it, so it is 1; and taken is what was encrypted and passed on, of which up to
        # a buffer's size may not have reached the socket: there is no way to see through.
        self.transport.set_write_buffer_limits(high=1 if self.scheme == "https" else 0, low=0)
        if self.flow.write_paused:
            await self.flow.drain()
        if self._is_lost():
            return False
        self.transport.set_write_buffer_limits()
        return True

    def _is_lost(self) -> bool:
        """Whether the client has gone. A write that failed closes the transport at once, and tells us later."""
        return self._lost or self.transport.is_closing()

    # ── stalls ──

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

    # ── heads ──

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # Whatever comes between two requests begins the next one, blank lines and the rest of a body
            # that nobody wants included: it is not to be kept up by sending a byte now and then.
            self._wait_for_head()
        self._head_bytes += len(data) if self._head_timer is not None else 0
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > limits.request_head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > limits.request_head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)
        else:
            super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(limits.request_head_s, self.transport.close)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer, self._head_bytes = None, 0

    # ── what is not HTTP ──

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():  # it was told already
            self._refuse(_NOT_HTTP)

    def _refuse(self, problem: Problem) -> None:
        """Answer without an application, and hang up."""
        body, reason = problem.body(), HTTPStatus(problem.status).phrase
        head = (
            f"HTTP/1.1 {problem.status} {reason}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: req_{secrets.token_hex(12)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


_NOT_HTTP = Problem(
    status=400, code="invalid_http_request", message="this is not a valid HTTP request"
)
_HEAD_TOO_LARGE = Problem(
    status=431,
    code="request_head_too_large",
    message=f"the headers of a request are {limits.request_head_bytes_max} bytes at most; send fewer",
)
