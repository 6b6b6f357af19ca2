"""One HTTP connection: uvicorn's, with the checks that uvicorn does not make.

1. A request whose head is not complete after a while is dropped, and a head that is too large is refused.
2. Bytes that are not HTTP get an error in the same form as every other one.
3. What is true of every connection (`BaseConnection`) stays true when it becomes a WebSocket.
4. The number of connections is bounded (`ConnectionRegister`).
5. A wish for a protocol that this server does not speak (`Upgrade: h2c`, which Java's client sends with every first
   request) is passed over, and the request is answered in HTTP/1.1 as if it had not been made (RFC 9110, 7.8).
"""

from __future__ import annotations

import asyncio
import sys

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast import limits
from holdfast.server.http.base_connection import NOT_HTTP, BaseConnection, bare_answer
from holdfast.server.http.connection_register import ConnectionRegister
from holdfast.server.http.exchange import CONNECTION
from holdfast.server.http.websocket_upgrade import socket_protocol
from holdfast.server.processes.dependency_parts import demand_parts
from holdfast.wire.problems import Problem

UVICORN = (
    "cycle",
    "flow",
    "handle_websocket_upgrade",
    "headers",
    "loop",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "parser",
    "pipeline",
    "scope",
    "send_400_response",
    "transport",
    "url",
    "ws_protocol_class",
    "_should_upgrade",
    "_should_upgrade_to_ws",
    "_unsupported_upgrade_warning",
)
"""The parts of uvicorn's HTTP protocol that we use."""
demand_parts("uvicorn", HttpToolsProtocol, *UVICORN)
CYCLE = ("chunked_encoding", "expected_content_length", "keep_alive", "response_complete")
demand_parts("uvicorn", RequestResponseCycle, *CYCLE)


class Connection(BaseConnection, HttpToolsProtocol):
    """A connection of our server."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _passes_over_upgrade = False
    _read = _unread = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.register.enter(transport):
            self._wait_for_head()
        else:
            self._refuse(_NO_ROOM)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)
        self._drop_references()

    def _drop_references(self) -> None:
        """Drop the references that lead back to this connection, so that it is freed at once: no request comes after
        this, and the last one has all that it needs."""
        self.scope, self.cycle, self.parser = None, None, None  # type: ignore[assignment]

    async def wait_writable(self) -> None:
        if self.flow.write_paused:
            await self.flow.drain()

    # ── streams ──

    @property
    def is_writable(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        # A pipelined request has no encoding yet: while it is the latest one, `write_piece` is not used.
        writable = cycle is not None and cycle.chunked_encoding and not cycle.response_complete
        return bool(writable) and not self.flow.write_paused and not self.transport.is_closing()

    def write_piece(self, piece: bytes) -> None:
        """Write a chunk as uvicorn does, but without an ASGI message and a coroutine: this runs for every token."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def end_by_closing(self) -> None:
        # HTTP/1.0 knows no chunks, and uvicorn would send them.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.chunked_encoding = cycle.keep_alive = False
            cycle.expected_content_length = sys.maxsize

    def all_is_written(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.expected_content_length = 0

    # ── WebSockets ──

    def _should_upgrade_to_ws(self) -> bool:
        return self.parser.get_method() == b"GET"

    def handle_websocket_upgrade(self) -> None:
        self.ws_protocol_class = socket_protocol(self.register)
        super().handle_websocket_upgrade()
        self._drop_references()

    # ── other protocols ──

    def _is_foreign_upgrade(self) -> bool:
        return not self._should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Read a request anew without its wish for another protocol.

        uvicorn calls this once httptools has stopped behind the head, which it does for every protocol that is asked for:
        a body that follows would never be read.
        """
        stopped = sys.exception()
        if self._passes_over_upgrade and isinstance(stopped, httptools.HttpParserUpgrade):
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            head = [b"%b %b HTTP/%b" % (method, self.url, version)]
            head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            self._unread = b"\r\n".join([*head, b"", self._read[stopped.args[0] :]])
            self.parser = httptools.HttpRequestParser(self)

    # ── rest ──

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self.register.rest(self.transport)
        super().on_response_complete()

    # ── heads ──

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # Any byte between two requests starts the timer for the next head, even a blank line or the rest of an
            # unread body: no client can hold a connection open by sending a byte now and then.
            self._wait_for_head()
        self._head_bytes += len(data) if self._head_timer is not None else 0
        while data:
            self._read, self._unread = data, b""
            super().data_received(data)
            data = self._unread
        self._read = b""
        if self._head_timer is not None and self._head_bytes > limits.request_head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        self.register.work(self.transport)
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._passes_over_upgrade = self.parser.should_upgrade() and self._is_foreign_upgrade()
        if size > limits.request_head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)
        elif not self._passes_over_upgrade:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._passes_over_upgrade:
            super().on_message_complete()

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(limits.request_head_s, self.transport.close)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer, self._head_bytes = None, 0

    # ── what is not HTTP ──

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():  # else it was refused already
            self._refuse(NOT_HTTP)

    def _refuse(self, problem: Problem) -> None:
        self.transport.write(bare_answer(problem))
        self.transport.close()


def connection_class(register: ConnectionRegister) -> type[Connection]:
    """The class of connections that are counted in this register."""
    return type("Connection", (Connection,), {"register": register})


_NO_ROOM = Problem(
    status=503,
    code="too_many_connections",
    message="there is no room for another connection; use one that you have, or come back later",
    kind="server_error",
    retry_after_s=1.0,
    should_retry=True,
)

_HEAD_TOO_LARGE = Problem(
    status=431,
    code="request_head_too_large",
    message=f"the headers of a request are {limits.request_head_bytes_max} bytes at most; send fewer",
)
