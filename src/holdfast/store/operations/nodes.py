"""Operations of nodes: their leases, the handing over and taking over of turns, and the sweeps that find such turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.codec import Value
from holdfast.errors import StoreDamaged
from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions, row_changes
from holdfast.store.operations.finders import signals_of
from holdfast.store.outcomes import Fence, Orphan, Taken, TakeoverOutcome, WaitingTurn
from holdfast.store.rows import NodeRow, SessionRow, SignalRow
from holdfast.store.sql.tables import NODES, SESSIONS, TURNS
from holdfast.store.steps import (
    AsRead,
    Delete,
    Finder,
    Operation,
    Question,
    Update,
    ask,
    become,
    change,
    find,
    get,
    insert,
    look,
    look_up,
    write,
)

EVERY_NODE = Finder(NODES, order=("node_id",))


def renew(node: NodeId, *, ttl_ms: int) -> Operation[NodeRow]:
    """Declare this process alive for another `ttl_ms`; the first call enrols it.

    If the row had expired meanwhile, `since_ms` starts anew: there was a gap.
    """
    facts = yield from look_up(NODES, node)
    known, now_ms = facts.row, facts.now_ms
    fresh = NodeRow(node_id=node, ttl_ms=ttl_ms, since_ms=now_ms, expires_ms=now_ms + ttl_ms)
    row = decisions.renewed(known, fresh)
    if known is None:
        yield from write(insert(NODES, row))
        return (yield from get(NODES, node)) or row  # a database may have given it a slot
    yield from write(
        become(NODES, row),
        as_read=(AsRead(NODES, known, ("expires_ms",)),),
    )
    return msgspec.structs.replace(row, slot=known.slot)


def resign(node: NodeId) -> Operation[NodeRow | None]:
    """Remove a node that ends, and return its last row."""
    row = yield from get(NODES, node)
    yield from write(Delete(NODES, (node,)))
    return row


def nodes() -> Operation[tuple[NodeRow, ...]]:
    """Every node that has enrolled and has not resigned, by id. For operators."""
    return find(EVERY_NODE)


# ── holding ──────────────────────────────────────────────────────────────────────────────────


def held(session: SessionRow, fence: Fence, node: NodeId, **more: object) -> Update:
    """The change after which only this fence may write the session; `more` columns may change with it."""
    return Update(
        SESSIONS, (session.tenant, session.id), {**row_changes.held_by(fence, node), **more}
    )


def release(fence: Fence) -> Operation[None]:
    """Hand an open turn over: any node may take it at once, and it does not count as a crash."""
    found = yield from get(SESSIONS, fence.tenant, fence.session_id)
    session = decisions.demand_fence(fence, found)
    yield from write(change(SESSIONS, session, lease_node=None), on=(session,))


def takeover(
    tenant: Tenant,
    session_id: SessionId,
    *,
    node: NodeId,
    nonce: str,
    turn_id: TurnId | None = None,
    ignored_cancel: bool = False,
) -> Operation[TakeoverOutcome]:
    """Take over the session's open turn for this node, if its holder is dead, has handed it over, or is this node.

    With `turn_id`, only that turn: another turn that was begun meanwhile is left alone.
    The token is bumped and the attempt counted before this returns. With `ignored_cancel` a live
    holder is overruled too, if a cancel has been waiting for `cancel_grace_s`.
    """
    found = yield from look(decisions.TakeoverLook, tenant=tenant, session_id=session_id, node=node)
    session, turn = found.session, found.turn
    told = (yield from signals_of(turn)) if turn and ignored_cancel else ()
    holder = decisions.judge_holder(session, found.holder, asking=node, now_ms=found.now_ms)
    outcome = decisions.judge_takeover(
        found, holder, nonce=nonce, turn_id=turn_id, cancel_since_ms=decisions.cancel_since(told)
    )
    if not isinstance(outcome, Taken):
        return outcome
    assert session is not None and turn is not None
    # A holder whose row had expired may have renewed it since.
    expired = found.holder if holder == "expired" else None
    yield from write(
        held(session, outcome.fence, node),
        change(TURNS, turn, lease_token=outcome.fence.token, attempt=outcome.turn.attempt),
        on=(session,),
        as_read=(AsRead(NODES, expired, ("expires_ms",)),) if expired else (),
    )
    return outcome


# ── sweeps ───────────────────────────────────────────────────────────────────────────────────


class HeldTurn(Value):
    """An open turn and the node that holds it; `slot` is None if that node has no row."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    holder: NodeId | None
    slot: int | None
    is_late: bool | None
    """The node has not renewed itself in time."""


