"""The transactions of a turn, as work on the database: T1, T2, end, takeover, signals.

Each reads what it has to know, asks `store/decisions.py`, and writes what was decided by one statement, on
condition that the session's stamp is still the one that was read. See `engine.py` for why that is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.core import chain
from holdfast.core.codec import Value, encode
from holdfast.core.conversation import Commit
from holdfast.core.events import Began, MemoryAdded, MemoryDeleted, StateSet
from holdfast.core.items import EndedBy, SessionSettings, path_text
from holdfast.core.journal import encode_records, numbered
from holdfast.errors import SessionMissing
from holdfast.ids import NodeId, SessionId, SessionKey, Tenant, TurnId
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
from holdfast.store.postgres import tables
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.tables import Bound, utf8
from holdfast.store.rows import IdempotencyRow, NodeRow, SessionRow, SignalKind, SignalRow, TurnRow

NO_LINEAGE = encode(())
NO_SETTINGS = encode(SessionSettings())

# ── begin ────────────────────────────────────────────────────────────────────────────────────


async def find_attempt(
    db: Db, tenant: Tenant, attempt: Attempt, target: Target | None
) -> Joined | Replay | Mismatch | Gone | None:
    if attempt.key is not None:
        facts = await db.facts("claim_facts", tenant=tenant, key=attempt.key)
        now_ms = facts.number()
        known = decisions.judge_claim(attempt, _claim(facts), now_ms=now_ms)
        if known is not None:
            return known
    if target is None or not attempt.client_attempt:
        return None
    found = await _recognising(db, tenant, target)
    return decisions.recognised(
        attempt,
        found.session,
        open_turn=found.open_turn,
        head_turn=found.head_turn,
        now_ms=found.now_ms,
    )


def _claim(facts: tables.Reader) -> decisions.Claim | None:
    row, turn = facts.one(tables.claims), facts.one(tables.turns)
    session = facts.one(tables.sessions)
    return decisions.Claim(row=row, turn=turn, session=session) if row else None


class _Recognising(Value):
    """What an SDK's own retry is recognised by."""

    now_ms: int
    session: SessionRow | None
    open_turn: TurnRow | None
    head_turn: TurnRow | None


async def _recognising(db: Db, tenant: Tenant, target: Target) -> _Recognising:
    key, session_id = _named(target)
    facts = await db.facts("target_facts", tenant=tenant, key=key, session_id=session_id)
    return _Recognising(
        now_ms=facts.number(),
        session=facts.one(tables.sessions),
        open_turn=facts.one(tables.turns),
        head_turn=facts.one(tables.turns),
    )


def _named(target: Target) -> tuple[SessionKey | None, SessionId]:
    """A target's key, and the id that it means if the key means none."""
    match target:
        case ById(session_id=session_id) | Anonymous(fresh=session_id):
            return None, session_id
        case ByKey(key=key, fresh=fresh):
            # An id that the request has brought is taken already if the request comes again, late.
            return key, fresh


class _Beginning(Value):
    """What T1 has read, and the stamp of the session that it was read under."""

    facts: decisions.BeginFacts
    stamp: int


async def begin(db: Db, ask: Begin) -> BeginOutcome:
    """T1."""
    found = await _begin_facts(db, ask)
    outcome = decisions.judge_begin(ask, found.facts)
    if isinstance(outcome, Started) and found.facts.own_turn is None:
        await _open(db, ask, outcome, found)
    return outcome


async def _begin_facts(db: Db, ask: Begin) -> _Beginning:
    """One read in the ordinary case. What a retry needs besides is read later, and is as true then."""
    tenant, turn_id = ask.tenant, ask.request.turn_id
    key, session_id = _named(ask.target)
    read = await db.facts(
        "begin_facts",
        tenant=tenant,
        node=ask.node,
        key=key,
        session_id=session_id,
        turn_id=turn_id,
        claim=ask.attempt.key,
    )
    now_ms, node, key_row = read.number(), read.one(tables.nodes), read.one(tables.keys)
    session, stamp, holder = read.one(tables.sessions), read.number(), read.one(tables.nodes)
    has_begun, claim_row = read.value() is not None, read.one(tables.claims)
    facts = decisions.BeginFacts(
        now_ms=now_ms,
        node=node,
        claim=await _claim_of(db, claim_row) if claim_row else None,
        key=key_row,
        session=session,
        holder=_judged(session, holder, asking=ask.node, now_ms=now_ms),
    )
    if session is not None and ask.attempt.client_attempt:
        found = await _recognising(db, tenant, ById(session_id=session.id))
        facts = msgspec.structs.replace(facts, open_turn=found.open_turn, head_turn=found.head_turn)
    if has_begun:
        own = await db.facts("own_facts", tenant=tenant, turn_id=turn_id)
        facts = msgspec.structs.replace(
            facts, own_turn=own.one(tables.turns), own_session=own.one(tables.sessions)
        )
    return _Beginning(facts=facts, stamp=stamp)


