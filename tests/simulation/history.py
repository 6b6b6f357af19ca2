"""What a simulation leaves for the checker: values only, so that a test can falsify them.

A `Send` is one attempt of a client to say something; retries of one request share its `op` and its text, and
no two requests share a text. An `Act` is anything else that a client did. An `Effect` is something that a tool
really did to the world. The rest is the store as it was found in the end.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import EndedBy, StoredItem
from holdfast.core.policy import Policy
from holdfast.core.turns.events import Event
from holdfast.ids import (
    CallId,
    IdempotencyKey,
    NodeId,
    SessionId,
    SessionKey,
    TurnId,
    Version,
)
from holdfast.store.outcomes import SessionDump
from holdfast.store.rows import TurnRow

Outcome: TypeAlias = Literal["ended", "refused", "unavailable", "left"]
"""`ended`: the client was told how the turn ended. `refused`: nothing has begun, and it never will.
`unavailable`: the connection or the store was lost. `left`: the client went away."""


class Shown(Value):
    """An event that a watcher was shown."""

    n: int
    event: Event


class Watched(Value):
    """What one watcher saw of a turn, from number `since` on; `whole` if it saw the end."""

    turn_id: TurnId
    since: int
    shown: tuple[Shown, ...]
    whole: bool


class Told(Value):
    """How a turn ended, as its client was told."""

    kept: bool
    by: EndedBy
    version: Version | None

    @property
    def ok(self) -> bool:
        return self.kept and self.by == "completed"


class Send(Value):
    """One attempt to say something to a session."""

    op: int
    attempt: int
    client: str
    name: SessionKey | SessionId
    text: str
    policy: Policy
    """Resolved: what is said about every end."""
    key: IdempotencyKey | None = None
    on_busy: str = "wait"
    if_match: Version | None = None
    deadline_s: float = 0.0
    counted: bool = False
    """It says which retry it is."""
    queues: bool = False
    """It may wait in the store."""
    probe: bool = False
    hasty: bool = False
    """It brings all that its client has said before, whatever became of that."""
    persistent: bool = False
    """Its client sends it until it is answered, and nothing else before."""
    node: str = ""
    place: int = 0
    """The how-manieth submission of the whole run it was; 0 if it never got so far."""
    invoked_s: float = 0.0
    came_s: float = 0.0
    """When it reached its node. Before, its client may have read the conversation."""
    done_s: float = 0.0
    outcome: Outcome = "left"
    error: str = ""
    turn_id: TurnId | None = None
    session_id: SessionId | None = None
    base: Version | None = None
    how: str = ""
    """How it was admitted: began, queued, joined, replayed or steered."""
    told: Told | None = None
    answer: str = ""
    """The text that the client was shown as the whole answer."""

    @property
    def acknowledged(self) -> bool:
        return self.told is not None and self.told.ok


class Act(Value):
    """Something else that a client did. `failed` may still have happened."""

    kind: Literal["cancel", "continue", "reset", "rewind", "fork", "delete", "annotate"]
    name: SessionKey | SessionId | None = None
    session_id: SessionId | None = None
    """The session that it made, or that it was done to."""
    turn_id: TurnId | None = None
    rev: int = 0
    told: Told | None = None
    invoked_s: float = 0.0
    done_s: float = 0.0
    failed: bool = False


class Effect(Value):
    """A tool has done something. `key` is the call's stable key."""

    key: CallId
    turn_id: TurnId
    kind: Literal["act", "idempotent", "read"]
    at_s: float
    node: str
    said: str = ""
    """The message that it was for, where that is known."""


class Played(Value):
    """A player was handed a turn."""

    turn_id: TurnId
    node: NodeId
    token: int
    base: Version
    base_rev: int
    at_s: float
    until_s: float = math.inf
    """When the player was done; its node lets the next request in then, while the store still hears of the end."""


class Takeover(Value):
    """A turn has changed hands; `stopped` if somebody had asked for its end by then."""

    turn_id: TurnId
    node: NodeId
    token: int
    at_s: float
    stopped: bool


class Queueing(Value):
    """A turn was queued, or opened after it had been: in the order in which the store did it."""

    turn_id: TurnId
    session_id: SessionId
    opened: bool
    ahead: bool = False
    """It was queued before those who waited already."""
    at_s: float = 0.0


class FoundTurn(Value):
    """A turn as the store has it in the end."""

    row: TurnRow
    items: tuple[StoredItem, ...] = ()
    """Of a committed turn."""
    journal: tuple[Shown, ...] = ()
    """As far as it was kept."""
    acted: bool = False
    """As its journal says; of a turn without one, as its items say."""


class FoundSession(Value):
    dump: SessionDump
    turns: tuple[FoundTurn, ...]
    """Its own, oldest first, in every state."""
    open_turn: TurnId | None = None


class Recording(Value):
    """One simulation, from outside."""

    sends: tuple[Send, ...]
    acts: tuple[Act, ...] = ()
    watched: tuple[Watched, ...] = ()
    effects: tuple[Effect, ...] = ()
    played: tuple[Played, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    queueings: tuple[Queueing, ...] = ()
    sessions: tuple[FoundSession, ...] = ()
    healed_s: float = 0.0
    """When the last fault was over."""
    patience_s: float = 0.0
    """How long after that a session may take to be usable."""
    shutdowns: int = 0
    crashes: int = 0
    """Crashes, pauses, outages and partitions: whatever can make a node look dead."""
    findings: tuple[str, ...] = ()
    """What `verify` says about the store."""
    leftovers: tuple[str, ...] = ()
    """What nodes still held, and tasks died of, after everything was over."""
