"""What a caller asks of a session, and what it may be told. Values only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import EndedBy, Items, Opaque, TurnLimits
from holdfast.core.policy import Policy
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.core.turns.unfinished_turns import Spent
from holdfast.ids import CallId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.limits import lane_wait_s, turn_deadline_s
from holdfast.store.outcomes import Attempt
from holdfast.store.rows import TurnRow

OnBusy: TypeAlias = Literal["wait", "reject", "interrupt", "steer"]

NO_ATTEMPT = Attempt(request_hash=b"")


class Continuation(Value):
    """The unfinished turn that a request goes on with."""

    version: Version
    """The one that the turn made; it has to be the head."""
    links: int = 0
    """How many retries in a row, this one included, have continued it; 0 if a person asks for it."""
    spent: Spent = Spent()
    """What the turns before it have used of its limits."""
    is_own: bool = False
    """Whether the request is the one that the turn began with, and not a message that the turn heard later."""
    instead: Ask | None = None
    """The request itself, if it is a retry: that is what it is once there is nothing left to continue."""


class Ask(Value):
    """A request that wants to become a turn of a session."""

    tenant: Tenant
    name: SessionKey | SessionId | None
    """A key (made if it is new), an id (must exist), or None for a line that nobody names."""
    messages: tuple[Incoming, ...] = ()
    approvals: tuple[tuple[CallId, bool], ...] = ()
    agent: str = ""
    source_key: str = ""
    source_digest: str = ""
    instructions: tuple[str, ...] = ()
    parameters: Parameters = Parameters()
    client_tools: tuple[ToolDefinition, ...] = ()
    limits: TurnLimits = TurnLimits()
    policies: tuple[Policy, ...] = ()
    """Layers, the furthest from the request first; the agent's comes after them."""
    policy: Policy = Policy()
    """The request's own, which comes last."""
    met: Callable[[AgentChoice], None] | None = None
    """Told who will play, before anything begins. May raise: then nothing does."""
    on_busy: OnBusy = "wait"
    wait_s: float = lane_wait_s
    if_match: Version | None = None
    create: bool = True
    attempt: Attempt = NO_ATTEMPT
    background: bool = False
    """Its client does not wait for it: it goes on by itself, and is taken up again after a crash."""
    queues: bool = False
    """In the background it may also wait in the store: for a server that has room, and for its session."""
    deadline_s: float = turn_deadline_s
    expire_after_s: float | None = None
    system_is_stored: bool = False
    verbatim: bool = False
    """The messages are items to be added as they are: none is taken for history, any will do, and no agent
    need be there to answer them."""
    hears: bool = True
    """Whether its player listens to what is said to the turn while it runs; a `verbatim` one has nobody who would."""
    continues: Continuation | None = None
    """It goes on with an unfinished turn, and brings nothing of its own."""
    note: Opaque | None = None
    """What somebody wants to know about this request later: kept on the last item of its input."""

    @property
    def replayable(self) -> bool:
        """Whether the client has said how it will come back."""
        return self.attempt.key is not None or self.background


class AgentChoice(Value):
    """Which agent plays the turn, from which source."""

    agent: str
    source_key: str
    source_digest: str = ""
    policy: Policy = Policy()
    limits: TurnLimits = TurnLimits()
    knows: frozenset[str] | None = None
    """The parameters that its model honours; None: nobody can tell."""


Choose: TypeAlias = Callable[[Ask, Snapshot], AgentChoice]
"""Decides who continues a session. May raise: then nothing begins."""


def as_asked(ask: Ask, snapshot: Snapshot) -> AgentChoice:
    """The choice of callers who have only one agent: the session's own, else the one they named."""
    return AgentChoice(
        agent=snapshot.agent or ask.agent,
        source_key=snapshot.source_key or ask.source_key,
        source_digest=ask.source_digest,
    )


class Ending(Value):
    """What became of a turn. Success is `completed` and kept, and nothing else."""

    turn_id: TurnId
    session_id: SessionId
    kept: bool
    by: EndedBy
    detail: str = ""
    version: Version | None = None
    """The version that it made, if it was kept."""

    @property
    def ok(self) -> bool:
        return self.kept and self.by == "completed"


def ending_of(row: TurnRow) -> Ending | None:
    """What a turn's row says became of it; None while it is open."""
    if row.ended_by is None:
        return None
    return Ending(
        turn_id=row.turn_id,
        session_id=row.session_id,
        kept=row.state == "committed",
        by=row.ended_by,
        detail=row.detail,
        version=row.seq,
    )


def base_of(row: TurnRow) -> Version | None:
    """The version that a turn began from; None if it has not."""
    return None if row.state == "queued" else row.base_head


class Admission(Value):
    """How a request was admitted: what its answer can say before anything has been said."""

    turn_id: TurnId
    session_id: SessionId
    base: Version | None
    """None as long as it waits for its session: it will begin from what the session is then."""
    created: bool = False
    """The session is new with this turn."""
    how: Literal["began", "queued", "joined", "replayed", "steered"] = "began"
    diverged: bool = False
    input: Items = ()
    continues: TurnId | None = None
    """The unfinished turn that it goes on with."""
    is_own: bool = True
    """Whether the turn is known again by this request. Only then does the client's receipt of the answer count: other
    clients that read the same answer say nothing about whether this one has it."""
    request_hash: bytes = b""
    """What a request is known by that was said to the turn of another one."""
