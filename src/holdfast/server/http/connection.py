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
from collections.abc import Mapping

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

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
CYCLE = (
    "chunked_encoding",
    "default_headers",
    "disconnected",
    "expected_content_length",
    "keep_alive",
    "more_body",
    "response_complete",
    "response_started",
    "waiting_for_100_continue",
)
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

    # ── whole requests and answers ──

    @property
    def body_is_whole(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        # While requests are pipelined, the latest one may not be the one that is asked about.
        return cycle is not None and not self.pipeline and not cycle.more_body

    def start_now(self, status: int, headers: Mapping[str, str]) -> bool:
        """Write the head of an answer with a known length as uvicorn does, but look at all names and all values at once.
        Anything unusual is left to uvicorn, also to refuse it."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or self.pipeline or self.flow.write_paused:
            return False
        if cycle.disconnected or cycle.response_started or cycle.default_headers:
            return False
        size = headers.get("content-length")
        if size is None or "connection" in headers or "transfer-encoding" in headers:
            return False
        names = "".join(headers).encode("latin-1")
        values = "".join(headers.values()).encode("latin-1")
        kept = names.translate(None, _NOT_IN_NAMES) + values.translate(None, _NOT_IN_VALUES)
        if len(kept) < len(names) + len(values):
            return False
        lines = "\r\n".join(map(": ".join, headers.items()))
        end = b"\r\n\r\n" if cycle.keep_alive else b"\r\nconnection: close\r\n\r\n"
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        cycle.chunked_encoding, cycle.expected_content_length = False, int(size)
        self.transport.write(STATUS_LINE[status] + lines.encode("latin-1") + end)
        return True

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


_NOT_IN_VALUES = bytes({*range(32), 127} - {9})
"""Characters that would break out of a header's value."""
_NOT_IN_NAMES = bytes({*_NOT_IN_VALUES, *b'\t()<>@,;:[]={} \\"'})

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
