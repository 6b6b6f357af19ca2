"""The lease of a node: its right to hold sessions, one row that is renewed for as long as its process lives.

One statement renews it, however many turns there are. A server renews it in a thread with its own event loop, so
that a busy or blocked main loop does not look like a dead process; a simulation, or a store that lives on one
loop, renews it in a task.

1. A node that could not renew for a TTL counts as dead, to itself too: it starts no tool and begins no turn
   until it has renewed. If other nodes have taken over its turns, the fence refuses its writes.
2. Renewing again after a gap starts a new record: a node declares others dead only after its own record is one TTL
   long.
3. Every node renews all the time: if the store accepts no renewal for `store_retry_s`, its disk is full or it is
   unavailable, and this node stops waiting for writes of other nodes.
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
"""The share of the TTL that one renewal may take: there is time for another before the lease ends."""

RETRY_SHARE = 1 / 5
"""The share of `renew_s` to wait after a failed renewal: several can fail before the lease ends."""

SILENT = "the store did not answer a renewal in time"


class Lease:
    """This node's lease. It is renewed before the first turn begins, and resigned after the last."""

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
        """Since when the store has accepted no renewal, and its last error."""

    @property
    def is_live(self) -> bool:
        """Whether other nodes surely take this node for alive. False if in doubt."""
        return self._monotonic() < self._live_until

    async def renew(self) -> None:
        """Renew once, and set the clock by the store's. The TTL counts from before the call, since the store may be
        slow."""
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
        """Wait a moment for another node's write.

        Raises the store's last StoreUnavailable once it has accepted no renewal of this node for `store_retry_s`.
        """
        if self._refused is not None:
            since, error = self._refused
            if self._monotonic() - since >= limits.store_retry_s:
                raise told_again(error)
        await asyncio.sleep(at_most_s)

    @property
    def backoff(self) -> Backoff:
        """The pause after a failed renewal: always short, however often it has failed."""
        pause_s = self._renew_s * RETRY_SHARE
        return Backoff(first_s=pause_s, most_s=pause_s)

    @property
    def _patience_s(self) -> float | None:
        """How long one renewal may take. A connection may fall silent without an error: while the lease lasts, the
        renewal is given up in time for another one. Once the lease has ended, giving up gains nothing."""
        return self.ttl_s * PATIENCE_SHARE if self.is_live else None

    async def resign(self) -> None:
        """Give up the lease: other nodes may take over this node's turns at once."""
        self._live_until = float("-inf")
        await self._store.resign(self.node)
