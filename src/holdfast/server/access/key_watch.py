"""Whether the keys of open requests are still good: streams, feeds and sockets end when theirs is revoked, or when the
first key of a store closes the door to requests without one.

A request is let in once and may last for an hour. As long as there are some, each of their keys is looked at every
`key_cache_s`, in the store that all replicas share; so a revoked key ends what it has open, everywhere, within about
a second. What was asked for goes on as if its client had gone: the policy of its turn decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast import limits
from holdfast.errors import StoreError
from holdfast.ids import KeyId
from holdfast.server.http.exchange import Exchange
from holdfast.wire.problems import Problem


class KeyWatch:
    """The open requests of each key."""

    def __init__(self, judge: Callable[[KeyId | None], Awaitable[Problem | None]]) -> None:
        """`judge` says what is wrong with a key, or with having none, if anything. It may raise StoreError."""
        self._judge = judge
        self._open: dict[KeyId | None, set[Exchange]] = {}
        self._some = asyncio.Event()
        """There are open requests."""

    def enter(self, key_id: KeyId | None, exchange: Exchange) -> None:
        """A request was let in by this key, or without one."""
        self._open.setdefault(key_id, set()).add(exchange)
        self._some.set()

    def leave(self, key_id: KeyId | None, exchange: Exchange) -> None:
        """A request has ended."""
        exchanges = self._open.get(key_id, set())
        exchanges.discard(exchange)
        if not exchanges:
            self._open.pop(key_id, None)
        if not self._open:
            self._some.clear()

    async def look(self) -> None:
        """A round of the server's supervisor: wait for open requests, and then until it is time to look at their keys."""
        await self._some.wait()
        await asyncio.sleep(limits.key_cache_s)
        try:
            for key_id in tuple(self._open):
                problem = await self._judge(key_id)
                if problem is not None:
                    for exchange in tuple(self._open.get(key_id, ())):
                        exchange.end(problem)
        except StoreError:
            pass  # nothing is known of the keys, and requests that come now are told so
