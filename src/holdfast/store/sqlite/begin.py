"""T1, as a function of a connection: a request becomes a turn, or is told why not. See `turns.py` for the rules.

What nearly every turn has to know is read by one query, since a statement costs more than what it finds.
"""

from __future__ import annotations

from apsw import Connection

from holdfast.core import chain
from holdfast.core.events import Began
from holdfast.core.journal import encode_records, numbered
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store import decisions
from holdfast.store.base import (
    Anonymous,
    Attempt,
    Begin,
    BeginOutcome,
    ById,
    ByKey,
    Fence,
    Gone,
    Joined,
    Mismatch,
    Replay,
    Started,
    Target,
)
from holdfast.store.rows import KeyRow, SessionRow, TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.leases import IsHeld, hold, holder_of
from holdfast.store.sqlite.tables import only, ordered, run
from holdfast.store.sqlite.turns import find_session, find_turn, insert_journal, turn_at

_BEGIN_FACTS = ordered("begin_facts", "tenant", "key", "session_id", "node", "turn_id")
_KEY_AT = tables.session_rows.width
_NODE_AT = _KEY_AT + tables.key_rows.width
_OWN_TURN_AT = _NODE_AT + tables.node_rows.width


def begin(db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int) -> BeginOutcome:
    """T1."""
    facts = _begin_facts(db, ask, is_held=is_held, now_ms=now_ms)
    outcome = decisions.judge_begin(ask, facts)
    if isinstance(outcome, Started) and facts.own_turn is None:
        _open(db, ask, outcome, session=facts.session, now_ms=now_ms)
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
) -> Joined | Replay | Mismatch | Gone | None:
    known = decisions.judge_claim(attempt, find_claim(db, tenant, attempt), now_ms=now_ms)
    if known is not None or target is None or not attempt.client_attempt:
        return known
    session = _find_target(db, tenant, target)
    if session is None:
        return None
    return decisions.recognised(
        attempt,
        session,
        open_turn=find_turn(db, tenant, session.open_turn),
        head_turn=turn_at(db, session, session.head),
        now_ms=now_ms,
    )


def _begin_facts(
    db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int
) -> decisions.BeginFacts:
    tenant, attempt = ask.tenant, ask.attempt
    key, session_id = _named_by(ask.target)
    row = only(db, _BEGIN_FACTS, (tenant, key, session_id, ask.node, ask.request.turn_id))
    session = tables.session_rows.joined(row, 0)
    open_turn = head_turn = own_turn = None
    if row[_OWN_TURN_AT] is not None:
        own_turn = find_turn(db, tenant, ask.request.turn_id)
    if session is not None and attempt.client_attempt:
        open_turn = find_turn(db, tenant, session.open_turn)
        head_turn = turn_at(db, session, session.head)
    busy = session is not None and session.open_turn is not None
    return decisions.BeginFacts(
        now_ms=now_ms,
        node=tables.node_rows.joined(row, _NODE_AT),
        claim=find_claim(db, tenant, attempt),
        key=tables.key_rows.joined(row, _KEY_AT),
        session=session,
        open_turn=open_turn,
        head_turn=head_turn,
        holder=holder_of(db, session, asking=ask.node, is_held=is_held, now_ms=now_ms)
        if session is not None and busy
        else "absent",
        own_turn=own_turn,
        own_session=find_session(db, tenant, own_turn.session_id) if own_turn else None,
    )


def _named_by(target: Target) -> tuple[SessionKey | None, SessionId]:
    """The key that a request names its session by, if it does, and the id that counts without one."""
    match target:
        case ById(session_id=session_id) | Anonymous(fresh=session_id):
            return None, session_id
        case ByKey(key=key, fresh=fresh):
            # An id that the request has brought is taken already if the request comes again, late.
            return key, fresh


def _find_target(db: Connection, tenant: Tenant, target: Target) -> SessionRow | None:
    key, session_id = _named_by(target)
    known = key and tables.key_rows.one(db, "key", tenant=tenant, key=key)
    return find_session(db, tenant, known.session_id if known else session_id)


# ── opening ──────────────────────────────────────────────────────────────────────────────────


def _open(
    db: Connection, ask: Begin, started: Started, *, session: SessionRow | None, now_ms: int
) -> None:
    fence, request, attempt = started.fence, ask.request, ask.attempt
    if session is None:
        _insert_new_session(db, ask, fence, now_ms=now_ms)
    else:
        hold(db, fence, ask.node)
    turn = TurnRow(
        tenant=ask.tenant,
        turn_id=request.turn_id,
        session_id=fence.session_id,
        base_head=request.base,
        state="open",
        retry_of=started.retry_of,
        client_attempt=attempt.client_attempt,
        lease_token=fence.token,
        agent=request.agent,
        source_digest=request.source_digest,
        request_hash=attempt.request_hash,
        replayable=request.replayable,
        began_ms=now_ms,
    )
    tables.turn_rows.put(db, "insert_turn", turn)
    record = encode_records(numbered((Began(request=request),), first=0, at_ms=now_ms))
    insert_journal(db, fence, n=0, records=record)
    if attempt.key is not None:
        run(
            db,
            "claim_key",
            tenant=ask.tenant,
            key=attempt.key,
            request_hash=attempt.request_hash,
            turn_id=request.turn_id,
        )


def _insert_new_session(db: Connection, ask: Begin, fence: Fence, *, now_ms: int) -> None:
    row = SessionRow(
        tenant=ask.tenant,
        id=fence.session_id,
        link=chain.GENESIS,
        lease_token=fence.token,
        lease_nonce=fence.nonce,
        lease_node=ask.node,
        open_turn=fence.turn_id,
        anonymous=isinstance(ask.target, Anonymous),
        created_ms=now_ms,
        active_ms=now_ms,
    )
    tables.session_rows.put(db, "insert_session", row)
    if isinstance(ask.target, ByKey):
        key = KeyRow(tenant=ask.tenant, key=ask.target.key, session_id=row.id)
        tables.key_rows.put(db, "insert_key", key)
