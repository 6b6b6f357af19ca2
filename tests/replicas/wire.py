"""A network between a replica and its database, which can be cut, go silent, or be slow.

    async with Wire.before(host, port) as wire:
        wire.cut()        # connections are torn down, and no new one is made
        wire.silence()    # nobody is told anything: bytes are under way, for as long as it lasts
        wire.slow_down(0.05)
        wire.restore()

What was under way when the wire fell silent arrives when it is restored, also from somebody who has given up waiting
meanwhile: a network may keep a packet for as long as it likes. So a statement of a former holder comes late.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Wire:
    """A proxy on a port of its own. Obtained by `before`."""

    def __init__(self, host: str, port: int) -> None:
        self.target = host, port
        """Where new connections lead."""
        self.port = 0
        self.silenced = 0
        """How many connections were open at a moment when the wire fell silent."""
        self._cut = False
        self._delay_s = 0.0
        self._sound = asyncio.Event()
        self._sound.set()
        self._forgotten: set[asyncio.Task[None]] = set()
        self._links: dict[asyncio.Task[None], tuple[StreamWriter, ...]] = {}

    @classmethod
    @asynccontextmanager
    async def before(cls, host: str, port: int) -> AsyncIterator[Wire]:
        wire = cls(host, port)
        server = await asyncio.start_server(wire._serve, "127.0.0.1", 0)
        wire.port = server.sockets[0].getsockname()[1]
        try:
            yield wire
        finally:
            server.close()
            links = tuple(wire._links)
            wire.restore()
            wire.cut()
            await asyncio.gather(*links, return_exceptions=True)

    def cut(self) -> None:
        """Tear down every connection, and refuse new ones."""
        self._cut = True
        for writers in self._links.values():
            for writer in writers:
                writer.transport.abort()

    def silence(self) -> None:
        """Hold back every byte, in both directions, of those who are connected and of those who come."""
        self.silenced += len(self._links)
        self._sound.clear()

    def forget(self) -> None:
        """Hold back every byte of those who are connected, for ever; whoever connects anew is heard. A firewall
        that has lost its table does so."""
        self._forgotten |= self._links.keys()

    def slow_down(self, delay_s: float) -> None:
        """Let every piece take this much longer, each way."""
        self._delay_s = delay_s

    def restore(self) -> None:
        self._cut = False
        self._delay_s = 0.0
        self._sound.set()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._links[this] = (writer,)
        pumps: set[asyncio.Task[None]] = set()
        try:
            await self._sound.wait()
            if self._cut:
                return
            with suppress(OSError):
                there, back = await asyncio.open_connection(*self.target)
                self._links[this] = (writer, back)
                pumps = {
                    asyncio.create_task(self._pump(this, reader, back)),
                    asyncio.create_task(self._pump(this, there, writer)),
                }
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                await self._sound.wait()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in self._links.pop(this):
                end.transport.abort() if self._cut else end.close()

    async def _pump(
        self, link: asyncio.Task[None], reader: StreamReader, writer: StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._sound.wait()
                if link in self._forgotten:
                    continue
                writer.write(piece)
                await writer.drain()
