"""Whether the keys of open requests are still good: streams, feeds and sockets end when theirs is revoked.

A request is let in once and may last for an hour. As long as there are some, each of their keys is looked at every
`key_cache_s`, in the store that all replicas share; so a revoked key ends what it has open, everywhere, within about
a second. What was asked for goes on as if its client had gone: the policy of its turn decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast import limits
from holdfast.errors import StoreError
from holdfast.ids import KeyId
from holdfast.server.exchange import Exchange
from holdfast.wire.problems import Problem

log = logging.getLogger("holdfast.server")


class KeyWatch:
    """The open requests of each key."""

    def __init__(self, judge: Callable[[KeyId], Awaitable[Problem | None]]) -> None:
        """`judge` says what is wrong with a key, if anything. It may raise StoreError."""
        self._judge = judge
        self._open: dict[KeyId, set[Exchange]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def enter(self, key_id: KeyId, exchange: Exchange) -> None:
        """A request was let in by this key."""
        self._open.setdefault(key_id, set()).add(exchange)
        self._look_later()

    def leave(self, key_id: KeyId, exchange: Exchange) -> None:
        """A request has ended."""
        exchanges = self._open.get(key_id, set())
        exchanges.discard(exchange)
        if not exchanges:
            self._open.pop(key_id, None)

    def _look_later(self) -> None:
        if self._timer is None and self._looking is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.key_cache_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._open:
            self._looking = asyncio.create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        try:
            for key_id in tuple(self._open):
                problem = await self._judge(key_id)
                if problem is not None:
                    for exchange in tuple(self._open.get(key_id, ())):
                        exchange.end(problem)
        except StoreError:
            pass  # nothing is known of the keys, and requests that come now are told so
        except Exception as error:
            log.error("the keys of open requests could not be looked at", exc_info=error)
        finally:
            self._looking = None
            if self._open:
                self._look_later()
