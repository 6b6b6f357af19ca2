"""The request for a turn (`Ask`), and the values that answer it: `Admission`, `Ending`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.exchanges import Followed
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import EndedBy, Items, Opaque, TurnLimits
from holdfast.core.policy import Policy
from holdfast.core.turns.events import GivenParameter, Parameters, ToolDefinition
from holdfast.core.turns.unfinished_turns import Spent
from holdfast.ids import CallId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.limits import lane_wait_s, turn_deadline_s
from holdfast.store.outcomes import Attempt, Target
from holdfast.store.rows import TurnRow

OnBusy: TypeAlias = Literal["wait", "reject", "interrupt", "steer"]

NO_ATTEMPT = Attempt(request_hash=b"")


class Continuation(Value):
    """The unfinished turn that a request continues."""

    version: Version
    """The version that the turn made; it must be the head."""
    links: int = 0
    """How many retries in a row, this one included, have continued the turn; 0 if a person continues it."""
    spent: Spent = Spent()
    """How much of its limits the turns before it have used."""
    is_own: bool = False
    """Whether the request is the one that began the turn, and not one that was steered into it."""
    instead: Ask | None = None
    """The retry as it was sent: it begins a turn of its own if there is nothing left to continue."""


class ClientHistory(Value):
    """A request follows the history that its client owns: it brings the whole branch."""

    parent: str = ""
    """The client's id of the answer that the request replies to."""
    answer_id: str = ""
    """The client's id for the answer to come."""
    streamed: bool = False


class Line(Value):
    """The line of a family in which a request goes on, found by its content."""

    target: Target
    expected: SessionId | None
    snapshot: Snapshot
    """The line at the version that the request goes on from."""
    known: int
    """How many of the request's messages the line holds."""
    followed: Followed
    continues_answer: bool = False
    """The request ends with an answer, which is to go on."""
    diverged: bool = False
    """Another client has appended to the line that the request goes on from."""


class Ask(Value):
    """A request for a turn of a session."""

    tenant: Tenant
    name: SessionKey | SessionId | None
    """A session key (a new one makes a session), a session id (must exist), or None for an anonymous line."""
    messages: tuple[Incoming, ...] = ()
    approvals: tuple[tuple[CallId, bool], ...] = ()
    agent: str = ""
    source_key: str = ""
    source_name: str = ""
    source_digest: str = ""
    instructions: tuple[str, ...] = ()
    parameters: Parameters = Parameters()
    given: tuple[GivenParameter, ...] = ()
    """The parameters that the client sent, some of which the agent may ignore."""
    client_tools: tuple[ToolDefinition, ...] = ()
    reads_only: bool = False
    """The request narrows its agents' own tools to those that change nothing."""
    limits: TurnLimits = TurnLimits()
    policies: tuple[Policy, ...] = ()
    """Layers, the furthest from the request first; the agent's comes after them."""
    policy: Policy = Policy()
    """The request's own, which comes last."""
    on_busy: OnBusy = "wait"
    wait_s: float = lane_wait_s
    if_match: Version | None = None
    create: bool = True
    attempt: Attempt = NO_ATTEMPT
    background: bool = False
    """Its client does not wait for the answer: the turn goes on without a client, and is resumed after a crash."""
    queues: bool = False
    """A background turn may also be queued in the store, until a node has room and its session is free."""
    deadline_s: float = turn_deadline_s
    expire_after_s: float | None = None
    system_is_stored: bool = False
    verbatim: bool = False
    """The messages are stored as they are: none is compared with the history, an assistant's alone is enough, and no
    agent answers them."""
    needs_question: bool = True
    """The messages must bring a question or results. A stateless request needs any message that says something."""
    hears: bool = True
    """Whether its player takes messages that are steered into the turn; that of a `verbatim` turn never does."""
    continues: Continuation | None = None
    """The request continues an unfinished turn, and brings no message of its own."""
    note: Opaque | None = None
    """An extra that is kept on the last item of the input, for the caller to read later."""
    chat_key: str | None = None
    """The request comes from a chat in which a person may decide about calls that wait for an approval: the id of its
    API key, empty where none is needed."""
    history: ClientHistory | None = None
    """The client owns the history, and its name stands for a family of lines."""
    line: Line | None = None
    """The line that such a request goes on in, once it is found."""

    @property
    def replayable(self) -> bool:
        """Whether the client can come back for the answer: by its idempotency key, or to its background turn."""
        return self.attempt.key is not None or self.background

    @property
    def may_queue(self) -> bool:
        """Whether it may wait in the store for a session that is busy.

        Not a request that names a version or continues a turn, since the session would have moved on by then; and not
        one with `reject`, which asks for a 409, or `steer`.
        """
        waits = self.on_busy not in ("reject", "steer") and self.continues is None
        return self.queues and self.name is not None and self.if_match is None and waits


class AgentChoice(Value):
    """Which agent plays the turn, from which source."""

    agent: str
    source_key: str
    source_name: str = ""
    source_digest: str = ""
    policy: Policy = Policy()
    limits: TurnLimits = TurnLimits()
    ignored: tuple[str, ...] = ()
    """The request's parameters that its model ignores, as the client names them."""


Choose: TypeAlias = Callable[[Ask, Snapshot], AgentChoice]
"""Decides which agent plays the turn. If it raises, no turn begins."""


def as_asked(ask: Ask, snapshot: Snapshot) -> AgentChoice:
    """The choice of callers that have only one agent: the session's own, else the agent that the request names."""
    return AgentChoice(
        agent=snapshot.agent or ask.agent,
        source_key=snapshot.source_key or ask.source_key,
        source_name=snapshot.source_name if snapshot.source_key else ask.source_name,
        source_digest=ask.source_digest,
    )


class Ending(Value):
    """How a turn ended. Only `completed` and kept is success."""

    turn_id: TurnId
    session_id: SessionId
    kept: bool
    by: EndedBy
    detail: str = ""
    version: Version | None = None
    """The version that the turn made, if it was kept."""

    @property
    def ok(self) -> bool:
        return self.kept and self.by == "completed"


def ending_of(row: TurnRow) -> Ending | None:
    """The ending that a turn's row holds; None while the turn is queued or open."""
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
    """The version that a turn began from; None if it is still queued."""
    return None if row.state == "queued" else row.base_head


class Admission(Value):
    """How a request was admitted: the facts of its answer that are known before the agent has spoken."""

    turn_id: TurnId
    session_id: SessionId
    base: Version | None
    """None while the turn is queued: it will begin from the session's head of that time."""
    created: bool = False
    """This turn has made the session."""
    how: Literal["began", "queued", "joined", "replayed", "steered"] = "began"
    diverged: bool = False
    input: Items = ()
    continues: TurnId | None = None
    """The unfinished turn that it continues."""
    is_own: bool = True
    """Whether a retry of this request finds the turn by the request's hash. Only then does it count that this client
    has received the answer: the receipts of other clients say nothing about the client that began the turn."""
    request_hash: bytes = b""
    """The hash of a request that was steered into another request's turn."""
    ignored: tuple[str, ...] | None = None
    """The request's parameters that the turn's agent ignores; None if the request has begun no turn."""
