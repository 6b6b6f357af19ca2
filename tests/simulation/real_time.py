"""The same stories on a real PostgreSQL, in real time: the same plans, clients, faults and rules.

    python -m tests.simulation --store postgres --seeds 200

Nodes are places of one process, as in a simulation, and the weather is made between them and their stores; but each
has a store of its own, with connections of its own, and what happens in between takes as long as it does. So a seed
says what a run is about, and not what happens in it: a run that was broken may hold the next time.
"""

from __future__ import annotations

import asyncio
import os
import time
from asyncio.events import Handle
from collections import deque
from contextlib import suppress
from random import Random
from selectors import BaseSelector, SelectorKey
from typing import Literal

from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.store import Store
from tests.postgres import shared_database
from tests.simulation.history import Recording
from tests.simulation.loop import Place, Places, Stuck, here, run
from tests.simulation.simulation import Trace, act_out, overheard, plan_of, replaced
from tests.simulation.world import EPOCH_MS

RUN_S_MAX = 1_800.0
"""A run that takes longer has no end."""

NODE_CONNECTIONS = 4

CLOSE_S = 5.0
"""How long the stores of a run have to be closed."""


class RealPlace(Place):
    """A place that goes on by itself with what was left, when it may."""

    def __init__(self, name: str, loop: RealLoop) -> None:
        self._loop = loop
        self.unread: list[tuple[SelectorKey, int]] = []
        """Sockets that something has arrived at while this place could do nothing, each with its inode."""
        super().__init__(name)

    @property
    def state(self) -> Literal["up", "paused", "dead"]:
        return self._state

    @state.setter
    def state(self, state: Literal["up", "paused", "dead"]) -> None:
        self._state = state
        if state == "up":
            self._loop.go_on_with(self.ready)
            self._loop.look_again_at(self.unread)


class RealLoop(Places, asyncio.SelectorEventLoop):
    """An event loop with places. Its time is the world's, counted as a simulation counts it: from the same epoch."""

    _selector: BaseSelector  # asyncio's own, which typeshed does not tell

    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = time.time() - EPOCH_MS / 1000 - super().time()
        self._ready = _Ready(self)

    def new_place(self, name: str) -> Place:
        place = RealPlace(name, self)
        self._places.append(place)
        return place

    def time(self) -> float:
        return super().time() + self._ahead_s

    def go_on_with(self, left: deque[Handle]) -> None:
        """What a place could not do is first of all that is to be done, in its order."""
        self._ready.extendleft(reversed(left))
        left.clear()

    def _process_events(self, event_list: list[tuple[SelectorKey, int]]) -> None:
        """What has arrived for a place that may do nothing is not looked at until it may. Otherwise the selector would
        tell of it again and again."""
        heard = []
        for key, mask in event_list:
            (handle, *_) = (each for each in key.data if each is not None)
            place = handle._context.get(here)
            if not isinstance(place, RealPlace) or place.state == "up":
                heard.append((key, mask))
            else:
                self._selector.unregister(key.fileobj)
                place.unread.append((key, os.fstat(key.fd).st_ino))
        super()._process_events(heard)  # type: ignore[misc]

    def look_again_at(self, unread: list[tuple[SelectorKey, int]]) -> None:
        """Look at these sockets from now on, as far as nobody has closed them meanwhile."""
        for key, inode in unread:
            with suppress(OSError, KeyError):  # closed, or looked at already
                if os.fstat(key.fd).st_ino == inode:
                    self._selector.register(key.fileobj, key.events, key.data)
        unread.clear()


class _Ready(deque[Handle]):
    """What is to be done next. What a place may not do is put aside there."""

    def __init__(self, loop: RealLoop) -> None:
        super().__init__()
        self._nothing = Handle(lambda: None, (), loop)
        self._nothing.cancel()

    def popleft(self) -> Handle:
        handle = super().popleft()
        place = handle._context.get(here)  # type: ignore[attr-defined]
        if place is None or place.state == "up":
            return handle
        place.ready.append(handle)
        return self._nothing


def perform(seed: int, *, trace: Trace | None = None) -> Recording:
    """A run of what this seed is about, on a database of its own."""
    url = shared_database()
    rng, loop = Random(f"holdfast/{seed}"), RealLoop()
    opened: list[PostgresStore] = []

    async def connect(*options: str) -> Store:
        address = parse_address("&".join((f"{url}?pool_size={NODE_CONNECTIONS}", *options)))
        opened.append(await PostgresStore.open(address))
        return opened[-1]

    async def main() -> Recording:
        # What a client or the checker looks up for itself is no part of the story, and has time on a busy machine.
        store = await connect(f"timeout={RUN_S_MAX:g}")
        plan = plan_of(seed, rng)
        try:
            async with asyncio.timeout(RUN_S_MAX):
                return await act_out(
                    loop, store, rng, plan, instant=False, trace=trace, connect=connect
                )
        except TimeoutError as error:
            raise Stuck(f"no end after {RUN_S_MAX:.0f} s") from error
        finally:
            # Some wait for what a killed node had under way: that is buried with it.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.gather(*(each.close() for each in opened[1:]))

    with overheard() as errors:
        recording = run(loop, main())
    return replaced(recording, leftovers=(*recording.leftovers, *errors))
