"""Where playing a turn and owning it meet. `loop` uses what is here, `sessions` provides it.

Neither imports the other. The composition root hands a `Play` to the sessions, which call it with an
`OpenTurn` for every turn that begins or is resumed. So sessions work without our agents, and agents can be
tested without a store.
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

    Playing ends by returning, once `wanted` asks for `Finish` or `Close`; ending the turn is not the
    player's business. It may be cancelled at any await: what it has recorded by then stands.
    """

    @property
    def tenant(self) -> Tenant:
        """Whose turn it is."""
        ...

    @property
    def mint(self) -> Minter:
        """Makes the ids of what this turn adds."""
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
        """Record that something happened; `turn` is the turn after it.

        A tool's start is durable when this returns; so is everything before it. Other events become
        durable soon, and at the latest with the commit.
        Raises IllegalEvent, and records nothing, if the turn cannot accept one of them.
        Raises Superseded if another node owns the turn now; stop at once, touch nothing.
        """
        ...

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        """Keep bytes that are too large for an item; durable before the item that names them is."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """The bytes of a blob that this session's items name; None if they are not there."""
        ...

    async def memories(self, agent: str) -> Mapping[str, str]:
        """What an agent remembers across sessions, by id, as it was last committed; oldest first."""
        ...

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        """What people have allowed an agent of this turn's source, everywhere or in this session, as it stands now."""
        ...

    async def take_steering(self) -> tuple[UserMessage, ...]:
        """What people have said to the running turn since the last time; recorded as `Steered`.

        To be asked between two steps, when the root branch is idle; empty at any other time.
        """
        ...


Play: TypeAlias = Callable[[OpenTurn], Awaitable[None]]
"""Plays an open turn until nothing but its end is wanted."""