async def _claim_of(db: Db, row: IdempotencyRow) -> decisions.Claim:
    found = await db.row("own_facts", tenant=row.tenant, turn_id=row.turn_id)
    if found is None:
        return decisions.Claim(row=row, turn=None, session=None)
    facts = tables.Reader(found)
    return decisions.Claim(
        row=row, turn=facts.one(tables.turns), session=facts.one(tables.sessions)
    )


def _judged(
    session: SessionRow | None, holder: NodeRow | None, *, asking: NodeId, now_ms: int
) -> decisions.Holder:
    """What is known about the node that holds a session."""
    node = session.lease_node if session else None
    return decisions.judge_holder(node, holder, asking=asking, now_ms=now_ms)


async def _open(db: Db, ask: Begin, started: Started, found: _Beginning) -> None:
    fence, facts = started.fence, found.facts
    turn = _first_row(ask, started, now_ms=facts.now_ms)
    record = encode_records(numbered((Began(request=ask.request),), first=0, at_ms=facts.now_ms))
    written: dict[str, Bound] = {
        **tables.turns.bound(turn),
        "nonce": fence.nonce,
        "node": ask.node,
        "records": record,
        "claim": ask.attempt.key,
        "replaced": facts.claim.row.turn_id if facts.claim else None,
    }
    if facts.session is not None:
        await db.write_as_read("open_turn", stamp=found.stamp, **written)
        return
    await db.write_as_read(
        "open_session",
        key=ask.target.key if isinstance(ask.target, ByKey) else None,
        genesis=chain.GENESIS,
        lineage=NO_LINEAGE,
        settings=NO_SETTINGS,
        anonymous=isinstance(ask.target, Anonymous),
        **written,
    )


def _first_row(ask: Begin, started: Started, *, now_ms: int) -> TurnRow:
    request, attempt = ask.request, ask.attempt
    return TurnRow(
        tenant=ask.tenant,
        turn_id=request.turn_id,
        session_id=started.fence.session_id,
        base_head=request.base,
        state="open",
        retry_of=started.retry_of,
        client_attempt=attempt.client_attempt,
        lease_token=started.fence.token,
        agent=request.agent,
        source_digest=request.source_digest,
        request_hash=attempt.request_hash,
        replayable=request.replayable,
        began_ms=now_ms,
    )


# ── append ───────────────────────────────────────────────────────────────────────────────────


