"""What a store needs besides turns: its index brought forward, and what may go removed. Small steps, turns first."""

from __future__ import annotations

import asyncio

from holdfast import limits
from holdfast.store.store import Store


class Upkeep:
    """Does for its store, from time to time, what no turn should wait for.

    Both methods are rounds for the supervisor: they wait, then take a step. After a step the next one is due soon if
    there is more to do, and else much later; after one that failed, as soon as the supervisor says.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index_in_s = limits.index_s
        self._prune_in_s = limits.prune_s

    async def index(self) -> None:
        """Bring the index forward by a step."""
        await asyncio.sleep(self._index_in_s)
        self._index_in_s = 0.0
        indexed = await self._store.index()
        self._index_in_s = limits.upkeep_pause_s if indexed.more else limits.index_s

    async def prune(self) -> None:
        """Remove some of what may go."""
        await asyncio.sleep(self._prune_in_s)
        self._prune_in_s = 0.0
        pruned = await self._store.prune()
        self._prune_in_s = limits.upkeep_pause_s if pruned.more else limits.prune_s
