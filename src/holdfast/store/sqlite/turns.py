"""The transactions of a turn, as functions of a connection: T1, append, T2, end, takeover, signals.

Each runs whole inside the writer's transaction: it reads the rows, asks `store/decisions.py`, and writes
what was decided. None of them commits, and any of them may be run again from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from apsw import Connection

from holdfast import limits
from holdfast.core import chain
from holdfast.core.conversation import Commit
from holdfast.core.events import Began, MemoryAdded, MemoryDeleted, StateSet
from holdfast.core.items import EndedBy, path_text
from holdfast.core.journal import encode_records, numbered
from holdfast.errors import SessionMissing
from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import (
    Anonymous,
    Attempt,
    Begin,
    BeginOutcome,
    ById,
    ByKey,
    CommitOutcome,
    Committed,
    Fence,
    Gone,
    Joined,
    Mismatch,
    Orphan,
    Replay,
    Settlement,
    SignalOutcome,
    Started,
    Taken,
    TakeoverOutcome,
    Target,
    TooLate,
)
from holdfast.store.opening import opening_of
from holdfast.store.rows import KeyRow, NodeRow, SessionRow, SignalKind, SignalRow, TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.tables import queries, run, to_column

IsHeld = Callable[[int], bool]
"""Whether a living process holds a slot; see `locks.Liveness`."""

# ── nodes ────────────────────────────────────────────────────────────────────────────────────


def renew(db: Connection, node: NodeId, *, ttl_ms: int, now_ms: int) -> NodeRow:
    known = tables.node_rows.one(db, "node", node_id=node)
    fresh = NodeRow(node_id=node, ttl_ms=ttl_ms, since_ms=now_ms, expires_ms=now_ms + ttl_ms)
    row = decisions.renewed(known, fresh)
    run(
        db,
        "renew_node" if known else "enrol_node",
        node_id=node,
        ttl_ms=ttl_ms,
        since_ms=row.since_ms,
        expires_ms=row.expires_ms,
    )
    slot = known.slot if known else db.last_insert_rowid()
    return msgspec.structs.replace(row, slot=slot)


def holder_of(
    db: Connection, session: SessionRow, *, asking: NodeId, is_held: IsHeld, now_ms: int
) -> decisions.Holder:
    """What is known about the node that holds a session."""
    node = session.lease_node
    row = tables.node_rows.one(db, "node", node_id=node) if node else None
    return decisions.judge_holder(
        node, row, asking=asking, lock_free=row is not None and not is_held(row.slot), now_ms=now_ms
    )


# ── begin ────────────────────────────────────────────────────────────────────────────────────


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
    _, session = _find_target(db, tenant, target)
    if session is None:
        return None
    return decisions.recognised(
        attempt,
        session,
        open_turn=find_turn(db, tenant, session.open_turn),
        head_turn=turn_at(db, session, session.head),
        now_ms=now_ms,
    )


def begin(db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int) -> BeginOutcome:
    """T1."""
    facts = _begin_facts(db, ask, is_held=is_held, now_ms=now_ms)
    outcome = decisions.judge_begin(ask, facts)
    if isinstance(outcome, Started) and facts.own_turn is None:
        _open(db, ask, outcome, session=facts.session, now_ms=now_ms)
    return outcome


def _begin_facts(
    db: Connection, ask: Begin, *, is_held: IsHeld, now_ms: int
) -> decisions.BeginFacts:
    tenant = ask.tenant
    key, session = _find_target(db, tenant, ask.target)
    own_turn = find_turn(db, tenant, ask.request.turn_id)
    open_turn = head_turn = None
    if session is not None and ask.attempt.client_attempt:
        open_turn = find_turn(db, tenant, session.open_turn)
        head_turn = turn_at(db, session, session.head)
    busy = session is not None and session.open_turn is not None
    return decisions.BeginFacts(
        now_ms=now_ms,
        node=tables.node_rows.one(db, "node", node_id=ask.node),
        claim=find_claim(db, tenant, ask.attempt),
        key=key,
        session=session,
        open_turn=open_turn,
        head_turn=head_turn,
        holder=holder_of(db, session, asking=ask.node, is_held=is_held, now_ms=now_ms)
        if session is not None and busy
        else "absent",
        own_turn=own_turn,
        own_session=find_session(db, tenant, own_turn.session_id) if own_turn else None,
    )


def _find_target(
    db: Connection, tenant: Tenant, target: Target
) -> tuple[KeyRow | None, SessionRow | None]:
    match target:
        case ById(session_id=session_id) | Anonymous(fresh=session_id):
            return None, find_session(db, tenant, session_id)
        case ByKey(key=name, fresh=fresh):
            key = tables.key_rows.one(db, "key", tenant=tenant, key=name)
            # An id that the request has brought is taken already if the request comes again, late.
            return key, find_session(db, tenant, key.session_id if key else fresh)


def _open(
    db: Connection, ask: Begin, started: Started, *, session: SessionRow | None, now_ms: int
) -> None:
    fence, request, attempt = started.fence, ask.request, ask.attempt
    if session is None:
        _insert_new_session(db, ask, fence, now_ms=now_ms)
    else:
        _hold(db, fence, ask.node)
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
    _insert_journal(db, fence, n=0, records=record)
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


def _hold(db: Connection, fence: Fence, node: NodeId) -> None:
    run(
        db,
        "hold_session",
        tenant=fence.tenant,
        session_id=fence.session_id,
        turn_id=fence.turn_id,
        token=fence.token,
        nonce=fence.nonce,
        node=node,
    )


# ── append, commit, end ──────────────────────────────────────────────────────────────────────


def append(
    db: Connection, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int]
) -> None:
    decisions.demand_fence(fence, find_session(db, fence.tenant, fence.session_id))
    for each in consumed:
        db.execute(queries["consume_signal"], (fence.tenant, fence.turn_id, each))
    _append_records(db, fence, n=n, records=records)


def _append_records(db: Connection, fence: Fence, *, n: int, records: bytes) -> None:
    where = {"tenant": fence.tenant, "turn_id": fence.turn_id}
    there = tables.journal_rows.one(db, "journal_row", n=n, **where)
    last = tables.journal_rows.one(db, "last_record", **where)
    if decisions.judge_append(
        n,
        records,
        last_n=last.n if last else -1,
        same_n=there.records if there else None,
    ):
        _insert_journal(db, fence, n=n, records=records)


def _insert_journal(db: Connection, fence: Fence, *, n: int, records: bytes) -> None:
    run(
        db,
        "insert_journal",
        tenant=fence.tenant,
        turn_id=fence.turn_id,
        n=n,
        token=fence.token,
        records=records,
    )


def commit(
    db: Connection,
    fence: Fence,
    made: Commit,
    *,
    n: int,
    records: bytes,
    settlement: Settlement,
    now_ms: int,
) -> CommitOutcome:
    """T2."""
    tenant = fence.tenant
    session = find_session(db, tenant, fence.session_id)
    turn = find_turn(db, tenant, fence.turn_id)
    steers = waiting_signals(db, tenant, fence.turn_id, "steer")
    last_n = tables.scalar(db, "last_n", tenant=tenant, turn_id=fence.turn_id)
    assert isinstance(last_n, int)
    found = decisions.judge_commit(
        fence, made, session=session, turn=turn, steers=steers, n=n, last_n=last_n
    )
    if found is not None:
        return found
    assert session is not None and turn is not None, "judge_commit lets only held turns through"
    _write_content(db, session, made, now_ms=now_ms)
    _write_turn(db, session, turn, made, now_ms=now_ms)
    if turn.replayable and records:
        _append_records(db, fence, n=n, records=records)
    elif not turn.replayable:
        run(db, "delete_journal", tenant=tenant, turn_id=turn.turn_id)
    _settle(db, turn, settlement, now_ms=now_ms)
    return Committed(version=made.version, at_ms=now_ms)


def _write_content(db: Connection, session: SessionRow, made: Commit, *, now_ms: int) -> None:
    """Items, state and memories."""
    tenant, session_id = session.tenant, session.id
    pairs = zip(made.items, made.encoded, strict=True)
    db.executemany(
        queries["insert_item"],
        (
            (tenant, session_id, pos, made.turn_id, path_text(item.path), body)
            for pos, (item, body) in enumerate(pairs, start=session.length)
        ),
    )
    # The last word on each name counts, as in `changed_state`.
    values = {each.name: each.value for each in made.changes if isinstance(each, StateSet)}
    for name, value in values.items():
        run(
            db,
            "insert_state",
            tenant=tenant,
            session_id=session_id,
            name=name,
            seq=made.version,
            value=value,
        )
    for change in made.changes:
        match change:
            case MemoryAdded():
                run(
                    db,
                    "add_memory",
                    tenant=tenant,
                    agent=change.agent,
                    memory_id=change.memory_id,
                    text=change.text,
                    turn_id=made.turn_id,
                    at_ms=now_ms,
                )
            case MemoryDeleted():
                run(
                    db,
                    "delete_memory",
                    tenant=tenant,
                    agent=change.agent,
                    memory_id=change.memory_id,
                )


def _write_turn(
    db: Connection, session: SessionRow, turn: TurnRow, made: Commit, *, now_ms: int
) -> None:
    """The turn's row, and the session's next version."""
    end = session.length + len(made.items)
    run(
        db,
        "commit_turn",
        tenant=turn.tenant,
        turn_id=turn.turn_id,
        seq=made.version,
        ended_by=made.ended_by,
        detail=made.detail,
        agent=made.agent,
        start=session.length,
        end=end,
        rev=session.meta_rev,
        changes=to_column(made.changes),
        link=made.link,
        usage=to_column(made.usage),
        ended_ms=now_ms,
    )
    run(
        db,
        "advance_session",
        tenant=session.tenant,
        session_id=session.id,
        head=made.version,
        length=end,
        link=made.link,
        agent=made.agent,
        opening=opening_of(made.items),
        source_key=made.source_key,
        entry_agent=made.entry_agent,
        active_ms=now_ms,
    )


def end(
    db: Connection,
    fence: Fence,
    *,
    ended_by: EndedBy,
    detail: str,
    n: int,
    records: bytes,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    turn = find_turn(db, fence.tenant, fence.turn_id)
    session = find_session(db, fence.tenant, fence.session_id)
    ended = decisions.judge_end(fence, session=session, turn=turn)
    if ended is not None:
        return ended
    assert session is not None and turn is not None, "judge_end lets only held turns through"
    _append_records(db, fence, n=n, records=records)
    run(db, "let_go", tenant=session.tenant, session_id=session.id)
    return discard(db, turn, ended_by=ended_by, detail=detail, settlement=settlement, now_ms=now_ms)


def discard(
    db: Connection,
    turn: TurnRow,
    *,
    ended_by: EndedBy,
    detail: str,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    """End an open turn's row without adding anything to its session."""
    run(
        db,
        "discard_turn",
        tenant=turn.tenant,
        turn_id=turn.turn_id,
        ended_by=ended_by,
        detail=detail,
        ended_ms=now_ms,
    )
    _settle(db, turn, settlement, now_ms=now_ms)
    return msgspec.structs.replace(
        turn, state="discarded", ended_by=ended_by, detail=detail, ended_ms=now_ms
    )


