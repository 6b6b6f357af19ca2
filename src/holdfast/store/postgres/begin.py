"""T1, as work on the database: a request becomes a turn, or is told why not. See `turns.py` for the rules.

Whoever knows the session (`recall.py`) writes without reading, together with all others who are about to
(`gathering.py`). What that leaves out, and whatever else there is to a beginning, is looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core import chain
from holdfast.core.codec import Value, encode
from holdfast.core.items import SessionSettings
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store import base, decisions, shaping
from holdfast.store.base import (
    Anonymous,
    Attempt,
    Begin,
    BeginOutcome,
    ById,
    ByKey,
    Started,
    Target,
)
from holdfast.store.postgres import tables
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.gathering import Gathering
from holdfast.store.postgres.recall import Known, Recall
from holdfast.store.postgres.tables import Column
from holdfast.store.postgres.turns import claim_of, earlier_turn, judged, queued_of
from holdfast.store.rows import SessionRow, TurnRow

NO_LINEAGE = encode(())
NO_SETTINGS = encode(SessionSettings())


async def find_attempt(
    db: Db, tenant: Tenant, attempt: Attempt, target: Target | None
) -> base.Known | None:
    if attempt.key is not None:
        name = target.key if isinstance(target, ByKey) else None
        facts = await db.facts("claim_facts", tenant=tenant, key=attempt.key, name=name)
        claim, meant = _claim(facts), facts.value()
        meant = SessionId(meant) if meant else None
        known = decisions.judge_claim(attempt, claim, meant=meant)
        if known is not None:
            return known
    if target is None or not decisions.may_be_recognised(attempt):
        return None
    found = await _recognising(db, tenant, target)
    return decisions.recognised(
        attempt,
        found.session,
        open_turn=found.open_turn,
        head_turn=found.head_turn,
        earlier=await earlier_turn(db, found.session, attempt),
        queued=await queued_of(db, found.session) if attempt.client_attempt else (),
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
    key, session_id = decisions.named_by(target)
    facts = await db.facts("target_facts", tenant=tenant, key=key, session_id=session_id)
    return _Recognising(
        now_ms=facts.number(),
        session=facts.one(tables.sessions),
        open_turn=facts.one(tables.turns),
        head_turn=facts.one(tables.turns),
    )


class Beginning(Value):
    """What T1 has read, and the stamp of the session that it was read under."""

    facts: decisions.BeginFacts
    stamp: int


# ── many ─────────────────────────────────────────────────────────────────────────────────────

AT_ONCE = 2
"""Statements with beginnings on their way: while one is waiting for the disk, the next is worked on."""


class Proposed(Value):
    """A turn that starts on a session as it is known, and the values that are written then."""

    ask: Begin
    started: Started
    on: Known
    records: bytes
    row: dict[str, Column]


def propose(ask: Begin, engine: Engine, recall: Recall) -> Proposed | None:
    """A beginning on what is known; None if there is more to be looked at."""
    key, _ = decisions.named_by(ask.target)
    known = recall.take(ask.tenant, ask.expected, key=key)
    started = decisions.started_as_known(ask, known.session) if known else None
    if known is None or started is None:
        return None
    # Nothing is decided by when a turn began, so it may be reckoned.
    now_ms = engine.reckoned_ms(was_ms=known.session.active_ms, at_s=known.noted_s)
    records = shaping.first_record(ask, now_ms=now_ms)
    row = {**_written(ask, started, records, now_ms=now_ms), "stamp": known.stamp}
    return Proposed(ask=ask, started=started, on=known, records=records, row=row)


def gathered_begins(engine: Engine, recall: Recall) -> Gathering[Proposed, BeginOutcome]:
    """The way to T1 for beginnings on what is known."""

    async def alone(proposed: Proposed) -> BeginOutcome:
        return await engine.run(lambda db: begin(db, proposed.ask, recall))

    async def together(db: Db, group: Sequence[Proposed]) -> list[BeginOutcome | None]:
        begun = await _open_known(db, [each.row for each in group])
        done: list[BeginOutcome | None] = []
        for each in group:
            fence, on = each.started.fence, each.on
            if (fence.tenant, fence.turn_id) not in begun:
                done.append(None)
                continue
            _note(recall, each.ask, each.started, on.session, stamp=on.stamp + 1, key=on.key)
            done.append(each.started)
        return done

    return Gathering(
        engine,
        together,
        key=lambda proposed: proposed.started.fence.session_id,
        size=lambda proposed: len(proposed.records),
        alone=alone,
        at_once=AT_ONCE,
    )


async def _open_known(db: Db, rows: Sequence[dict[str, Column]]) -> set[tuple[str, str]]:
    """Tenants and ids of the turns that have begun."""
    shared = {name: rows[0][name] for name in ("changes", "usage")}  # nothing has happened yet
    columns = {name: [row[name] for row in rows] for name in rows[0].keys() - shared.keys()}
    written = await db.write("open_turns", **shared, **columns)
    return {(tenant, turn_id) for tenant, turn_id in written}


# ── one ──────────────────────────────────────────────────────────────────────────────────────


async def begin(db: Db, ask: Begin, recall: Recall) -> BeginOutcome:
    """T1, looked at closely."""
    found = await begin_facts(db, ask)
    outcome = decisions.judge_begin(ask, found.facts)
    if isinstance(outcome, Started) and found.facts.own_turn is None:
        await _open(db, ask, outcome, found, recall)
    return outcome


async def begin_facts(db: Db, ask: Begin) -> Beginning:
    """One read in the ordinary case. What a retry needs besides is read later, and is as true then."""
    tenant, turn_id = ask.tenant, ask.request.turn_id
    key, session_id = decisions.named_by(ask.target)
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
        claim=await claim_of(db, claim_row) if claim_row else None,
        key=key_row,
        session=session,
        holder=judged(session, holder, asking=ask.node, now_ms=now_ms),
    )
    if session is not None and decisions.looks_back(ask, session):
        found = await _recognising(db, tenant, ById(session_id=session.id))
        facts = msgspec.structs.replace(
            facts,
            open_turn=found.open_turn,
            head_turn=found.head_turn,
            earlier=await earlier_turn(db, session, ask.attempt),
            queued=await queued_of(db, session) if ask.attempt.client_attempt else (),
        )
    if ask.expire_after_ms is not None:
        horizon = await db.one(tables.horizons, "horizon")
        facts = msgspec.structs.replace(facts, horizon=horizon)
    if has_begun:
        own = await db.facts("own_facts", tenant=tenant, turn_id=turn_id)
        facts = msgspec.structs.replace(
            facts, own_turn=own.one(tables.turns), own_session=own.one(tables.sessions)
        )
    return Beginning(facts=facts, stamp=stamp)


async def _open(db: Db, ask: Begin, started: Started, found: Beginning, recall: Recall) -> None:
    facts = found.facts
    records = shaping.first_record(ask, now_ms=facts.now_ms)
    written = _written(ask, started, records, now_ms=facts.now_ms, continued=facts.head_turn)
    written["claim_hash"] = ask.attempt.request_hash
    written["replaced"] = facts.claim.row.turn_id if facts.claim else None
    key, _ = decisions.named_by(ask.target)
    if facts.session is not None:
        left = shaping.begun_session(facts.session, ask, started.fence).retries_left
        await db.write_as_read("open_turn", stamp=found.stamp, retries_left=left, **written)
        key = facts.key.key if facts.key else None
        _note(recall, ask, started, facts.session, stamp=found.stamp + 1, key=key)
        return
    await db.write_as_read(
        "open_session",
        key=key,
        genesis=chain.GENESIS,
        lineage=NO_LINEAGE,
        settings=NO_SETTINGS,
        anonymous=isinstance(ask.target, Anonymous),
        **written,
    )
    made = shaping.new_session(ask, started.fence, now_ms=facts.now_ms)
    _note(recall, ask, started, made, stamp=FIRST_STAMP, key=key)


FIRST_STAMP = 1
"""What the table gives to a session that is new."""


def _written(
    ask: Begin,
    started: Started,
    records: bytes,
    *,
    now_ms: int,
    continued: TurnRow | None = None,
) -> dict[str, Column]:
    turn = shaping.open_turn(ask, started, now_ms=now_ms, continued=continued)
    return {
        **tables.turns.bound(turn),
        "nonce": started.fence.nonce,
        "node": ask.node,
        "records": records,
        "claim": ask.attempt.key,
    }


def _note(
    recall: Recall,
    ask: Begin,
    started: Started,
    session: SessionRow,
    *,
    stamp: int,
    key: SessionKey | None,
) -> None:
    recall.put(
        Known(
            session=shaping.begun_session(session, ask, started.fence),
            stamp=stamp,
            key=key,
            last_n=0,
            replayable=ask.request.replayable,
        )
    )