async def append(
    db: Db, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
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
    is_new = decisions.judge_append(n, records, last_n=facts.value(), same_n=facts.value())
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


def _own(fence: Fence) -> dict[str, Bound]:
    return {"tenant": fence.tenant, "session_id": fence.session_id, "turn_id": fence.turn_id}


# ── commit and end ───────────────────────────────────────────────────────────────────────────


class _Ending(Value):
    """What T2 has read."""

    now_ms: int
    session: SessionRow | None
    stamp: int
    turn: TurnRow | None
    last_n: int
    signals: tuple[SignalRow, ...]
    """Those that wait."""


async def _ending(db: Db, fence: Fence) -> _Ending:
    facts = await db.facts("commit_facts", **_own(fence))
    now_ms, session, stamp = facts.number(), facts.one(tables.sessions), facts.number()
    turn, last_n, is_spoken_to = facts.one(tables.turns), facts.value(), facts.value()
    # Read later than the session's stamp: whoever speaks moves it.
    signals = await waiting_signals(db, fence.tenant, fence.turn_id) if is_spoken_to else ()
    return _Ending(
        now_ms=now_ms, session=session, stamp=stamp, turn=turn, last_n=last_n, signals=signals
    )


async def commit(
    db: Db, fence: Fence, made: Commit, *, n: int, records: bytes, settlement: Settlement
) -> CommitOutcome:
    """T2."""
    found = await _ending(db, fence)
    known = decisions.judge_commit(
        fence,
        made,
        session=found.session,
        turn=found.turn,
        steers=decisions.waiting_steers(found.signals),
        n=n,
        last_n=found.last_n,
    )
    if known is not None:
        return known
    written = _committed(fence, made, found, settlement=settlement)
    written |= {"n": n, "records": records}
    memories = [each for each in made.changes if isinstance(each, MemoryAdded | MemoryDeleted)]
    if not memories:
        await db.write_as_read("commit_turn", **written)
        return Committed(version=made.version, at_ms=found.now_ms)
    async with db.transaction():
        await db.write_as_read("commit_turn", **written)
        for change in memories:
            await _remember(db, fence, change, now_ms=found.now_ms)
    return Committed(version=made.version, at_ms=found.now_ms)


def _committed(
    fence: Fence, made: Commit, found: _Ending, *, settlement: Settlement
) -> dict[str, Bound]:
    session, turn = found.session, found.turn
    assert session is not None and turn is not None, "judge_commit lets only held turns through"
    # The last word on each name counts, as in `changed_state`.
    values = {each.name: each.value for each in made.changes if isinstance(each, StateSet)}
    return {
        **_own(fence),
        "stamp": found.stamp,
        "token": fence.token,
        "seq": made.version,
        "ended_by": made.ended_by,
        "detail": utf8(made.detail),
        "agent": utf8(made.agent),
        "source_key": utf8(made.source_key),
        "entry_agent": utf8(made.entry_agent),
        "opening": utf8(opening_of(made.items)),
        "start": session.length,
        "end": session.length + len(made.items),
        "rev": session.meta_rev,
        "changes": encode(made.changes),
        "link": made.link,
        "usage": encode(made.usage),
        "replayable": turn.replayable,
        "paths": [path_text(item.path) for item in made.items],
        "bodies": list(made.encoded),
        "names": [utf8(name) for name in values],
        "values": [utf8(value) for value in values.values()],
        "ended_ms": found.now_ms,
        "settlement": settlement,
        "expires_ms": _claim_expires_ms(found.now_ms),
    }


async def _remember(
    db: Db, fence: Fence, change: MemoryAdded | MemoryDeleted, *, now_ms: int
) -> None:
    which: dict[str, Bound] = {
        "tenant": fence.tenant,
        "agent": utf8(change.agent),
        "memory_id": utf8(change.memory_id),
    }
    match change:
        case MemoryAdded():
            text = utf8(change.text)
            await db.write("add_memory", text=text, turn_id=fence.turn_id, at_ms=now_ms, **which)
        case MemoryDeleted():
            await db.write("delete_memory", **which)


def _claim_expires_ms(now_ms: int) -> int:
    return now_ms + int(limits.idempotency_keep_s * 1000)


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
    found = await _ending(db, fence)
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
        expires_ms=_claim_expires_ms(found.now_ms),
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
        holder=_judged(session, holder, asking=node, now_ms=now_ms),
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
    db: Db, tenant: Tenant, turn_id: TurnId, *, kind: SignalKind, payload: bytes
) -> Said:
    found = await db.row("signal_facts", tenant=tenant, turn_id=turn_id)
    if found is None:
        raise SessionMissing("turn", turn_id)
    facts = tables.Reader(found)
    now_ms, turn = facts.number(), facts.one(tables.turns)
    session, stamp, last_n = facts.one(tables.sessions), facts.number(), facts.number()
    assert turn is not None
    outcome = decisions.judge_signal(turn, session, last_n=last_n)
    if isinstance(outcome, TooLate):
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


async def find_session(db: Db, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
    return await db.one(tables.sessions, "session", tenant=tenant, id=session_id)


async def find_turn(db: Db, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
    return await db.one(tables.turns, "turn", tenant=tenant, turn_id=turn_id)


async def turn_at(db: Db, tenant: Tenant, session_id: SessionId, version: int) -> TurnRow | None:
    """The turn that made a version of this very session."""
    return await db.one(tables.turns, "turn_at", tenant=tenant, session_id=session_id, seq=version)
