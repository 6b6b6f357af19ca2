"""The fake upstream itself: a minimal HTTP/1.1 server, so that a test controls every byte."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from holdfast.models.model import ModelFailed
from holdfast.testing.scripted_model import Gate, Script, says
from holdfast.testing.upstream.replies import (
    Reply,
    UpstreamRequest,
    error_of,
    model_object,
    refuses,
)
from holdfast.testing.upstream.wires import CHAT, FakeWire, wire_of
from holdfast.wire.openai.chat.chunks import ErrorObject, encode_json

Answer: TypeAlias = Reply | Script | str
Respond: TypeAlias = Callable[[UpstreamRequest], Answer]

COUNTS = ("/responses/input_tokens", "/messages/count_tokens", ":countTokens")
"""The paths at which the APIs count the tokens of a prompt."""

HEAD_BYTES_MAX = 64 * 1024


class _Gone(Exception):
    """The client has left, or we have closed the connection."""


class FakeUpstream:
    """Answers requests with these replies, one after the other; then with `otherwise`, if it is given."""

    def __init__(
        self,
        *answers: Answer,
        otherwise: Respond | None = None,
        models: Iterable[str] = ("fake-model",),
        counts: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: list[UpstreamRequest] = []
        """Every request for an answer, in order."""
        self.others: list[UpstreamRequest] = []
        """Every other request."""
        self.connections = 0
        """How many connections were ever made."""
        self._answers = list(answers)
        self._otherwise = otherwise
        self._models = tuple(models)
        self.counts = counts
        """The token count of every prompt; None: the server does not count."""
        self._host, self._port = host, port
        self._numbers = count(1)
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """The base URL of OpenAI's and Anthropic's APIs."""
        return f"{self.url}/v1"

    @property
    def url(self) -> str:
        """The server's URL: the base of Google's API, and of the vendors' own SDKs."""
        return f"http://{self._host}:{self._port}"

    @property
    def connections_open(self) -> int:
        return len(self._open)

    def will(self, *answers: Answer) -> None:
        """Add these answers after the scripted ones."""
        self._answers += answers

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close all connections, and stop listening."""
        assert self._server is not None, "it was started"
        self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<FakeUpstream {self.base_url} asked {len(self.requests)} times>"

    # ── connections ──

    def _protocol(self) -> _Protocol:
        return _Protocol(self._connected)

    def _connected(self, protocol: _Protocol, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._converse(protocol, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _converse(self, protocol: _Protocol, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(protocol.reader)) is not None:
                await self._answer(request, UpstreamConnection(protocol, writer))
        except (_Gone, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: UpstreamRequest, line: UpstreamConnection) -> None:
        wire = wire_of(request.route)
        if wire is not None:
            self.requests.append(request)
            try:
                await self._complete(request, line, wire)
            except (_Gone, ConnectionError):
                request.left_early = line.gone
                raise
        else:
            self.others.append(request)
            reply = self._about_models(request)
            if reply.error is not None:
                reply = _refusal(reply, reply.error, CHAT)
            await line.send_whole(reply)

    async def _complete(
        self, request: UpstreamRequest, line: UpstreamConnection, wire: FakeWire
    ) -> None:
        reply = self._next(request)
        if reply.stall_before_head:
            await line.wait_at(reply.gate or Gate())
        number = next(self._numbers)
        if reply.error is not None:
            await line.send_whole(_refusal(reply, reply.error, wire))
        elif reply.body is not None:
            await line.send_whole(reply)
        elif request.wants_stream:
            await line.send(reply, wire.streamed(reply, request, number))
        else:
            for step in reply.script.steps:
                if isinstance(step, Gate):
                    await line.wait_at(step)
            try:
                body = wire.whole(reply.script, request, number)
            except ModelFailed as failure:
                refusal = Reply(status=failure.status or 500)
                await line.send_whole(_refusal(refusal, error_of(failure), wire))
            else:
                whole_reply = msgspec.structs.replace(reply, content_type="application/json")
                await line.send(whole_reply, [body])

    def _next(self, request: UpstreamRequest) -> Reply:
        if self._answers:
            answer = self._answers.pop(0)
        elif self._otherwise is not None:
            answer = self._otherwise(request)
        else:
            answer = refuses(
                500, code="unscripted", message="no answer is scripted for this request"
            )
        if isinstance(answer, str):
            answer = says(answer)
        return Reply(script=answer) if isinstance(answer, Script) else answer

    def _about_models(self, request: UpstreamRequest) -> Reply:
        path = request.route
        if path.endswith(COUNTS) and self.counts is not None:
            name = "totalTokens" if path.endswith(":countTokens") else "input_tokens"
            body = encode_json({name: self.counts})
            return Reply(body=body, content_type="application/json")
        if path.endswith("/models"):
            listed: object = {"object": "list", "data": list(map(model_object, self._models))}
            return Reply(body=encode_json(listed), content_type="application/json")
        name = path.rpartition("/models/")[2]
        if name in self._models:
            return Reply(body=encode_json(model_object(name)), content_type="application/json")
        return refuses(404, code="model_not_found", message=f"The model {name!r} does not exist")


def _refusal(reply: Reply, error: ErrorObject, wire: FakeWire) -> Reply:
    body = wire.error(reply.status, error)
    return msgspec.structs.replace(reply, body=body, content_type="application/json")


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream that notices at once when the client has gone, even during a write."""

    def __init__(self, connected: Callable[[_Protocol, asyncio.StreamWriter], None]) -> None:
        self.reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        self.gone = asyncio.Event()
        super().__init__(self.reader, lambda _, writer: connected(self, writer))

    def eof_received(self) -> bool:
        self.gone.set()
        return bool(super().eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(error)


async def _read_request(reader: asyncio.StreamReader) -> UpstreamRequest | None:
    """The next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return UpstreamRequest(method, path, headers, await _read_chunks(reader))
    return UpstreamRequest(
        method, path, headers, await reader.readexactly(int(headers.get("content-length", "0")))
    )


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


class UpstreamConnection:
    """One connection, during one answer."""

    def __init__(self, protocol: _Protocol, writer: asyncio.StreamWriter) -> None:
        self._protocol = protocol
        self._writer = writer
        self._chunked = True

    @property
    def gone(self) -> bool:
        return self._protocol.gone.is_set()

    async def send_whole(self, reply: Reply) -> None:
        assert reply.body is not None
        await self.send(reply, [reply.body])

    async def send(self, reply: Reply, events: Iterable[bytes | Gate]) -> None:
        """Send a response with its faults. Raises _Gone if a fault ends the connection."""
        self._chunked = reply.chunked
        self._writer.write(_head(reply))
        await self._writer.drain()
        for piece in _pieces(reply, events):
            if isinstance(piece, Gate):
                await self.wait_at(piece)
                continue
            await self._write(piece)
            if reply.pace_s:
                await asyncio.sleep(reply.pace_s)
        if reply.cut_at is not None and reply.cut_by != "end":
            self._hang_up(reset=reply.cut_by == "reset")
        if not self._chunked:
            self._hang_up(reset=False)
        if self.gone:
            raise _Gone
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def wait_at(self, gate: Gate) -> None:
        """Wait for the gate, or until the client has gone."""
        waiting = asyncio.ensure_future(gate.wait())
        leaving = asyncio.ensure_future(self._protocol.gone.wait())
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            leaving.cancel()
        if self.gone:
            raise _Gone

    async def _write(self, piece: bytes) -> None:
        if self.gone:
            raise _Gone
        self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
        await self._writer.drain()
        await asyncio.sleep(0)  # let a client in the same loop read this piece by itself

    def _hang_up(self, *, reset: bool) -> None:
        if reset:
            connection: socket.socket = self._writer.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        raise _Gone


def _head(reply: Reply) -> bytes:
    kind = reply.content_type or "text/event-stream; charset=utf-8"
    lines = [f"HTTP/1.1 {reply.status} Scripted", f"Content-Type: {kind}"]
    lines += (f"{name}: {value}" for name, value in reply.headers)
    lines.append("Transfer-Encoding: chunked" if reply.chunked else "Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def _pieces(reply: Reply, events: Iterable[bytes | Gate]) -> Iterator[bytes | Gate]:
    """The body in the pieces to write, up to its cut."""
    marks = set(reply.cuts)
    marks.update(at for at in (reply.cut_at, reply.stall_at) if at is not None)
    sent = 0
    stall = reply.gate or Gate()
    if reply.stall_at == 0:
        yield stall
    for event in events:
        if isinstance(event, Gate):
            yield event
            continue
        if reply.body is None and reply.line_end != b"\n":
            event = re.sub(b"\n", reply.line_end, event)
        ends = sorted(mark - sent for mark in marks if 0 < mark - sent < len(event))
        for piece in _parted(event, ends, reply.write_bytes):
            if reply.cut_at is not None and sent >= reply.cut_at:
                return
            yield piece
            sent += len(piece)
            if sent == reply.stall_at:
                yield stall


def _parted(event: bytes, ends: list[int], write_bytes: int | None) -> Iterator[bytes]:
    for start, end in zip([0, *ends], [*ends, len(event)], strict=True):
        step = write_bytes or max(1, end - start)
        for at in range(start, end, step):
            yield event[at : min(at + step, end)]