def _settle(db: Connection, turn: TurnRow, settlement: Settlement, *, now_ms: int) -> None:
    expires_ms = now_ms + int(limits.idempotency_keep_s * 1000)
    run(
        db,
        "settle_key",
        tenant=turn.tenant,
        turn_id=turn.turn_id,
        state=settlement,
        expires_ms=expires_ms,
    )


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


def release(db: Connection, fence: Fence) -> None:
    session = decisions.demand_fence(fence, find_session(db, fence.tenant, fence.session_id))
    run(db, "hand_over", tenant=session.tenant, session_id=session.id)


def takeover(
    db: Connection,
    tenant: Tenant,
    session_id: SessionId,
    *,
    node: NodeId,
    nonce: str,
    turn_id: TurnId | None,
    ignored_cancel: bool,
    is_held: IsHeld,
    now_ms: int,
) -> TakeoverOutcome:
    session = find_session(db, tenant, session_id)
    turn = find_turn(db, tenant, session.open_turn) if session else None
    asked = _asked_to_stop(db, turn) if turn else ()
    facts = decisions.TakeoverFacts(
        now_ms=now_ms,
        node=tables.node_rows.one(db, "node", node_id=node),
        session=session,
        turn=turn,
        holder=holder_of(db, session, asking=node, is_held=is_held, now_ms=now_ms)
        if session
        else "absent",
        cancel_since_ms=decisions.cancel_since(asked),
    )
    outcome = decisions.judge_takeover(
        facts, nonce=nonce, turn_id=turn_id, ignored_cancel=ignored_cancel
    )
    if isinstance(outcome, Taken):
        _hold(db, outcome.fence, node)
        run(
            db,
            "retake_turn",
            tenant=tenant,
            turn_id=outcome.turn.turn_id,
            lease_token=outcome.turn.lease_token,
            attempt=outcome.turn.attempt,
        )
    return outcome


