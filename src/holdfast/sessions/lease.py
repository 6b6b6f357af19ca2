"""A node's right to hold sessions: one row, renewed for as long as its process lives.

One statement renews it, whatever the number of turns. It runs in a thread of its own with an event loop of
its own, so that a busy or blocked main loop does not look like a dead process; a simulation, or a store that
lives on one loop, runs the same heartbeat as a task.

1. A node that could not renew for a TTL counts as dead, to itself too: it starts no tool and begins no turn
   until it has renewed. If others have acted on it, whatever it still writes is refused by the fence.
2. Renewing again after a gap starts a new record: others judge nobody before it is one TTL long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeAlias

from holdfast import limits
from holdfast.errors import StoreError
from holdfast.ids import NodeId
from holdfast.sessions.ambient import Ambient
from holdfast.store.base import Store

PATIENCE_SHARE = 1 / 3
"""Of a lease, for one renewal: then there is time for another one before it ends."""

Beat: TypeAlias = Callable[[], Coroutine[None, None, None]]
"""One renewal after the other, until cancelled."""


class Heart(Protocol):
    """What keeps a lease renewed."""

    async def start(self, beat: Beat) -> None: ...

    async def stop(self) -> None: ...


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

    @property
    def is_live(self) -> bool:
        """Whether we may believe that others take us for alive. Errs on the safe side."""
        return self._monotonic() < self._live_until

    async def renew(self) -> None:
        """Renew once, and set the clock by the store's. The TTL counts from before the store was asked: it may have
        been slow."""
        asked, asked_ms = self._monotonic(), self._ambient.own_ms()
        row = await self._store.renew(self.node, ttl_ms=round(self.ttl_s * 1000))
        self._live_until = max(self._live_until, asked + self.ttl_s)
        self._ambient.follow(
            row.expires_ms - row.ttl_ms, asked_ms=asked_ms, told_ms=self._ambient.own_ms()
        )

    async def keep_renewing(self) -> None:
        """Renew for ever. A renewal that fails is tried again soon; the next one counts."""
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    await self.renew()
                pause_s = self._renew_s
            except (StoreError, TimeoutError):
                pause_s = self._renew_s / 5
            await asyncio.sleep(pause_s)

    @property
    def _patience_s(self) -> float | None:
        """How long one renewal may take. A connection may fall silent, and nobody is told: as long as the lease
        lasts, it is left while there is time for another one. Once it has ended, nothing is won by that."""
        return self.ttl_s * PATIENCE_SHARE if self.is_live else None

    async def resign(self) -> None:
        """Say that this node is gone."""
        self._live_until = float("-inf")
        await self._store.resign(self.node)


class HeartTask:
    """Beats as a task of the running loop: for simulations, and stores that live on one loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def start(self, beat: Beat) -> None:
        self._task = asyncio.create_task(beat(), name="holdfast-heart")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


class HeartThread:
    """Beats in a thread with a loop of its own, so that only a dead process stops it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None

    async def start(self, beat: Beat) -> None:
        begun = threading.Event()

        def run() -> None:
            asyncio.run(self._beat(beat, begun))

        self._thread = threading.Thread(target=run, name="holdfast-heart", daemon=True)
        self._thread.start()
        await asyncio.to_thread(begun.wait)

    async def _beat(self, beat: Beat, begun: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(beat())
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        begun.set()
        await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        if self._thread is not None and self._stop is not None:
            self._stop()
            await asyncio.to_thread(self._thread.join)
            self._thread = None
