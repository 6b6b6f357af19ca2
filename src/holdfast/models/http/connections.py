"""The connections to upstreams: one pool for all models of a process, or one for each, as the owner decides.

Nothing of one conversation is left for the next: no cookies, and a connection whose answer was not read to its
end is closed instead of being reused.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.libraries import aiohttp, load_http, urllib_request

if TYPE_CHECKING:
    from aiohttp import StreamReader


class Connections:
    """A connection pool. The first request opens it, in its event loop; `close` closes it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def session(self) -> aiohttp.ClientSession:
        """The aiohttp session. The first call loads aiohttp in a thread, if nothing has yet."""
        if self._session is None:
            await asyncio.to_thread(load_http)
        return self._opened()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("these connections were closed")
        if self._session is None:
            # The pool has no bound of its own: admission decides how many turns run at a time.
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        return self._session

    async def close(self) -> None:
        """Close every connection; running requests break off. A second call does nothing."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._session else "unused"
        return f"<Connections {state}>"


def in_pieces(response: aiohttp.ClientResponse) -> aiohttp.StreamReader:
    """The body of a response, to be read by `readany`: whatever has come is one piece.

    aiohttp keeps each HTTP chunk apart and notes where it ends, which nobody asks here, and resumes reading after each
    piece that is taken, paused or not: that is a third of the instructions of a chunk. It has no public way to choose
    another reader; a version in which this one does not fit works as well, only slower, and a test notices.
    """
    content = response.content
    if type(content) is aiohttp.StreamReader:
        with suppress(TypeError):
            content.__class__ = _pieces()
    return content


@cache
def _pieces() -> type[StreamReader]:
    """The class that reads bodies; made with the first one, when aiohttp is loaded."""

    class Pieces(aiohttp.StreamReader):
        """Takes everything at once, without regard to HTTP chunks. All names with an underscore are aiohttp's own."""

        __slots__ = ()

        def begin_http_chunk_receiving(self) -> None:
            pass

        def end_http_chunk_receiving(self) -> None:
            pass

        async def readany(self) -> bytes:
            # Without aiohttp's timer, which does nothing for a body, and without a second coroutine: for every token.
            if self._exception is not None:
                raise self._exception
            while not self._buffer and not self._eof:
                assert self._waiter is None, "one task reads a body"
                waiter = self._waiter = self._loop.create_future()
                try:
                    await waiter
                finally:
                    self._waiter = None
            return self._read_nowait(-1)

        def _read_nowait(self, n: int) -> bytes:
            if n != -1 or self._buffer_offset:
                return super()._read_nowait(n)
            pieces = self._buffer
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._size = 0
            self._cursor += len(data)
            if self._protocol._reading_paused:
                self._protocol.resume_reading()
            return data

    return Pieces


def proxy_from_environment(url: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`) sets for this URL."""
    if sys.platform == "linux" and not any(each.lower().endswith("_proxy") for each in os.environ):
        return None  # urllib would find the same, and loads http and most of email first
    parts = urlsplit(url)
    if parts.hostname is None or urllib_request.proxy_bypass(parts.hostname):
        return None
    return urllib_request.getproxies().get(parts.scheme)
