"""Sweeps: reads over all sessions for orphans, queued turns and signals."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.codec import Value
from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store.outcomes import Orphan, WaitingTurn
from holdfast.store.rows import SignalRow
from holdfast.store.steps import Operation, Question, ask


class HeldTurn(Value):
    """An open turn and the node that holds it; `slot` is None if that node has no row."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    holder: NodeId | None
    slot: int | None
    is_late: bool | None
    """The node has not renewed itself in time."""


class QueuedTurn(Value):
    """A queued turn, and whether its session is free."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    is_free: bool


class TurnHolder(Value):
    """The node that holds an open turn; None if the turn was handed over."""

    node_id: NodeId | None


HELD = Question("held_turns", HeldTurn)
QUEUED = Question("queued_turns", QueuedTurn)
SIGNALS = Question("node_signals", SignalRow)
HOLDERS = Question("turn_holders", TurnHolder)


def orphans(
    node: NodeId, *, limit: int, is_held: Callable[[int], bool]
) -> Operation[tuple[Orphan, ...]]:
    """Open turns without a live holder, oldest first; `is_held` tells whether the process of a slot is alive."""
    found = yield from ask(HELD, node=node)
    return tuple(
        Orphan(
            tenant=each.tenant,
            session_id=each.session_id,
            turn_id=each.turn_id,
            holder=each.holder,
        )
        for each in found
        if each.holder in (None, node)
        or each.slot is None
        or each.is_late
        or not is_held(each.slot)
    )[:limit]


def queued(*, limit: int) -> Operation[tuple[WaitingTurn, ...]]:
    """Queued turns, in the order in which they came. A plain read; `open_queued` decides."""
    waiting: list[WaitingTurn] = []
    seen: set[tuple[Tenant, SessionId]] = set()
    for each in (yield from ask(QUEUED, limit=limit)):
        place = each.tenant, each.session_id
        waiting.append(
            WaitingTurn(
                tenant=each.tenant,
                session_id=each.session_id,
                turn_id=each.turn_id,
                ready=each.is_free and place not in seen,
            )
        )
        seen.add(place)
    return tuple(waiting)


def signals(node: NodeId) -> Operation[tuple[SignalRow, ...]]:
    """Every unread signal for a turn of this node, oldest first. One plain read."""
    return (yield from ask(SIGNALS, node=node))


def holders() -> Operation[tuple[NodeId | None, ...]]:
    """The holder of each open turn."""
    return tuple([each.node_id for each in (yield from ask(HOLDERS))])
