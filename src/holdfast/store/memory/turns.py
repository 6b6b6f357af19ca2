"""What happens to a turn: T1, append, T2, end, takeover, signals.

Each function reads the rows, asks `decisions.py`, and only then writes; so one that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.core.conversation import Commit
from holdfast.core.events import MemoryAdded, MemoryDeleted, StateSet
from holdfast.core.items import EndedBy
from holdfast.errors import SessionMissing
from holdfast.ids import NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store import decisions, shaping
from holdfast.store.base import (
    Attempt,
    Begin,
    BeginOutcome,
    ByKey,
    CommitOutcome,
    Committed,
    Fence,
    Known,
    Orphan,
    Settlement,
    Signalled,
    SignalOutcome,
    Started,
    Taken,
    TakeoverOutcome,
    Target,
)
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import (
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SessionRow,
    SignalKind,
    SignalRow,
    StateRow,
    TurnRow,
)


def renew(tables: Tables, node: NodeId, *, ttl_ms: int, now_ms: int) -> NodeRow:
    fresh = NodeRow(node_id=node, ttl_ms=ttl_ms, since_ms=now_ms, expires_ms=now_ms + ttl_ms)
    row = tables.nodes[node] = decisions.renewed(tables.nodes.get(node), fresh)
    return row


# ── begin ────────────────────────────────────────────────────────────────────────────────────


def find_claim(tables: Tables, tenant: Tenant, attempt: Attempt) -> decisions.Claim | None:
    row = None if attempt.key is None else tables.claims.get((tenant, attempt.key))
    if row is None:
        return None
    turn = tables.find_turn(tenant, row.turn_id)
    session = tables.sessions.get((tenant, turn.session_id)) if turn else None
    return decisions.Claim(row=row, turn=turn, session=session)


def find_attempt(
    tables: Tables, tenant: Tenant, attempt: Attempt, target: Target | None, *, now_ms: int
) -> Known | None:
    key, session = find_target(tables, tenant, target) if target else (None, None)
    known = decisions.judge_claim(
        attempt,
        find_claim(tables, tenant, attempt),
        meant=key.session_id if key else None,
    )
    if known is not None or session is None or not decisions.may_be_recognised(attempt):
        return known
    return decisions.recognised(
        attempt,
        session,
        open_turn=tables.find_turn(tenant, session.open_turn),
        head_turn=tables.turn_at(tenant, session.id, session.head),
        earlier=_earlier_turn(tables, session, attempt),
        queued=tables.queued_of(tenant, session.id),
        now_ms=now_ms,
    )


def turn_unfinished(tables: Tables, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
    found = (
        each
        for each in tables.turns.values()
        if each.tenant == tenant
        and each.request_hash == request_hash
        and each.state == "committed"
        and each.ended_by != "completed"
    )
    return max(found, key=lambda each: each.turn_id, default=None)


def begin(tables: Tables, ask: Begin, *, now_ms: int) -> BeginOutcome:
    """T1."""
    facts = begin_facts(tables, ask, now_ms=now_ms)
    outcome = decisions.judge_begin(ask, facts)
    if isinstance(outcome, Started) and facts.own_turn is None:
        _open(tables, ask, outcome, facts)
    return outcome


def begin_facts(tables: Tables, ask: Begin, *, now_ms: int) -> decisions.BeginFacts:
    tenant = ask.tenant
    key, session = find_target(tables, tenant, ask.target)
    own_turn = tables.find_turn(tenant, ask.request.turn_id)
    open_turn = head_turn = earlier = None
    holder: decisions.Holder = "absent"
    if session is not None and decisions.looks_back(ask, session):
        open_turn = tables.find_turn(tenant, session.open_turn)
        head_turn = tables.turn_at(tenant, session.id, session.head)
        earlier = _earlier_turn(tables, session, ask.attempt)
    if session is not None and session.open_turn is not None:
        holder = tables.holder_of(session, asking=ask.node, now_ms=now_ms)
    return decisions.BeginFacts(
        now_ms=now_ms,
        node=tables.nodes.get(ask.node),
        claim=find_claim(tables, tenant, ask.attempt),
        key=key,
        session=session,
        open_turn=open_turn,
        head_turn=head_turn,
        earlier=earlier,
        queued=tables.queued_of(tenant, session.id) if session else (),
        holder=holder,
        horizon=tables.horizon,
        own_turn=own_turn,
        own_session=tables.sessions.get((tenant, own_turn.session_id)) if own_turn else None,
    )


def _earlier_turn(tables: Tables, session: SessionRow, attempt: Attempt) -> TurnRow | None:
    if not attempt.client_attempt:
        return None
    versions = range(session.head - 1, max(0, session.head - limits.recognised_versions), -1)
    found = (tables.turn_at(session.tenant, session.id, Version(each)) for each in versions)
    mine = (each for each in found if each and each.request_hash == attempt.request_hash)
    return next(mine, None)


def find_target(
    tables: Tables, tenant: Tenant, target: Target
) -> tuple[KeyRow | None, SessionRow | None]:
    """What a target means now."""
    name, session_id = decisions.named_by(target)
    key = tables.keys.get((tenant, name)) if name else None
    if key is not None:
        session_id = key.session_id
    return key, tables.sessions.get((tenant, session_id)) if session_id else None


def _open(tables: Tables, ask: Begin, started: Started, facts: decisions.BeginFacts) -> None:
    fence, request, session = started.fence, ask.request, facts.session
    now_ms = facts.now_ms
    if session is None:
        tables.put_session(shaping.new_session(ask, fence, now_ms=now_ms))
        if isinstance(ask.target, ByKey):
            key = ask.target.key
            tables.keys[ask.tenant, key] = KeyRow(
                tenant=ask.tenant, key=key, session_id=fence.session_id
            )
    else:
        tables.put_session(shaping.begun_session(session, ask, fence))
    tables.put_turn(shaping.open_turn(ask, started, now_ms=now_ms, continued=facts.head_turn))
    tables.journals[ask.tenant, request.turn_id] = [
        JournalRow(
            tenant=ask.tenant,
            turn_id=request.turn_id,
            n=0,
            token=fence.token,
            records=shaping.first_record(ask, now_ms=now_ms),
        )
    ]
    if facts.head_turn is not None and request.continues is not None:
        _move_keys(tables, facts.head_turn, request.turn_id)
    claim_key(tables, ask.tenant, ask.attempt, request.turn_id)


def _move_keys(tables: Tables, turn: TurnRow, to: TurnId) -> None:
    """The keys of a turn lead to its continuation. What was steered into the turn is part of it."""
    for row in tables.claims_of(turn):
        if row.state == "done":
            tables.claims[row.tenant, row.key] = msgspec.structs.replace(
                row, turn_id=to, state="running", expires_ms=0, steer=None
            )


def claim_key(
    tables: Tables, tenant: Tenant, attempt: Attempt, turn_id: TurnId, *, steer: int | None = None
) -> None:
    """The request's key, if it has one, leads to this turn."""
    if attempt.key is not None:
        tables.claims[tenant, attempt.key] = IdempotencyRow(
            tenant=tenant,
            key=attempt.key,
            request_hash=attempt.request_hash,
            turn_id=turn_id,
            state="running",
            steer=steer,
        )


