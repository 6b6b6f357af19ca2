"""Background work on a store: update the search index and remove expired rows, in small steps between turns."""

from __future__ import annotations

import asyncio

from holdfast import limits
from holdfast.store.store import Store


class Upkeep:
    """Indexes and prunes a store from time to time, so that no turn has to.

    Both methods are rounds for the supervisor: they wait, then take one step. The next step is due soon if there is
    more to do, else much later; after a failed step, the supervisor decides when.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index_in_s = limits.index_s
        self._prune_in_s = limits.prune_s

    async def index(self) -> None:
        """Index some of the sessions that the search index does not fully know."""
        await asyncio.sleep(self._index_in_s)
        self._index_in_s = 0.0
        indexed = await self._store.index()
        self._index_in_s = limits.upkeep_pause_s if indexed.more else limits.index_s

    async def prune(self) -> None:
        """Remove some of the rows that have expired."""
        await asyncio.sleep(self._prune_in_s)
        self._prune_in_s = 0.0
        pruned = await self._store.prune()
        self._prune_in_s = limits.upkeep_pause_s if pruned.more else limits.prune_s
