"""The connections to upstreams: one pool for all models of a process, or one for each, as its owner likes.

Nothing of one conversation lingers for the next: no cookies, and a connection whose answer was not read to its
end is closed instead of being used again.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.libraries import aiohttp, urllib_request

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


class Connections:
    """A pool. Opened by the first request, in the event loop that makes it; closed by `close`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @property
    def session(self) -> aiohttp.ClientSession:
        """The aiohttp session underneath. To be asked for inside an event loop."""
        if self._closed:
            raise RuntimeError("these connections were closed")
        if self._session is None:
            # No bound of its own: how many turns run at a time is decided where they are admitted.
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
            # Its name is aiohttp's own business; nothing else says how connections are made. A version without it
            # is as right, and slower: a test says so when the lock moves.
            connector._factory = partial(_handler(), loop=asyncio.get_running_loop())
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        return self._session

    async def close(self) -> None:
        """Close every connection; requests under way break off. Closing again does nothing."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._session else "unused"
        return f"<Connections {state}>"


@cache
def _handler() -> type[ResponseHandler]:
    """What reads responses; made with the first connection, when aiohttp is loaded."""

    class Handler(aiohttp.client_proto.ResponseHandler):
        """Goes on reading if it has stopped, and only then.

        aiohttp goes on after each piece of an answer that is taken, stopped or not: it lets its parser look for bytes
        that are not there, and tells a transport to read that does: three in ten of the instructions that a chunk
        takes.
        """

        def resume_reading(self, *args: bool, **named: bool) -> None:
            if getattr(self, "_reading_paused", True):  # aiohttp's own business, too
                super().resume_reading(*args, **named)

    return Handler


def proxy_from_environment(url: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`) prescribes for this address."""
    parts = urlsplit(url)
    if parts.hostname is None or urllib_request.proxy_bypass(parts.hostname):
        return None
    return urllib_request.getproxies().get(parts.scheme)