# ── append, commit, end ──────────────────────────────────────────────────────────────────────


def append(
    tables: Tables, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int]
) -> None:
    decisions.demand_fence(fence, tables.sessions.get((fence.tenant, fence.session_id)))
    _append_records(tables, fence, n=n, records=records)
    if consumed:
        sent = tables.signals[fence.tenant, fence.turn_id]
        sent[:] = (
            msgspec.structs.replace(each, consumed=each.consumed or each.n in consumed)
            for each in sent
        )


def _append_records(tables: Tables, fence: Fence, *, n: int, records: bytes) -> None:
    journal = tables.journals[fence.tenant, fence.turn_id]
    same = next((row.records for row in journal if row.n == n), None)
    if decisions.judge_append(n, records, last_n=journal[-1].n if journal else -1, same_n=same):
        journal.append(
            JournalRow(
                tenant=fence.tenant,
                turn_id=fence.turn_id,
                n=n,
                token=fence.token,
                records=records,
            )
        )


def commit(
    tables: Tables,
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
    session = tables.sessions.get((tenant, fence.session_id))
    turn = tables.find_turn(tenant, fence.turn_id)
    steers = decisions.waiting_steers(tables.signals.get((tenant, fence.turn_id), ()))
    journal = tables.journals.get((tenant, fence.turn_id))
    found = decisions.judge_commit(
        fence,
        made,
        session=session,
        turn=turn,
        steers=steers,
        n=n,
        last_n=journal[-1].n if journal else -1,
    )
    if found is not None:
        return found
    assert session is not None and turn is not None, "judge_commit lets only held turns through"
    if made.keeps_journal(replayable=turn.replayable):
        _append_records(tables, fence, n=n, records=records)
    else:  # nobody will come back for this turn's events
        tables.journals.pop((tenant, turn.turn_id), None)
    _write_content(tables, session, made, now_ms=now_ms)
    _write_turn(tables, session, turn, made, now_ms=now_ms)
    _settle(tables, turn, settlement, now_ms=now_ms)
    return Committed(version=made.version, at_ms=now_ms)


def _write_content(tables: Tables, session: SessionRow, made: Commit, *, now_ms: int) -> None:
    """Items, state and memories."""
    tenant, place = session.tenant, (session.tenant, session.id)
    tables.items[place] += (
        ItemRow(pos=pos, turn_id=made.turn_id, body=body)
        for pos, body in enumerate(made.encoded, start=session.length)
    )
    if not made.changes:
        return
    values = {each.name: each.value for each in made.changes if isinstance(each, StateSet)}
    tables.state[place] += (
        StateRow(tenant=tenant, session_id=session.id, name=name, seq=made.version, value=value)
        for name, value in sorted(values.items())
    )
    for change in made.changes:
        match change:
            case MemoryAdded(agent=agent, memory_id=memory_id, text=text):
                row = MemoryRow(
                    tenant=tenant,
                    agent=agent,
                    memory_id=memory_id,
                    text=text,
                    turn_id=made.turn_id,
                    at_ms=now_ms,
                )
                tables.memories[tenant, agent].setdefault(memory_id, row)
            case MemoryDeleted(agent=agent, memory_id=memory_id):
                tables.memories[tenant, agent].pop(memory_id, None)


def _write_turn(
    tables: Tables, session: SessionRow, turn: TurnRow, made: Commit, *, now_ms: int
) -> None:
    """The turn's row, and the session's next version."""
    end = session.length + len(made.encoded)
    tables.put_turn(
        msgspec.structs.replace(
            turn,
            state="committed",
            seq=made.version,
            ended_by=made.ended_by,
            detail=made.detail,
            agent=made.agent,
            start=session.length,
            end=end,
            rev=session.meta_rev,
            changes=made.changes,
            link=made.link,
            usage=made.usage,
            ended_ms=now_ms,
            links=made.links,
            replayable=made.keeps_journal(replayable=turn.replayable),
        )
    )
    tables.put_session(shaping.committed_session(session, made, now_ms=now_ms))


def end(
    tables: Tables,
    fence: Fence,
    *,
    ended_by: EndedBy,
    detail: str,
    n: int,
    records: bytes,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    session = tables.sessions.get((fence.tenant, fence.session_id))
    turn = tables.find_turn(fence.tenant, fence.turn_id)
    ended = decisions.judge_end(fence, session=session, turn=turn)
    if ended is not None:
        return ended
    assert session is not None and turn is not None, "judge_end lets only held turns through"
    _append_records(tables, fence, n=n, records=records)
    tables.put_session(msgspec.structs.replace(session, open_turn=None, lease_node=None))
    return discard(
        tables, turn, ended_by=ended_by, detail=detail, settlement=settlement, now_ms=now_ms
    )


def discard(
    tables: Tables,
    turn: TurnRow,
    *,
    ended_by: EndedBy,
    detail: str,
    settlement: Settlement,
    now_ms: int,
) -> TurnRow:
    """End an open or queued turn's row without adding anything to its session."""
    row = msgspec.structs.replace(
        turn, state="discarded", ended_by=ended_by, detail=detail, ended_ms=now_ms
    )
    tables.put_turn(row)
    back_to = None if ended_by == "deleted" else turn.continues
    _settle(tables, row, settlement, now_ms=now_ms, back_to=back_to)
    return row


def _settle(
    tables: Tables,
    turn: TurnRow,
    settlement: Settlement,
    *,
    now_ms: int,
    back_to: TurnId | None = None,
) -> None:
    expires_ms = now_ms + int(limits.idempotency_keep_s * 1000)
    signals = tables.signals.get((turn.tenant, turn.turn_id), ())
    for row in tables.claims_of(turn):
        if row.state == "running":
            tables.claims[row.tenant, row.key] = decisions.settled(
                row, settlement, signals, expires_ms=expires_ms, back_to=back_to
            )


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


def release(tables: Tables, fence: Fence) -> None:
    session = tables.sessions.get((fence.tenant, fence.session_id))
    session = decisions.demand_fence(fence, session)
    tables.put_session(msgspec.structs.replace(session, lease_node=None))


def takeover(
    tables: Tables,
    tenant: Tenant,
    session_id: SessionId,
    *,
    node: NodeId,
    nonce: str,
    turn_id: TurnId | None,
    ignored_cancel: bool,
    now_ms: int,
) -> TakeoverOutcome:
    session = tables.sessions.get((tenant, session_id))
    turn = tables.find_turn(tenant, session.open_turn) if session else None
    facts = decisions.TakeoverFacts(
        now_ms=now_ms,
        node=tables.nodes.get(node),
        session=session,
        turn=turn,
        holder=tables.holder_of(session, asking=node, now_ms=now_ms) if session else "absent",
        cancel_since_ms=decisions.cancel_since(tables.signals.get((tenant, turn.turn_id), ()))
        if turn
        else None,
    )
    outcome = decisions.judge_takeover(
        facts, nonce=nonce, turn_id=turn_id, ignored_cancel=ignored_cancel
    )
    if isinstance(outcome, Taken):
        assert session is not None
        tables.put_session(shaping.held_session(session, outcome.fence, node))
        tables.put_turn(outcome.turn)
    return outcome


def orphans(tables: Tables, *, node: NodeId, limit: int, now_ms: int) -> tuple[Orphan, ...]:
    """Open turns without a live holder, the oldest first."""
    found = (
        Orphan(
            tenant=session.tenant,
            session_id=session.id,
            turn_id=turn.turn_id,
            holder=session.lease_node,
        )
        for session, turn in tables.held()
        if tables.holder_of(session, asking=node, now_ms=now_ms) != "alive"
    )
    return tuple(found)[:limit]


def acknowledge(tables: Tables, tenant: Tenant, turn_id: TurnId) -> None:
    turn = tables.find_turn(tenant, turn_id)
    if turn is not None:
        tables.put_turn(msgspec.structs.replace(turn, acked=True))


# ── signals ──────────────────────────────────────────────────────────────────────────────────


def signal(
    tables: Tables,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    kind: SignalKind,
    payload: bytes,
    attempt: Attempt | None,
    after: int | None,
    now_ms: int,
) -> SignalOutcome:
    turn = tables.find_turn(tenant, turn_id)
    if turn is None:
        raise SessionMissing("turn", turn_id)
    session = tables.sessions.get((tenant, turn.session_id))
    sent = tables.signals.get((tenant, turn_id), ())
    outcome = decisions.judge_signal(
        turn,
        session,
        last_n=sent[-1].n if sent else 0,
        attempt=attempt,
        claim=find_claim(tables, tenant, attempt) if attempt else None,
        after=after,
    )
    if isinstance(outcome, Signalled):
        tables.signals[tenant, turn_id].append(
            SignalRow(
                tenant=tenant,
                turn_id=turn_id,
                n=outcome.n,
                kind=kind,
                payload=payload,
                at_ms=now_ms,
            )
        )
        if attempt is not None:
            claim_key(tables, tenant, attempt, turn_id, steer=outcome.n)
    return outcome


def signals(tables: Tables, node: NodeId) -> tuple[SignalRow, ...]:
    """Every signal that waits for an open turn of this node, oldest first."""
    waiting = (
        each
        for session, turn in tables.held()
        if session.lease_node == node
        for each in tables.signals.get((session.tenant, turn.turn_id), ())
        if not each.consumed
    )
    return tuple(sorted(waiting, key=lambda each: (each.at_ms, each.tenant, each.turn_id, each.n)))