def _asked_to_stop(db: Connection, turn: TurnRow) -> tuple[SignalRow, ...]:
    kinds: tuple[SignalKind, ...] = ("cancel", "interrupt")
    return tuple(
        row for kind in kinds for row in waiting_signals(db, turn.tenant, turn.turn_id, kind)
    )


def orphans(
    db: Connection, *, node: NodeId, limit: int, is_held: IsHeld, now_ms: int
) -> tuple[Orphan, ...]:
    """Open turns without a live holder, oldest first."""
    found: list[Orphan] = []
    for tenant, session_id, turn_id, lease_node, *holder in db.execute(queries["held_sessions"]):
        row = tables.node_rows.made(holder) if holder[0] is not None else None
        lease = NodeId(lease_node) if lease_node else None
        state = decisions.judge_holder(
            lease,
            row,
            asking=node,
            lock_free=row is not None and not is_held(row.slot),
            now_ms=now_ms,
        )
        if state != "alive":
            found.append(
                Orphan(
                    tenant=Tenant(tenant),
                    session_id=SessionId(session_id),
                    turn_id=TurnId(turn_id),
                    holder=lease,
                )
            )
        if len(found) == limit:
            break
    return tuple(found)


# ── signals ──────────────────────────────────────────────────────────────────────────────────


