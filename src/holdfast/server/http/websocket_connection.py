"""A connection that has become a WebSocket: uvicorn's, with three differences.

1. A shutdown does not cut it: `leaving` is set, and the application closes the socket between two answers.
2. What is true of every connection (`BaseConnection`) is true of it.
3. A malformed request to open a WebSocket gets an error in the same form as every other one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.server.http.base_connection import NOT_HTTP, BaseConnection, bare_answer
from holdfast.server.http.exchange import CONNECTION
from holdfast.server.processes.dependency_parts import demand_parts

LINGER_S = 1.0
"""How long we go on reading from a client after we have sent it a close frame."""


UVICORN = (
    "close_sent",
    "close_timer",
    "conn",
    "handle_parser_exception",
    "handshake_complete",
    "handshake_initiated",
    "loop",
    "queue",
    "read_paused",
    "run_asgi",
    "scope",
    "shutdown",
    "transport",
    "writable",
)
"""The parts of uvicorn's WebSocket protocol that we use."""
demand_parts("uvicorn", WebSocketsSansIOProtocol, *UVICORN)


class SocketConnection(BaseConnection, WebSocketsSansIOProtocol):
    """A WebSocket of our server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.leaving = asyncio.Event()
        """Set when the server is about to stop."""

    async def wait_writable(self) -> None:
        await self.writable.wait()

    async def run_asgi(self) -> None:
        self.scope["extensions"] = {**(self.scope["extensions"] or {}), CONNECTION: self}  # type: ignore[dict-item]
        await super().run_asgi()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.scope["extensions"] = {}  # they refer to this connection, and would keep it in memory

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent:
            self.leaving.set()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            if self.conn.handshake_exc is not None:  # it will never be opened
                self.transport.write(bare_answer(NOT_HTTP))
                self.transport.close()

    def handle_parser_exception(self) -> None:
        """Send the close frame, and go on reading for a moment: closing a connection while the client is still sending
        resets it, and the client would lose the close frame."""
        if self.close_timer is not None:
            return
        assert self.conn.close_sent is not None, "an open socket says why it ends"
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)
