"""Lanes: the queues that let one turn at a time into a session, in this process.

A lane orders the requests of one process, first come, first served. It is for fairness, not for safety: the begin
transaction (T1) makes sure, over all processes, that a session has at most one open turn. So a request may hold a lane
and find its session busy on another node; it then waits at the head of the lane, and the others behind it.

1. A lane has at most one holder and at most `waiting_max` waiters.
2. Leaving wakes the first waiter, and no other.
3. Cancelling a waiter removes that waiter; if it had been woken already, the next one is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.ids import SessionId, TurnId, Version

# ── the decision ─────────────────────────────────────────────────────────────────────────────


class Admit(Value):
    """The lane is free."""


class Wait(Value):
    """The lane is held; `position` requests are ahead, its holder included."""

    position: int


class Refuse(Value):
    """Too many requests wait already."""

    waiting: int


AdmissionToLane: TypeAlias = Admit | Wait | Refuse


def admit(*, held: bool, waiting: int, waiting_max: int) -> AdmissionToLane:
    """Decide what happens to a request that wants this session now."""
    if not held:
        return Admit()
    if waiting < waiting_max:
        return Wait(position=waiting + 1)
    return Refuse(waiting=waiting)


# ── the lanes ────────────────────────────────────────────────────────────────────────────────


LaneName: TypeAlias = Hashable


Base: TypeAlias = tuple[SessionId, Version]
"""A session and its version at one moment."""


class LaneFull(Exception):
    """Too many requests wait in the lane already."""


class _Waiter:
    """A waiting request."""

    __slots__ = ("came_at", "turn")

    def __init__(self, came_at: Base | None) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.came_at = came_at


class Lane:
    """One session's queue."""

    def __init__(self, *, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._waiters: list[_Waiter] = []
        self.held = False
        self.came_at: Base | None = None
        """The session and version at which the holder arrived, if it has waited since and that is known."""
        self.base: Base | None = None
        """The session and version that the open turn began from."""
        self.turn: TurnId | None = None
        """The turn that holds the lane, once it has begun."""
        self.awaited: TurnId | None = None
        """The turn of another process that the holder waits for, before it can begin its own."""
        self.session: SessionId | None = None
        """The session of this lane, once a request in the lane has found it."""
        self.names: list[LaneName] = []

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def enter(self, *, first: bool = False) -> None:
        """Wait until the caller holds this lane. With `first`, it goes ahead of all waiters.

        Raises LaneFull at once if too many wait already.
        """
        match admit(held=self.held, waiting=self.waiting, waiting_max=self._waiting_max):
            case Admit():
                self.held = True
            case Refuse():
                raise LaneFull
            case Wait():
                await self._wait(first=first)

    async def _wait(self, *, first: bool) -> None:
        waiter = _Waiter(self.base)
        self._waiters.insert(0 if first else len(self._waiters), waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if not waiter.turn.cancelled():  # it had been woken already: wake the next one
                self.leave()
            raise

    def stand_on(self, base: Base) -> None:
        """Note the version that the open turn began from: requests that came to wait before it began arrived at it
        too."""
        self.base = base
        for waiter in self._waiters:
            waiter.came_at = waiter.came_at or base

    def leave(self) -> None:
        """Give the lane to the first waiter, or free it."""
        self.turn = self.awaited = self.base = self.came_at = None
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.turn.done():  # a cancelled waiter may not have run yet
                self.came_at = waiter.came_at
                waiter.turn.set_result(None)
                return  # still held, by the waiter now
        self.held = False

    @property
    def empty(self) -> bool:
        return not self.held and not self._waiters

    def __repr__(self) -> str:
        return f"<Lane {'held' if self.held else 'free'} waiting={self.waiting}>"


class Lanes:
    """The lanes of a node, by name. A lane exists while a request holds it or waits in it."""

    def __init__(self, *, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._lanes: dict[LaneName, Lane] = {}

    async def enter(self, name: LaneName, *, first: bool = False) -> Lane:
        """Wait for the lane of this name, and hold it. The caller has to `leave` it."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._made(name)
        try:
            await lane.enter(first=first)
        finally:
            self._drop_if_empty(lane)
        return lane

    def enter_free(self, name: LaneName) -> Lane | None:
        """Hold the lane of this name, if it is free; else None. The caller has to `leave` it."""
        if name in self._lanes:
            return None
        lane = self._made(name)
        lane.held = True
        return lane

    def _made(self, name: LaneName) -> Lane:
        lane = Lane(waiting_max=self._waiting_max)
        self.alias(name, lane)
        return lane

    def leave(self, lane: Lane) -> None:
        lane.leave()
        self._drop_if_empty(lane)

    def _drop_if_empty(self, lane: Lane) -> None:
        if lane.empty:
            for name in lane.names:
                del self._lanes[name]
            lane.names.clear()

    def holder(self, name: LaneName) -> TurnId | None:
        """The turn that holds the lane of this name, if one does."""
        lane = self._lanes.get(name)
        return lane.turn if lane else None

    def awaited(self, name: LaneName) -> TurnId | None:
        """The turn of another process that the holder of the lane of this name waits for, if any."""
        lane = self._lanes.get(name)
        return lane.awaited if lane else None

    def find(self, name: LaneName) -> Lane | None:
        """The lane of this name, if a request is in it."""
        return self._lanes.get(name)

    def session(self, name: LaneName) -> SessionId | None:
        """The session of the lane of this name, if a request in the lane has found it."""
        lane = self._lanes.get(name)
        return lane.session if lane else None

    def is_held(self, name: LaneName) -> bool:
        return name in self._lanes and self._lanes[name].held

    def alias(self, name: LaneName, lane: Lane) -> None:
        """Give this lane another name, unless a lane has that name: the session of a new key has an id now."""
        if name not in self._lanes:
            self._lanes[name] = lane
            lane.names.append(name)

    @property
    def waiting(self) -> int:
        """How many requests wait, in all lanes together."""
        return sum(lane.waiting for lane in set(self._lanes.values()))

    def __len__(self) -> int:
        return len(set(self._lanes.values()))

    def __bool__(self) -> bool:
        return bool(self._lanes)
