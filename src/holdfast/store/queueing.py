"""Turns that wait for their session: what a store is asked about them, and what it says.

A queued turn is there with its request and its idempotency key, and holds nothing: its session goes on as if it were
not. What it begins from is decided when it is opened. So its request is written twice: as it was asked for, and, in
the transaction that opens it, as it is on top of the head of that moment.
"""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.core.events import TurnRequest
from holdfast.ids import NodeId, SessionId, Tenant, TurnId


class Queued(Value):
    """The turn waits; its request is durable."""

    turn_id: TurnId
    session_id: SessionId


class Free(Value):
    """Nothing is in its way, and nothing was written: begin it."""


class Waiting(Value):
    """A queued turn, for the sweeper."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    ready: bool
    """It is the first of its session's, and the session is free."""


class Opening(Value):
    """A node that wants to play a queued turn."""

    tenant: Tenant
    session_id: SessionId
    node: NodeId
    nonce: str
    request: TurnRequest
    """The turn's, as it is on top of the version that its `base` says. Becomes record 0 in place of the old one."""


class NotNext(Value):
    """The turn does not wait any more, or another one of its session comes before it."""
