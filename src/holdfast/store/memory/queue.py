"""Turns that wait for their session. See `turns.py` for the rules."""

from __future__ import annotations

from itertools import islice

from holdfast.core.items import EndedBy
from holdfast.errors import SessionMissing
from holdfast.ids import Tenant, TurnId
from holdfast.store import decisions, shaping
from holdfast.store.base import (
    Begin,
    EnqueueOutcome,
    Opening,
    OpenOutcome,
    Queued,
    Settlement,
    Started,
    Waiting,
)
from holdfast.store.memory import turns
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import JournalRow, TurnRow


def enqueue(tables: Tables, ask: Begin, *, behind: bool, now_ms: int) -> EnqueueOutcome:
    facts = turns.begin_facts(tables, ask, now_ms=now_ms)
    outcome = decisions.judge_enqueue(ask, facts, behind=behind)
    if isinstance(outcome, Queued) and facts.own_turn is None:
        turn = shaping.queued_turn(
            ask,
            outcome.session_id,
            retry_of=decisions.failed_attempt(facts),
            behind=facts.queued,
            now_ms=now_ms,
        )
        tables.put_turn(turn)
        _write_request(tables, ask, token=0, now_ms=now_ms)
        turns.claim_key(tables, ask.tenant, ask.attempt, ask.request.turn_id)
    return outcome


def _write_request(tables: Tables, ask: Begin | Opening, *, token: int, now_ms: int) -> None:
    records = shaping.first_record(ask, now_ms=now_ms)
    tables.journals[ask.tenant, ask.request.turn_id] = [
        JournalRow(
            tenant=ask.tenant, turn_id=ask.request.turn_id, n=0, token=token, records=records
        )
    ]


def queued(tables: Tables, *, limit: int) -> tuple[Waiting, ...]:
    found = (
        (
            turn.tenant,
            turn.session_id,
            turn.turn_id,
            tables.sessions[turn.tenant, turn.session_id].open_turn is None,
        )
        for turn in tables.queued()
    )
    return tuple(decisions.in_order(islice(found, limit)))


def open_queued(tables: Tables, ask: Opening, *, now_ms: int) -> OpenOutcome:
    session = tables.sessions.get((ask.tenant, ask.session_id))
    turn = tables.find_turn(ask.tenant, ask.request.turn_id)
    waiting = tables.queued_of(ask.tenant, ask.session_id)
    facts = decisions.OpeningFacts(
        now_ms=now_ms,
        node=tables.nodes.get(ask.node),
        session=session,
        turn=turn,
        first=waiting[0].turn_id if waiting else None,
        holder=tables.holder_of(session, asking=ask.node, now_ms=now_ms) if session else "absent",
    )
    outcome = decisions.judge_open(ask, facts)
    if isinstance(outcome, Started) and turn is not None and turn.state == "queued":
        assert session is not None
        tables.put_session(shaping.held_session(session, outcome.fence, ask.node))
        tables.put_turn(shaping.opened_turn(turn, ask, outcome.fence, now_ms=now_ms))
        _write_request(tables, ask, token=outcome.fence.token, now_ms=now_ms)
    return outcome


def withdraw(
    tables: Tables,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    ended_by: EndedBy,
    detail: str,
    records: bytes,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    turn = tables.find_turn(tenant, turn_id)
    if turn is None:
        raise SessionMissing("turn", turn_id)
    if turn.state != "queued":
        return turn
    if records:
        tables.journals[tenant, turn_id].append(
            JournalRow(tenant=tenant, turn_id=turn_id, n=1, token=0, records=records)
        )
    return turns.discard(
        tables, turn, ended_by=ended_by, detail=detail, settlement=settlement, now_ms=now_ms
    )
