"""T1, as a function of a connection: a request becomes a turn, or is told why not. See `turns.py` for the rules.

What nearly every turn has to know is read by one query, since a statement costs more than what it finds.
"""

from __future__ import annotations

from apsw import Connection

from holdfast.ids import Tenant, TurnId
from holdfast.store import decisions, shaping
from holdfast.store.base import (
    Attempt,
    Begin,
    BeginOutcome,
    ByKey,
    Fence,
    Known,
    Started,
    Target,
)
from holdfast.store.rows import KeyRow, SessionRow, TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.leases import IsHeld, hold, holder_of
from holdfast.store.sqlite.tables import only, ordered, run
from holdfast.store.sqlite.turns import (
    earlier_turn,
    find_session,
    find_turn,
    insert_journal,
    queued_of,
    turn_at,
)

_BEGIN_FACTS = ordered("begin_facts", "tenant", "key", "session_id", "node", "turn_id")
_KEY_AT = tables.session_rows.width
_NODE_AT = _KEY_AT + tables.key_rows.width
_OWN_TURN_AT = _NODE_AT + tables.node_rows.width


def begin(db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int) -> BeginOutcome:
    """T1."""
    facts = begin_facts(db, ask, is_held=is_held, now_ms=now_ms)
    outcome = decisions.judge_begin(ask, facts)
    if isinstance(outcome, Started) and facts.own_turn is None:
        _open(db, ask, outcome, facts)
    return outcome


# ── finding out ──────────────────────────────────────────────────────────────────────────────


def find_claim(db: Connection, tenant: Tenant, attempt: Attempt) -> decisions.Claim | None:
    if attempt.key is None:
        return None
    row = tables.idempotency_rows.one(db, "idempotency", tenant=tenant, key=attempt.key)
    if row is None:
        return None
    turn = find_turn(db, tenant, row.turn_id)
    session = find_session(db, tenant, turn.session_id) if turn else None
    return decisions.Claim(row=row, turn=turn, session=session)


def find_attempt(
    db: Connection, tenant: Tenant, attempt: Attempt, target: Target | None, *, now_ms: int
) -> Known | None:
    claim = find_claim(db, tenant, attempt)
    if claim is None and not decisions.may_be_recognised(attempt):
        return None
    key, session = _find_target(db, tenant, target) if target else (None, None)
    meant = key.session_id if key else None
    known = decisions.judge_claim(attempt, claim, meant=meant)
    if known is not None or session is None or not decisions.may_be_recognised(attempt):
        return known
    return decisions.recognised(
        attempt,
        session,
        open_turn=find_turn(db, tenant, session.open_turn),
        head_turn=turn_at(db, session, session.head),
        earlier=earlier_turn(db, session, attempt),
        queued=queued_of(db, session),
        now_ms=now_ms,
    )


def begin_facts(
    db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int
) -> decisions.BeginFacts:
    tenant, attempt = ask.tenant, ask.attempt
    key, session_id = decisions.named_by(ask.target)
    row = only(db, _BEGIN_FACTS, (tenant, key, session_id, ask.node, ask.request.turn_id))
    session = tables.session_rows.joined(row, 0)
    open_turn = head_turn = earlier = own_turn = None
    queued: tuple[TurnRow, ...] = ()
    if row[_OWN_TURN_AT] is not None:
        own_turn = find_turn(db, tenant, ask.request.turn_id)
    if session is not None and decisions.looks_back(ask, session):
        open_turn = find_turn(db, tenant, session.open_turn)
        head_turn = turn_at(db, session, session.head)
        earlier = earlier_turn(db, session, attempt)
        queued = queued_of(db, session) if attempt.client_attempt else ()
    busy = session is not None and session.open_turn is not None
    return decisions.BeginFacts(
        now_ms=now_ms,
        node=tables.node_rows.joined(row, _NODE_AT),
        claim=find_claim(db, tenant, attempt),
        key=tables.key_rows.joined(row, _KEY_AT),
        session=session,
        open_turn=open_turn,
        head_turn=head_turn,
        earlier=earlier,
        queued=queued,
        holder=holder_of(db, session, asking=ask.node, is_held=is_held, now_ms=now_ms)
        if session is not None and busy
        else "absent",
        horizon=tables.horizon_rows.one(db, "horizon") if ask.expire_after_ms is not None else None,
        own_turn=own_turn,
        own_session=find_session(db, tenant, own_turn.session_id) if own_turn else None,
    )


def _find_target(
    db: Connection, tenant: Tenant, target: Target
) -> tuple[KeyRow | None, SessionRow | None]:
    """What a target means now."""
    name, session_id = decisions.named_by(target)
    key = tables.key_rows.one(db, "key", tenant=tenant, key=name) if name else None
    if key is not None:
        session_id = key.session_id
    return key, find_session(db, tenant, session_id) if session_id else None


# ── opening ──────────────────────────────────────────────────────────────────────────────────


def _open(db: Connection, ask: Begin, started: Started, facts: decisions.BeginFacts) -> None:
    fence, now_ms = started.fence, facts.now_ms
    if facts.session is None:
        _insert_new_session(db, ask, fence, now_ms=now_ms)
    else:
        hold(db, fence, ask.node)
    if ask.request.continues is not None:
        _take_over(db, ask, fence, facts)
    turn = shaping.open_turn(ask, started, now_ms=now_ms, continued=facts.head_turn)
    tables.turn_rows.put(db, "insert_turn", turn)
    insert_journal(db, fence, n=0, records=shaping.first_record(ask, now_ms=now_ms))
    claim_key(db, ask.tenant, ask.attempt, ask.request.turn_id)


def _take_over(db: Connection, ask: Begin, fence: Fence, facts: decisions.BeginFacts) -> None:
    """A continuation takes over the keys of the turn that it goes on with."""
    assert facts.session is not None, "only what is there is continued"
    left = shaping.begun_session(facts.session, ask, fence).retries_left
    run(db, "spend_retry", tenant=ask.tenant, session_id=fence.session_id, retries_left=left)
    run(
        db,
        "move_keys",
        tenant=ask.tenant,
        turn_id=ask.request.continues,
        to_turn=fence.turn_id,
    )


def claim_key(
    db: Connection, tenant: Tenant, attempt: Attempt, turn_id: TurnId, *, steer: int | None = None
) -> None:
    """The request's key, if it has one, leads to this turn; `steer` is the signal by which it was said to it."""
    if attempt.key is not None:
        run(
            db,
            "claim_key",
            tenant=tenant,
            key=attempt.key,
            request_hash=attempt.request_hash,
            turn_id=turn_id,
            steer=steer,
        )


def _insert_new_session(db: Connection, ask: Begin, fence: Fence, *, now_ms: int) -> None:
    row = shaping.new_session(ask, fence, now_ms=now_ms)
    tables.session_rows.put(db, "insert_session", row)
    if isinstance(ask.target, ByKey):
        key = KeyRow(tenant=ask.tenant, key=ask.target.key, session_id=row.id)
        tables.key_rows.put(db, "insert_key", key)
