"""The interface between `loop`, which plays turns, and `sessions`, which owns them. Neither imports the other.

The composition root hands a `Play` to the sessions, which call it with an `OpenTurn` for every turn that
begins or is resumed. So sessions work without our agents, and agents can be tested without a store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from holdfast.core.grants import Grant
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Blob, UserMessage
from holdfast.core.turns.events import Event
from holdfast.core.turns.turn import Turn
from holdfast.ids import Minter, Tenant


class OpenTurn(Protocol):
    """A turn that this node owns, while it is being played.

    The player returns once `wanted` gives `Finish` or `Close`; it does not end the turn itself. It may be
    cancelled at any await: the events that it has recorded by then stand.
    """

    @property
    def tenant(self) -> Tenant:
        """The tenant of the session."""
        ...

    @property
    def mint(self) -> Minter:
        """Makes the ids of the items that this turn adds."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The session as it stood when the turn began."""
        ...

    @property
    def turn(self) -> Turn:
        """The turn after everything recorded so far."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """How long the turn has left, or None if it has no deadline."""
        ...

    async def record(self, *events: Event) -> None:
        """Record events; afterwards `turn` is the turn after them.

        A tool's start is durable when this returns; so are all events before it. Other events become
        durable soon, and at the latest with the commit.
        Raises IllegalEvent, and records nothing, if the turn cannot accept one of them.
        Raises Superseded if another node owns the turn now: the player stops at once and changes nothing more.
        """
        ...

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        """Store bytes that are too large for an item; they are durable before the item that names them."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """The bytes of a blob that this session's items name; None if they are not there."""
        ...

    async def memories(self, agent: str) -> Mapping[str, str]:
        """An agent's committed memories across sessions, by id; oldest first."""
        ...

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        """The grants that an agent of this turn's source has now, for every session and for this one."""
        ...

    async def take_steering(self) -> tuple[UserMessage, ...]:
        """The messages that were steered into the turn since the last call; they are recorded as `Steered`.

        The player calls this between two steps, while the root branch is idle; at any other time it returns none.
        """
        ...


Play: TypeAlias = Callable[[OpenTurn], Awaitable[None]]
"""Plays an open turn until only its end is left to do."""
