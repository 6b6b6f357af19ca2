"""Turns that wait for their session, as work on the database. See `turns.py` for the rules."""

from __future__ import annotations

import msgspec

from holdfast.core.items import EndedBy
from holdfast.errors import SessionMissing
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import decisions, shaping
from holdfast.store.base import (
    Begin,
    EnqueueOutcome,
    Fence,
    Opening,
    OpenOutcome,
    Queued,
    Settlement,
    Started,
    Waiting,
)
from holdfast.store.postgres import tables
from holdfast.store.postgres.begin import begin_facts
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.tables import utf8
from holdfast.store.postgres.turns import CLAIM_KEEP_MS, judged, queued_of
from holdfast.store.rows import TurnRow


async def enqueue(db: Db, ask: Begin, *, behind: bool) -> EnqueueOutcome:
    found = await begin_facts(db, ask)
    waiting = await queued_of(db, found.facts.session)
    facts = msgspec.structs.replace(found.facts, queued=waiting)
    outcome = decisions.judge_enqueue(ask, facts, behind=behind)
    if isinstance(outcome, Queued) and facts.own_turn is None:
        await _queue(db, ask, outcome.session_id, facts, stamp=found.stamp)
    return outcome


async def _queue(
    db: Db, ask: Begin, session_id: SessionId, facts: decisions.BeginFacts, *, stamp: int
) -> None:
    turn = shaping.queued_turn(
        ask,
        session_id,
        retry_of=decisions.failed_attempt(facts),
        behind=facts.queued,
        now_ms=facts.now_ms,
    )
    await db.write_as_read(
        "queue_turn",
        stamp=stamp,
        claim=ask.attempt.key,
        replaced=facts.claim.row.turn_id if facts.claim else None,
        records=shaping.first_record(ask, now_ms=facts.now_ms),
        **tables.turns.bound(turn),
    )


async def queued(db: Db, *, limit: int) -> tuple[Waiting, ...]:
    rows = await db.rows("queued_turns", limit=limit)
    found = (
        (Tenant(tenant), SessionId(session_id), TurnId(turn_id), bool(is_free))
        for tenant, session_id, turn_id, is_free in rows
    )
    return tuple(decisions.in_order(found))


async def open_queued(db: Db, ask: Opening) -> OpenOutcome:
    read = await db.facts(
        "opening_facts",
        tenant=ask.tenant,
        session_id=ask.session_id,
        turn_id=ask.request.turn_id,
        node=ask.node,
    )
    now_ms, node, session = read.number(), read.one(tables.nodes), read.one(tables.sessions)
    stamp, holder, turn = read.number(), read.one(tables.nodes), read.one(tables.turns)
    first = read.value()
    facts = decisions.OpeningFacts(
        now_ms=now_ms,
        node=node,
        session=session,
        turn=turn,
        first=TurnId(first) if first else None,
        holder=judged(session, holder, asking=ask.node, now_ms=now_ms),
    )
    outcome = decisions.judge_open(ask, facts)
    if isinstance(outcome, Started) and turn is not None and turn.state == "queued":
        await _open(db, ask, outcome.fence, turn, stamp=stamp, now_ms=now_ms)
    return outcome


async def _open(
    db: Db, ask: Opening, fence: Fence, turn: TurnRow, *, stamp: int, now_ms: int
) -> None:
    opened = shaping.opened_turn(turn, ask, fence, now_ms=now_ms)
    await db.write_as_read(
        "open_queued_turn",
        stamp=stamp,
        nonce=fence.nonce,
        node=ask.node,
        records=shaping.first_record(ask, now_ms=now_ms),
        **tables.turns.bound(opened),
    )


async def withdraw(
    db: Db,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    ended_by: EndedBy,
    detail: str,
    records: bytes,
    settlement: Settlement,
) -> TurnRow:
    found = await db.row("withdrawal_facts", tenant=tenant, turn_id=turn_id)
    if found is None:
        raise SessionMissing("turn", turn_id)
    facts = tables.Reader(found)
    now_ms, turn, stamp = facts.number(), facts.one(tables.turns), facts.number()
    assert turn is not None
    if turn.state != "queued":
        return turn
    await db.write_as_read(
        "withdraw_turn",
        tenant=tenant,
        session_id=turn.session_id,
        turn_id=turn_id,
        stamp=stamp,
        ended_by=ended_by,
        detail=utf8(detail),
        ended_ms=now_ms,
        records=records,
        settlement=settlement,
        expires_ms=now_ms + CLAIM_KEEP_MS,
    )
    return msgspec.structs.replace(
        turn, state="discarded", ended_by=ended_by, detail=detail, ended_ms=now_ms
    )
