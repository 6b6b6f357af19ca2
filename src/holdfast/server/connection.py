"""One connection: uvicorn's, and what uvicorn leaves to its applications or to nobody.

1. Whoever has written an answer can ask whether the socket has taken all of it (`taken`).
2. A request whose head does not come to its end is given up after a while.
3. What is not HTTP at all is told so in the same words as everything else.
"""

from __future__ import annotations

import asyncio
import secrets

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast import limits
from holdfast.server.exchange import CONNECTION
from holdfast.wire.problems import Problem


class Connection(HttpToolsProtocol):
    """A connection of our server."""

    _lost = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._head_is_there()
        super().connection_lost(exc)

    async def taken(self) -> bool:
        """Wait until the socket has taken everything written so far. False if it never will."""
        if self._is_lost():
            return False
        # With a mark of 0, "below the mark" means that nothing is left in our own buffer.
        self.transport.set_write_buffer_limits(high=0)
        if self.flow.write_paused:
            await self.flow.drain()
        if self._is_lost():
            return False
        self.transport.set_write_buffer_limits()
        return True

    def _is_lost(self) -> bool:
        """Whether the client has gone. A write that failed closes the transport at once, and tells us later."""
        return self._lost or self.transport.is_closing()

    # ── heads ──

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(limits.request_head_s, self.transport.close)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # ── what is not HTTP ──

    def send_400_response(self, msg: str) -> None:
        body = Problem(
            status=400, code="invalid_http_request", message="this is not a valid HTTP request"
        ).body()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: req_{secrets.token_hex(12)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