class TurnHolder(Value):
    """The node that holds an open turn; None if the turn was handed over."""

    node_id: NodeId | None


class OpenTurnName(Value):
    """A turn that is open."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId


HELD = Question("held_turns", HeldTurn, by="{indexed session_held}", which="{true}")
HELD_BY_ONE = Question(
    "held_turns", HeldTurn, by="", which="s.tenant = :tenant and s.id = :session_id"
)
HELD_AMONG = Question(
    "held_turns",
    HeldTurn,
    by="{indexed session_held}",
    which="t.tenant {in tenants} and t.turn_id {in turns}",
)
STRAY_TURNS = Question("stray_turns", Orphan)
OPEN_TURNS = Question("open_turns", OpenTurnName)
QUEUED = Question("queued_turns", WaitingTurn)
SIGNALS = Question("node_signals", SignalRow)
HOLDERS = Question("turn_holders", TurnHolder)


def orphans(
    node: NodeId,
    *,
    limit: int,
    is_held: Callable[[int], bool],
    among: Sequence[tuple[Tenant, TurnId]] | None = None,
) -> Operation[tuple[Orphan, ...]]:
    """Open turns without a live holder, oldest first, and then stray ones; `is_held` tells whether the process of a
    slot is alive. With `among`, only what these turns are; none of them is stray."""
    strays: tuple[Orphan, ...] = ()
    try:
        if among is None:
            found = yield from ask(HELD, node=node)
            strays = yield from ask(STRAY_TURNS)
        else:
            tenants, turns = list({tenant for tenant, _ in among}), [turn for _, turn in among]
            found = yield from ask(HELD_AMONG, node=node, tenants=tenants, turns=turns)
    except StoreDamaged:
        found, strays = (yield from _held_one_by_one(node)), ()
        if among is not None:
            named = frozenset(among)
            found = tuple(each for each in found if (each.tenant, each.turn_id) in named)
    held = [
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
    ]
    return (*held, *strays)[:limit]


def _held_one_by_one(node: NodeId) -> Operation[tuple[HeldTurn, ...]]:
    """The open turns of the sessions that can be read: a damaged one does not keep the others from being recovered."""
    found: list[HeldTurn] = []
    for each in (yield from ask(OPEN_TURNS)):
        try:
            found += yield from ask(
                HELD_BY_ONE, node=node, tenant=each.tenant, session_id=each.session_id
            )
        except StoreDamaged:
            continue  # it is told to the client who asks for it, and named by `verify`
    return tuple(found)


def queued(*, limit: int) -> Operation[tuple[WaitingTurn, ...]]:
    """Queued turns, in the order in which they came. A plain read; `open_queued` decides."""
    waiting: list[WaitingTurn] = []
    seen: set[tuple[Tenant, SessionId]] = set()
    for each in (yield from ask(QUEUED, limit=limit)):
        place = each.tenant, each.session_id
        waiting.append(msgspec.structs.replace(each, ready=each.ready and place not in seen))
        seen.add(place)
    return tuple(waiting)


def signals(node: NodeId) -> Operation[tuple[SignalRow, ...]]:
    """Every unread signal for a turn of this node, oldest first. One plain read."""
    return ask(SIGNALS, node=node)


def holders() -> Operation[tuple[NodeId | None, ...]]:
    """The holder of each open turn."""
    return tuple([each.node_id for each in (yield from ask(HOLDERS))])
