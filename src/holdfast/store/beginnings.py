"""How a request asks to become a turn, and what it may be told. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.events import TurnRequest
from holdfast.ids import IdempotencyKey, NodeId, SessionId, SessionKey, Tenant, TurnId, Version


class ByKey(Value):
    """The session that this key names; if there is none and `create`, a new one with id `fresh`.

    Whoever expects a certain session needs no `fresh` one: if the key means none any more, that one is gone.
    """

    key: SessionKey
    fresh: SessionId | None = None
    create: bool = True


class ById(Value):
    """The session with this id, which must exist."""

    session_id: SessionId


class Anonymous(Value):
    """A new session that nobody named."""

    fresh: SessionId


Target: TypeAlias = ByKey | ById | Anonymous


class Attempt(Value):
    """How a request can be recognised when it comes again."""

    request_hash: bytes
    """Over caller, method, route, conversation name, answer-shaping headers and body."""
    key: IdempotencyKey | None = None
    client_attempt: int = 0
    """The SDK's retry count; from 1 on the request may be one that we have seen."""


class Begin(Value):
    """A request that wants to become a turn."""

    tenant: Tenant
    node: NodeId
    nonce: str
    target: Target
    expected: SessionId | None
    """The session that the request was reconciled against; None if there was none yet."""
    request: TurnRequest
    """Becomes record 0. Its `base` is the version that it was reconciled against."""
    attempt: Attempt
    expire_after_ms: int | None = None
    """Sessions that were idle for longer answer `Gone`."""
    ahead: bool = False
    """Where it is queued: before those who wait already."""


class Fence(Value):
    """The right to write one turn, as long as nobody has taken it over."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    token: int
    nonce: str


class Started(Value):
    """The turn is open and ours; its request is durable."""

    fence: Fence
    created: bool
    """The session is new with this turn."""
    retry_of: TurnId | None = None
    """An earlier attempt under the same idempotency key failed; its finished steps may be used."""


class Joined(Value):
    """This request is running already, as this turn. Watch it."""

    turn_id: TurnId
    session_id: SessionId
    steer: int | None = None
    """It was said to this turn, of another request, under this number. Until the turn has heard it, nobody knows
    whether it will: one that ends first lets the key go, and the request begins a turn of its own."""


class Replay(Value):
    """This request has been answered, by this turn. Render its answer again."""

    turn_id: TurnId
    session_id: SessionId


class Unfinished(Value):
    """This request's turn was kept unfinished at this version, the head of this session, and may go on: begin its
    continuation. `retries_left` is at least 1."""

    session_id: SessionId
    version: Version
    retries_left: int


class Finished(Value):
    """There is nothing to continue: the turn that was to be continued is whole, or cannot be by a retry any more."""


class Mismatch(Value):
    """The idempotency key belongs to a different request."""

    turn_id: TurnId


class Busy(Value):
    """Another turn is open. If its holder is dead, take the session over first."""

    session_id: SessionId
    turn_id: TurnId
    holder_alive: bool


class Moved(Value):
    """The key means another session now, or it has another head or newer annotations: reconcile again."""

    session_id: SessionId
    head: Version


class Gone(Value):
    """It was here, and is deleted or expired."""

    session_id: SessionId
    why: Literal["deleted", "expired"]


class Missing(Value):
    """No such session for this tenant, and none was to be created."""


class NotLive(Value):
    """This node's own row has expired: renew it before beginning anything."""
