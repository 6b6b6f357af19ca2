"""A node's right to hold sessions: one row, renewed for as long as its process lives.

One statement renews it, whatever the number of turns. It runs in a thread of its own with an event loop of
its own, so that a busy or blocked main loop does not look like a dead process; a simulation, or a store that
lives on one loop, runs the same heartbeat as a task.

1. A node that could not renew for a TTL counts as dead, to itself too: it starts no tool and begins no turn
   until it has renewed. If others have acted on it, whatever it still writes is refused by the fence.
2. Renewing again after a gap starts a new record: others judge nobody before it is one TTL long.
3. A renewal is the write that every node makes all the time: where the store takes none for `store_retry_s`, its disk
   is full or it is away, and nothing that another node is to write is waited for any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import NodeId
from holdfast.observe.supervisor import Backoff
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.turns.store_retries import told_again
from holdfast.store.store import Store

PATIENCE_SHARE = 1 / 3
"""Of a lease, for one renewal: then there is time for another one before it ends."""

RETRY_SHARE = 1 / 5
"""Of the time between two renewals, after one that failed: some can fail before a lease ends."""

SILENT = "the store did not answer a renewal in time"


class Lease:
    """This node's row. Start it before the first turn, stop it after the last."""

    def __init__(
        self,
        store: Store,
        node: NodeId,
        *,
        monotonic: Callable[[], float],
        ambient: Ambient | None = None,
        ttl_s: float = limits.lease_ttl_s,
        renew_s: float = limits.lease_renew_s,
    ) -> None:
        self._store = store
        self.node = node
        self._monotonic = monotonic
        self._ambient = ambient or Ambient()
        self.ttl_s = ttl_s
        self._renew_s = renew_s
        self._live_until = float("-inf")
        self._refused: tuple[float, StoreUnavailable] | None = None
        """Since when the store takes no renewal, and what it said last."""

    @property
    def is_live(self) -> bool:
        """Whether we may believe that others take us for alive. Errs on the safe side."""
        return self._monotonic() < self._live_until

    async def renew(self) -> None:
        """Renew once, and set the clock by the store's. The TTL counts from before the store was asked: it may have
        been slow."""
        asked, asked_ms = self._monotonic(), self._ambient.own_ms()
        try:
            row = await self._store.renew(self.node, ttl_ms=round(self.ttl_s * 1000))
        except StoreUnavailable as error:
            self._note_refused(error)
            raise
        self._refused = None
        self._live_until = max(self._live_until, asked + self.ttl_s)
        self._ambient.follow(
            row.expires_ms - row.ttl_ms, asked_ms=asked_ms, told_ms=self._ambient.own_ms()
        )

    async def beat(self) -> None:
        """Renew, and wait until the next renewal is due: a round for the supervisor."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self.renew()
        except TimeoutError as error:
            self._note_refused(StoreUnavailable(SILENT))
            raise StoreUnavailable(SILENT) from error
        await asyncio.sleep(self._renew_s)

    def _note_refused(self, error: StoreUnavailable) -> None:
        since, _ = self._refused or (self._monotonic(), error)
        self._refused = since, told_again(error)

    async def wait_for_others(self, at_most_s: float = limits.busy_poll_s) -> None:
        """Wait a moment for what another node is about to write.

        Raises StoreUnavailable, as the store said it, once it has taken no renewal of ours for `store_retry_s`.
        """
        if self._refused is not None:
            since, error = self._refused
            if self._monotonic() - since >= limits.store_retry_s:
                raise told_again(error)
        await asyncio.sleep(at_most_s)

    @property
    def backoff(self) -> Backoff:
        """A renewal that fails is tried again soon, however often it has failed."""
        pause_s = self._renew_s * RETRY_SHARE
        return Backoff(first_s=pause_s, most_s=pause_s)

    @property
    def _patience_s(self) -> float | None:
        """How long one renewal may take. A connection may fall silent, and nobody is told: as long as the lease
        lasts, it is left while there is time for another one. Once it has ended, nothing is won by that."""
        return self.ttl_s * PATIENCE_SHARE if self.is_live else None

    async def resign(self) -> None:
        """Say that this node is gone."""
        self._live_until = float("-inf")
        await self._store.resign(self.node)
