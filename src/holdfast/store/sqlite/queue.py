"""Turns that wait for their session, as functions of a connection. See `turns.py` for the rules."""

from __future__ import annotations

import msgspec
from apsw import Connection

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
from holdfast.store.rows import TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.begin import begin_facts, claim_key
from holdfast.store.sqlite.leases import IsHeld, hold, holder_of
from holdfast.store.sqlite.tables import queries, run
from holdfast.store.sqlite.turns import (
    discard,
    find_session,
    find_turn,
    insert_journal,
    queued_of,
)


def enqueue(
    db: Connection, ask: Begin, *, behind: bool, is_held: IsHeld, now_ms: int
) -> EnqueueOutcome:
    facts = begin_facts(db, ask, is_held=is_held, now_ms=now_ms)
    if facts.session is not None:
        facts = msgspec.structs.replace(facts, queued=queued_of(db, facts.session))
    outcome = decisions.judge_enqueue(ask, facts, behind=behind)
    if isinstance(outcome, Queued) and facts.own_turn is None:
        turn = shaping.queued_turn(
            ask,
            outcome.session_id,
            retry_of=decisions.failed_attempt(facts),
            behind=facts.queued,
            now_ms=now_ms,
        )
        tables.turn_rows.put(db, "insert_turn", turn)
        records = shaping.first_record(ask, now_ms=now_ms)
        insert_journal(db, _no_fence(turn), n=0, records=records)
        if ask.attempt.key is not None:
            claim_key(db, ask.tenant, ask.attempt, ask.request.turn_id)
    return outcome


def _no_fence(turn: TurnRow) -> Fence:
    """What is written of a turn that nobody holds is written under."""
    return Fence(
        tenant=turn.tenant, session_id=turn.session_id, turn_id=turn.turn_id, token=0, nonce=""
    )


def queued(db: Connection, *, limit: int) -> tuple[Waiting, ...]:
    rows = db.execute(queries["queued_turns"], {"limit": limit})
    found = (
        (Tenant(tenant), SessionId(session_id), TurnId(turn_id), bool(is_free))
        for tenant, session_id, turn_id, is_free in rows
    )
    return tuple(decisions.in_order(found))


def open_queued(db: Connection, ask: Opening, *, is_held: IsHeld, now_ms: int) -> OpenOutcome:
    session = find_session(db, ask.tenant, ask.session_id)
    turn = find_turn(db, ask.tenant, ask.request.turn_id)
    waiting = queued_of(db, session, limit=1) if session else ()
    facts = decisions.OpeningFacts(
        now_ms=now_ms,
        node=tables.node_rows.one(db, "node", node_id=ask.node),
        session=session,
        turn=turn,
        first=waiting[0].turn_id if waiting else None,
        holder=holder_of(db, session, asking=ask.node, is_held=is_held, now_ms=now_ms)
        if session
        else "absent",
    )
    outcome = decisions.judge_open(ask, facts)
    if isinstance(outcome, Started) and turn is not None and turn.state == "queued":
        _open(db, ask, outcome.fence, turn, now_ms=now_ms)
    return outcome


def _open(db: Connection, ask: Opening, fence: Fence, turn: TurnRow, *, now_ms: int) -> None:
    opened = shaping.opened_turn(turn, ask, fence, now_ms=now_ms)
    hold(db, fence, ask.node)
    run(
        db,
        "open_queued_turn",
        tenant=opened.tenant,
        turn_id=opened.turn_id,
        base_head=opened.base_head,
        lease_token=opened.lease_token,
        agent=opened.agent,
        source_digest=opened.source_digest,
        began_ms=opened.began_ms,
    )
    run(
        db,
        "rewrite_request",
        tenant=opened.tenant,
        turn_id=opened.turn_id,
        token=fence.token,
        records=shaping.first_record(ask, now_ms=now_ms),
    )


def withdraw(
    db: Connection,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    ended_by: EndedBy,
    detail: str,
    records: bytes,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    turn = find_turn(db, tenant, turn_id)
    if turn is None:
        raise SessionMissing("turn", turn_id)
    if turn.state != "queued":
        return turn
    if records:
        insert_journal(db, _no_fence(turn), n=1, records=records)
    return discard(db, turn, ended_by=ended_by, detail=detail, settlement=settlement, now_ms=now_ms)
