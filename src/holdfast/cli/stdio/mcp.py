"""`holdfast mcp`: the Model Context Protocol over stdin and stdout, for hosts that start their servers.

A line is a message. Each is handed to `/mcp` of a server, a running one or one of this command's own, and what comes
back is written as lines; so a host gets the same answers here and there. The end of stdin is the end of the host: its
running requests are left, as by a client that disconnects.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import click
import msgspec

from holdfast import limits
from holdfast.cli import output, own_server
from holdfast.cli.options import ConversationPlace, where_options
from holdfast.client.address import parse_address
from holdfast.libraries import aiohttp
from holdfast.wire.headers import MCP_SESSION_ID
from holdfast.wire.json_rpc import INTERNAL_ERROR, RpcId, RpcNotification
from holdfast.wire.mcp.messages import McpFault, McpMessage, McpRequest, fault_of, read_message
from holdfast.wire.mcp.revisions import routing_headers
from holdfast.wire.sse import SseParser

EVENT_BYTES_MAX = 64 * 1024 * 1024
"""The longest event that is read from the server; it is trusted, so this only bounds a mistake."""


@click.command(short_help="Offer agents to an MCP host over stdin and stdout.")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@where_options
def mcp(sources: tuple[str, ...], at: ConversationPlace) -> None:
    """Offer agents as tools to an MCP host that starts this command.

    SOURCE is a source as `serve` takes it. With --server the agents of a running server are offered; without it, the
    command serves them itself, with the conversations of the store.

    \b
    Examples:
      holdfast mcp support.yaml
      holdfast mcp --server http://127.0.0.1:8484
    """
    if at.server is not None:
        if sources:
            raise click.UsageError(
                "a running server has its own agents: leave SOURCE or --server out"
            )
        asyncio.run(_bridge(at.server, at.key))
        return
    with own_server(sources, at.store) as address:
        asyncio.run(_bridge(address, None))


async def _bridge(server: str, key: str | None) -> None:
    async with McpBridge(server, key, output.give) as bridge:
        await bridge.run(_lines())


async def _lines() -> AsyncIterator[bytes]:
    """The lines of stdin, as they come."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limits.body_bytes_max)
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    except ValueError:  # a file, which is never waited for
        for line in sys.stdin.buffer:
            yield line
        return
    while line := await reader.readline():
        yield line


class McpBridge:
    """Hands messages of one host to one server, and what the server says to the host."""

    def __init__(self, server: str, key: str | None, write: Callable[[bytes], None]) -> None:
        """`write` writes a line to the host."""
        self._address = parse_address(server)
        self._write = write
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **({"authorization": f"Bearer {key}"} if key else {}),
        }
        self._session = ""
        self._running: dict[RpcId, asyncio.Task[None]] = {}

    async def __aenter__(self) -> McpBridge:
        socket = self._address.socket
        self._http = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket) if socket else None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._http.close()

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Hand over messages until the host says no more."""
        async for line in lines:
            if line.strip():
                await self._hear(line)

    async def _hear(self, line: bytes) -> None:
        try:
            message = read_message(line)
            headers = routing_headers(message)
        except McpFault as fault:
            self._write(fault_of(None, fault))
            return
        match message:
            case McpRequest(id=request_id):
                task = asyncio.create_task(self._ask(request_id, line, headers))
                self._running[request_id] = task
                task.add_done_callback(lambda _: self._running.pop(request_id, None))
            case _:
                if not self._session and (left := self._cancelled(message)) is not None:
                    left.cancel()  # the current revision cancels by closing the stream
                    return
                with suppress(aiohttp.ClientError, OSError):
                    await self._post(line, headers)

    def _cancelled(self, message: McpMessage) -> asyncio.Task[None] | None:
        """The running request that a notification cancels."""
        if not isinstance(message, RpcNotification) or message.method != CANCELLED:
            return None
        return self._running.get(msgspec.json.decode(message.params).get("requestId"))

    async def _ask(self, request_id: RpcId, line: bytes, headers: dict[str, str]) -> None:
        """Hand over a request, and see that the host gets an answer."""
        try:
            is_answered = await self._post(line, headers, request_id)
            why = "the server broke the answer off"
        except (aiohttp.ClientError, OSError) as error:
            is_answered, why = False, f"{self._address.url} does not answer: {error}"
        if not is_answered:
            self._write(fault_of(request_id, McpFault(INTERNAL_ERROR, why)))

    async def _post(
        self, line: bytes, headers: dict[str, str], request_id: RpcId | None = None
    ) -> bool:
        """Send a message, and write what comes back. Whether this request was answered."""
        sent = {**self._headers, **headers}
        if self._session:
            sent[MCP_SESSION_ID.name] = self._session
        url = f"{self._address.origin}{self._address.base}/mcp"
        async with self._http.post(url, data=line, headers=sent) as response:
            self._session = response.headers.get(MCP_SESSION_ID.name, self._session)
            if response.content_type != "text/event-stream":
                body = await response.read()
                if body and request_id is not None:
                    self._write(_with_id(body, request_id))
                return bool(body)
            parser = SseParser(event_bytes_max=EVENT_BYTES_MAX)
            is_answered = False
            async for piece in response.content.iter_any():
                for data, _ in parser.feed(piece):
                    self._write(data)
                    is_answered = "method" not in msgspec.json.decode(data)
            return is_answered


CANCELLED = "notifications/cancelled"


def _with_id(body: bytes, request_id: RpcId) -> bytes:
    """An answer with the id of its request, which the server may have refused before it read the id."""
    answer: dict[str, object] = msgspec.json.decode(body)
    return msgspec.json.encode({**answer, "id": request_id}) if answer["id"] is None else body
