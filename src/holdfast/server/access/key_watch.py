"""The watch over the keys of open requests: streams, feeds and sockets end when their key is revoked, or when the store
gets its first key and they came without one.

A request is authenticated once and may last for an hour. While there are open requests, each of their keys is checked
every `key_cache_s` in the store that all replicas share; so a revoked key ends its open requests, on every replica,
within about a second. Their turns go on as if the client had disconnected: the policy of each turn decides.
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
        """`judge` returns why requests with this key, or without one, must end; None if they may go on. It may raise
        StoreError."""
        self._judge = judge
        self._open: dict[KeyId | None, set[Exchange]] = {}
        self._some = asyncio.Event()
        """There are open requests."""

    def enter(self, key_id: KeyId | None, exchange: Exchange) -> None:
        """A request was admitted with this key, or without one."""
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
        """One round of a supervised task: wait until there are open requests with keys to check, then check them."""
        await self._some.wait()
        await asyncio.sleep(limits.key_cache_s)
        try:
            for key_id in tuple(self._open):
                problem = await self._judge(key_id)
                if problem is not None:
                    for exchange in tuple(self._open.get(key_id, ())):
                        exchange.end(problem)
        except StoreError:
            pass  # the keys cannot be checked now; new requests get the store's error