def signal(
    db: Connection,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    kind: SignalKind,
    payload: bytes,
    now_ms: int,
) -> SignalOutcome:
    turn = find_turn(db, tenant, turn_id)
    if turn is None:
        raise SessionMissing("turn", turn_id)
    (last,) = tables.numbers(db, "last_signal", tenant=tenant, turn_id=turn_id)
    session = find_session(db, tenant, turn.session_id)
    outcome = decisions.judge_signal(turn, session, last_n=last)
    if isinstance(outcome, TooLate):
        return outcome
    run(
        db,
        "insert_signal",
        tenant=tenant,
        turn_id=turn_id,
        n=outcome.n,
        kind=kind,
        payload=payload,
        at_ms=now_ms,
    )
    return outcome


def waiting_signals(
    db: Connection, tenant: Tenant, turn_id: TurnId, kind: SignalKind
) -> tuple[SignalRow, ...]:
    return tables.signal_rows.all(db, "waiting_signals", tenant=tenant, turn_id=turn_id, kind=kind)


# ── finding ──────────────────────────────────────────────────────────────────────────────────


def find_session(db: Connection, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
    return tables.session_rows.one(db, "session", tenant=tenant, id=session_id)


def find_turn(db: Connection, tenant: Tenant, turn_id: TurnId | None) -> TurnRow | None:
    if turn_id is None:
        return None
    return tables.turn_rows.one(db, "turn", tenant=tenant, turn_id=turn_id)


def turn_at(db: Connection, session: SessionRow, version: int) -> TurnRow | None:
    """The turn that made a version of this very session."""
    return tables.turn_rows.one(
        db, "turn_at", tenant=session.tenant, session_id=session.id, seq=version
    )
