"""What a store needs besides turns: its index brought forward, and what may go removed. Small steps, turns first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast import limits
from holdfast.errors import StoreError
from holdfast.store.base import Store


class Upkeep:
    """Does for its store, from time to time, what no turn should wait for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep_indexing(self) -> None:
        """Bring the index forward, for ever."""
        await _keep(self._index, every_s=limits.index_s)

    async def keep_pruning(self) -> None:
        """Remove what may go, for ever."""
        await _keep(self._prune, every_s=limits.prune_s)

    async def _index(self) -> bool:
        return (await self._store.index()).more

    async def _prune(self) -> bool:
        return (await self._store.prune()).more


async def _keep(step: Callable[[], Awaitable[bool]], *, every_s: float) -> None:
    """Take a step; the next one soon if there is more to do, and else much later."""
    more = False
    while True:
        await asyncio.sleep(limits.upkeep_pause_s if more else every_s)
        try:
            more = await step()
        except StoreError:
            more = False  # the store is away; what there is to do stays
