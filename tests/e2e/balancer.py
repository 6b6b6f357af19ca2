"""One address before several servers, as in production: each connection goes to the next of them that takes it."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Balancer:
    """Obtained by `started`. Whoever connects while no server does is hung up on."""

    def __init__(self) -> None:
        self.url = ""
        self.urls: list[str] = []
        """The servers."""
        self.opened = asyncio.Event()
        """Connections wait for it."""
        self.opened.set()
        self._connections = 0
        self._pumping: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def started(cls) -> AsyncIterator[Balancer]:
        balancer = cls()
        server = await asyncio.start_server(balancer._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        balancer.url = f"http://{host}:{port}"
        try:
            yield balancer
        finally:
            server.close()
            pumping = tuple(balancer._pumping)
            for each in pumping:
                each.cancel()
            await asyncio.gather(*pumping, return_exceptions=True)

    async def _serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        try:
            await self.opened.wait()
            found = await self._next_server()
            if found is None:
                return
            server, to_server = found
            pumps = {
                asyncio.create_task(_pump(client, to_server)),
                asyncio.create_task(_pump(server, to_client)),
            }
            self._pumping |= pumps
            # Whichever side hangs up, the other one hears of it at once.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            to_server.close()
            to_client.close()
            await asyncio.wait(pumps)
            self._pumping -= pumps
        finally:
            to_client.close()

    async def _next_server(self) -> tuple[StreamReader, StreamWriter] | None:
        first = self._connections
        self._connections += 1
        for nth in range(len(self.urls)):
            parts = urlsplit(self.urls[(first + nth) % len(self.urls)])
            with suppress(OSError):
                return await asyncio.open_connection(parts.hostname, parts.port)
        return None


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
