"""The connections to upstreams: one pool for all models of a process, or one for each, as the owner decides.

Nothing of one conversation is left for the next: no cookies, and a connection whose answer was not read to its
end is closed instead of being reused.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.libraries import aiohttp, load_http, urllib_request

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


PIECES_MAX = 8
"""How many pieces of an answer are left as they came. Joining fewer would copy the same bytes too often."""


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
            # A private name of aiohttp, which has no public way to choose the handler. A version without it works as
            # well, only slower; a test notices when an upgrade moves it.
            connector._factory = partial(_handler(), loop=asyncio.get_running_loop())
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


@cache
def _handler() -> type[ResponseHandler]:
    """The class that reads responses; made with the first connection, when aiohttp is loaded."""

    class Handler(aiohttp.client_proto.ResponseHandler):
        """Resumes reading only if reading is paused, and hands over at once what has come at once. All names of
        aiohttp with an underscore are private to it.

        aiohttp resumes after each piece that is taken from an answer, paused or not: its parser looks for bytes that
        are not there, and a transport that is reading is told to read. That is three in ten of the instructions of
        a chunk. And it keeps each HTTP chunk as a piece of its own, and many cost more to take than to join.
        """

        resumes = False

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.resumes:  # a reader is taking pieces, and has counted them
                return
            answer = getattr(self, "_payload", None)
            pieces: deque[bytes] | None = getattr(answer, "_buffer", None)
            if pieces is None or len(pieces) <= PIECES_MAX:
                return
            if getattr(answer, "_buffer_offset", None) == 0:
                joined = b"".join(pieces)
                pieces.clear()
                pieces.append(joined)

        def resume_reading(self, *args: bool, **named: bool) -> None:
            if getattr(self, "_reading_paused", True):
                self.resumes = True
                try:
                    super().resume_reading(*args, **named)
                finally:
                    self.resumes = False

    return Handler


def proxy_from_environment(url: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`) sets for this URL."""
    if sys.platform == "linux" and not any(each.lower().endswith("_proxy") for each in os.environ):
        return None  # urllib would find the same, and loads http and most of email first
    parts = urlsplit(url)
    if parts.hostname is None or urllib_request.proxy_bypass(parts.hostname):
        return None
    return urllib_request.getproxies().get(parts.scheme)
