"""What happens to a turn, as work on the database: append, end, takeover, signals. T1 and T2 have files of their own.

Each reads what it has to know, asks `store/decisions.py`, and writes what was decided by one statement, on
condition that the session's stamp is still the one that was read. See `engine.py` for why that is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import EndedBy
from holdfast.errors import SessionMissing
from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import (
    Attempt,
    Fence,
    Orphan,
    Settlement,
    Signalled,
    SignalOutcome,
    Taken,
    TakeoverOutcome,
)
from holdfast.store.postgres import tables
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.recall import Recall
from holdfast.store.postgres.tables import Bound, utf8
from holdfast.store.rows import IdempotencyRow, NodeRow, SessionRow, SignalKind, SignalRow, TurnRow

# ── append ───────────────────────────────────────────────────────────────────────────────────


async def append(
    db: Db, fence: Fence, recall: Recall, *, n: int, records: bytes, consumed: Sequence[int] = ()
) -> None:
    """A single append, looked at closely. Those of many turns at once are in `appends.py`."""
    own = _own(fence)
    found = await db.row("append_facts", n=n, **own)
    if found is None:
        decisions.demand_fence(fence, None)
        return
    facts = tables.Reader(found)
    session, stamp = facts.one(tables.sessions), facts.number()
    decisions.demand_fence(fence, session)
    last_n = facts.number()
    is_new = decisions.judge_append(n, records, last_n=last_n, same_n=facts.value())
    if is_new or consumed:
        await db.write_as_read(
            "append_one",
            stamp=stamp,
            n=n,
            token=fence.token,
            records=records,
            is_new=is_new,
            consumed=list(consumed),
            **own,
        )
        recall.moved(fence, stamp=stamp + 1, n=n if is_new else last_n)


def _own(fence: Fence) -> dict[str, Bound]:
    return {"tenant": fence.tenant, "session_id": fence.session_id, "turn_id": fence.turn_id}


# ── end ───────────────────────────────────────────────────────────────────────────


class Ending(Value):
    """What has to be known to end a turn, or to commit it."""

    now_ms: int
    session: SessionRow | None
    stamp: int
    turn: TurnRow | None
    last_n: int
    signals: tuple[SignalRow, ...]
    """Those that wait."""


async def ending(db: Db, fence: Fence) -> Ending:
    facts = await db.facts("commit_facts", **_own(fence))
    now_ms, session, stamp = facts.number(), facts.one(tables.sessions), facts.number()
    turn, last_n, is_spoken_to = facts.one(tables.turns), facts.value(), facts.value()
    # Read later than the session's stamp: whoever speaks moves it.
    signals = await waiting_signals(db, fence.tenant, fence.turn_id) if is_spoken_to else ()
    return Ending(
        now_ms=now_ms, session=session, stamp=stamp, turn=turn, last_n=last_n, signals=signals
    )


CLAIM_KEEP_MS = int(limits.idempotency_keep_s * 1000)
"""How long an idempotency key is kept after its turn has ended."""


async def end(
    db: Db,
    fence: Fence,
    *,
    ended_by: EndedBy,
    detail: str,
    n: int,
    records: bytes,
    settlement: Settlement,
) -> TurnRow:
    found = await ending(db, fence)
    ended = decisions.judge_end(fence, session=found.session, turn=found.turn)
    if ended is not None:
        return ended
    assert found.turn is not None, "judge_end lets only held turns through"
    same_n = await db.row("journal_row", n=n, tenant=fence.tenant, turn_id=fence.turn_id)
    is_new = decisions.judge_append(
        n, records, last_n=found.last_n, same_n=same_n[0] if same_n else None
    )
    await db.write_as_read(
        "discard_turn",
        stamp=found.stamp,
        token=fence.token,
        ended_by=ended_by,
        detail=utf8(detail),
        ended_ms=found.now_ms,
        n=n,
        records=records,
        is_new=is_new,
        settlement=settlement,
        expires_ms=found.now_ms + CLAIM_KEEP_MS,
        continues=found.turn.continues,
        **_own(fence),
    )
    return msgspec.structs.replace(
        found.turn, state="discarded", ended_by=ended_by, detail=detail, ended_ms=found.now_ms
    )


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


async def release(db: Db, fence: Fence) -> None:
    found = await session_facts(db, fence.tenant, fence.session_id)
    session = decisions.demand_fence(fence, found.session if found else None)
    assert found is not None
    await db.write_as_read(
        "hand_over", tenant=session.tenant, session_id=session.id, stamp=found.stamp
    )


async def takeover(
    db: Db,
    tenant: Tenant,
    session_id: SessionId,
    *,
    node: NodeId,
    nonce: str,
    turn_id: TurnId | None,
    ignored_cancel: bool,
) -> TakeoverOutcome:
    read = await db.facts("takeover_facts", tenant=tenant, session_id=session_id, node=node)
    now_ms, own_node = read.number(), read.one(tables.nodes)
    session, stamp, holder = read.one(tables.sessions), read.number(), read.one(tables.nodes)
    turn = read.one(tables.turns)
    asked = await waiting_signals(db, tenant, turn.turn_id) if turn and ignored_cancel else ()
    facts = decisions.TakeoverFacts(
        now_ms=now_ms,
        node=own_node,
        session=session,
        turn=turn,
        holder=judged(session, holder, asking=node, now_ms=now_ms),
        cancel_since_ms=decisions.cancel_since(asked),
    )
    outcome = decisions.judge_takeover(
        facts, nonce=nonce, turn_id=turn_id, ignored_cancel=ignored_cancel
    )
    if isinstance(outcome, Taken):
        await db.write_as_read(
            "take_turn",
            tenant=tenant,
            session_id=session_id,
            stamp=stamp,
            turn_id=outcome.turn.turn_id,
            token=outcome.fence.token,
            nonce=nonce,
            node=node,
            attempt=outcome.turn.attempt,
            holder=holder.node_id if holder else None,
            # Somebody who was found dead by the clock may have come back since.
            holder_expires_ms=holder.expires_ms if holder and facts.holder == "expired" else None,
        )
    return outcome


def judged(
    session: SessionRow | None, holder: NodeRow | None, *, asking: NodeId, now_ms: int
) -> decisions.Holder:
    """What is known about the node that holds a session."""
    node = session.lease_node if session else None
    return decisions.judge_holder(node, holder, asking=asking, now_ms=now_ms)


async def orphans(db: Db, *, node: NodeId, limit: int) -> tuple[Orphan, ...]:
    """Open turns without a live holder, oldest first."""
    return tuple(
        Orphan(
            tenant=Tenant(tenant),
            session_id=SessionId(session_id),
            turn_id=TurnId(turn_id),
            holder=NodeId(holder) if holder else None,
        )
        for tenant, session_id, turn_id, holder in await db.rows("orphans", node=node, limit=limit)
    )


# ── signals ──────────────────────────────────────────────────────────────────────────────────


class Said(Value):
    """What became of a signal, and who is to hear it."""

    outcome: SignalOutcome
    holder: NodeId | None = None


async def signal(
    db: Db,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    kind: SignalKind,
    payload: bytes,
    attempt: Attempt | None,
    after: int | None,
) -> Said:
    key = attempt.key if attempt else None
    found = await db.row("signal_facts", tenant=tenant, turn_id=turn_id, claim=key)
    if found is None:
        raise SessionMissing("turn", turn_id)
    facts = tables.Reader(found)
    now_ms, turn = facts.number(), facts.one(tables.turns)
    session, stamp, last_n = facts.one(tables.sessions), facts.number(), facts.number()
    claimed = facts.one(tables.claims)
    assert turn is not None
    outcome = decisions.judge_signal(
        turn,
        session,
        last_n=last_n,
        attempt=attempt,
        claim=await claim_of(db, claimed) if claimed else None,
        after=after,
    )
    if not isinstance(outcome, Signalled):
        return Said(outcome=outcome)
    await db.write_as_read(
        "insert_signal",
        tenant=tenant,
        session_id=turn.session_id,
        stamp=stamp,
        turn_id=turn_id,
        n=outcome.n,
        kind=kind,
        payload=payload,
        at_ms=now_ms,
        claim=key,
        request_hash=attempt.request_hash if attempt else b"",
        replaced=claimed.turn_id if claimed else None,
    )
    return Said(outcome=outcome, holder=session.lease_node if session else None)


async def waiting_signals(db: Db, tenant: Tenant, turn_id: TurnId) -> tuple[SignalRow, ...]:
    return await db.all(tables.signals, "waiting_signals", tenant=tenant, turn_id=turn_id)


# ── finding ──────────────────────────────────────────────────────────────────────────────────


class SessionFacts(Value):
    """A session as it was read, and the stamp that it had then."""

    now_ms: int
    session: SessionRow
    stamp: int


async def session_facts(db: Db, tenant: Tenant, session_id: SessionId) -> SessionFacts | None:
    found = await db.row("session_facts", tenant=tenant, id=session_id)
    if found is None:
        return None
    facts = tables.Reader(found)
    now_ms, session = facts.number(), facts.one(tables.sessions)
    assert session is not None
    return SessionFacts(now_ms=now_ms, session=session, stamp=facts.number())


async def claim_of(db: Db, row: IdempotencyRow) -> decisions.Claim:
    """What there is behind an idempotency key."""
    found = await db.row("own_facts", tenant=row.tenant, turn_id=row.turn_id)
    if found is None:
        return decisions.Claim(row=row, turn=None, session=None)
    facts = tables.Reader(found)
    return decisions.Claim(
        row=row, turn=facts.one(tables.turns), session=facts.one(tables.sessions)
    )


async def find_session(db: Db, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
    return await db.one(tables.sessions, "session", tenant=tenant, id=session_id)


async def find_turn(db: Db, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
    return await db.one(tables.turns, "turn", tenant=tenant, turn_id=turn_id)


async def turn_unfinished(db: Db, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
    return await db.one(tables.turns, "turn_unfinished", tenant=tenant, request_hash=request_hash)


async def earlier_turn(db: Db, session: SessionRow | None, attempt: Attempt) -> TurnRow | None:
    """The last turn before the head that was kept and that the same request began, if an SDK counts its retries."""
    if session is None or not attempt.client_attempt:
        return None
    return await db.one(
        tables.turns,
        "earlier_turn",
        tenant=session.tenant,
        session_id=session.id,
        head=session.head,
        after=session.head - limits.recognised_versions,
        request_hash=attempt.request_hash,
    )


async def queued_of(db: Db, session: SessionRow | None) -> tuple[TurnRow, ...]:
    """The turns that wait for a session, in the order in which they came."""
    if session is None:
        return ()
    return await db.all(tables.turns, "queued_of", tenant=session.tenant, session_id=session.id)


async def turn_at(db: Db, tenant: Tenant, session_id: SessionId, version: int) -> TurnRow | None:
    """The turn that made a version of this very session."""
    return await db.one(tables.turns, "turn_at", tenant=tenant, session_id=session_id, seq=version)
