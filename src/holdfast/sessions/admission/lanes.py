"""The queue that lets one turn at a time into a session, in this process.

A lane orders the requests of one process, first come, first served. It is about fairness and patience, not
about safety: that at most one turn is open is decided by T1, over all processes. So a lane may be entered by
somebody whose session turns out to be busy elsewhere; it then waits at the head of the lane, and the others
behind it.

1. A lane has at most one holder and at most `waiting_max` waiters.
2. Leaving wakes the first waiter, and nobody else.
3. Cancelling a waiter removes that waiter; if it had been woken already, the next one is.
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
    """The lane is taken; this many are before you, its holder included."""

    position: int


class Refuse(Value):
    """Too many are waiting already."""

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
"""A session as it stood at one moment."""


class LaneFull(Exception):
    """Nobody else may wait here."""


class _Waiter:
    """A request in line."""

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
        """What the session was when its holder came, if the holder has waited since and that is known."""
        self.base: Base | None = None
        """What the session is while its open turn lasts."""
        self.turn: TurnId | None = None
        """The turn that holds it, once it has begun."""
        self.awaited: TurnId | None = None
        """The turn of another process that its holder waits for, as long as it has none of its own."""
        self.session: SessionId | None = None
        """The session whose turns go through here, once somebody in it has found out."""
        self.names: list[LaneName] = []

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def enter(self, *, first: bool = False) -> None:
        """Wait until this lane is ours. `first` goes before everybody who waits.

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
            if (
                not waiter.turn.cancelled()
            ):  # it was our turn already, and we are not going to take it
                self.leave()
            raise

    def stand_on(self, base: Base) -> None:
        """A turn is open on top of this version, and was when those came who have been waiting for it to begin."""
        self.base = base
        for waiter in self._waiters:
            waiter.came_at = waiter.came_at or base

    def leave(self) -> None:
        """Let the first waiter in, or leave the lane free."""
        self.turn = self.awaited = self.base = self.came_at = None
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.turn.done():  # else its waiter was cancelled, and has not noticed yet
                self.came_at = waiter.came_at
                waiter.turn.set_result(None)
                return  # still held: it has changed hands
        self.held = False

    @property
    def empty(self) -> bool:
        return not self.held and not self._waiters

    def __repr__(self) -> str:
        return f"<Lane {'held' if self.held else 'free'} waiting={self.waiting}>"


class Lanes:
    """The lanes that somebody is in. A lane that nobody is in does not exist."""

    def __init__(self, *, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._lanes: dict[LaneName, Lane] = {}

    async def enter(self, name: LaneName, *, first: bool = False) -> Lane:
        """Wait for the lane of this name. Whoever gets it back has to `leave` it."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._made(name)
        try:
            await lane.enter(first=first)
        finally:
            self._drop_if_empty(lane)
        return lane

    def enter_free(self, name: LaneName) -> Lane | None:
        """The lane of this name, if nobody is in it. Whoever gets it back has to `leave` it."""
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
        """The turn elsewhere that whoever holds the lane of this name waits for, if so."""
        lane = self._lanes.get(name)
        return lane.awaited if lane else None

    def find(self, name: LaneName) -> Lane | None:
        """The lane of this name, if a request is in it."""
        return self._lanes.get(name)

    def session(self, name: LaneName) -> SessionId | None:
        """The session whose turns go through the lane of this name, if somebody in it has found out."""
        lane = self._lanes.get(name)
        return lane.session if lane else None

    def is_held(self, name: LaneName) -> bool:
        return name in self._lanes and self._lanes[name].held

    def alias(self, name: LaneName, lane: Lane) -> None:
        """Make another name mean this lane too, unless it means one: a new session has an id now."""
        if name not in self._lanes:
            self._lanes[name] = lane
            lane.names.append(name)

    @property
    def waiting(self) -> int:
        """How many wait, in all lanes together."""
        return sum(lane.waiting for lane in set(self._lanes.values()))

    def __len__(self) -> int:
        return len(set(self._lanes.values()))

    def __bool__(self) -> bool:
        return bool(self._lanes)
