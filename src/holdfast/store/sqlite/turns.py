"""The transactions of a turn, as functions of a connection. Here: append, T2, end; T1 is in `begin.py`.

Each runs whole inside the writer's transaction: it reads the rows, asks `store/decisions.py`, and writes
what was decided. None of them commits, and any of them may be run again from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from apsw import Connection

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.conversation import Commit
from holdfast.core.events import MemoryAdded, MemoryDeleted, StateSet
from holdfast.core.items import EndedBy, path_text
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.base import Attempt, CommitOutcome, Committed, Fence, Settlement
from holdfast.store.opening import opening_of
from holdfast.store.rows import SessionRow, SignalKind, SignalRow, TurnRow
from holdfast.store.sqlite import tables
from holdfast.store.sqlite.tables import only, ordered, queries, run

_INSERT_JOURNAL = ordered("insert_journal", "tenant", "turn_id", "n", "token", "records")
_DELETE_JOURNAL = ordered("delete_journal", "tenant", "turn_id")
_COMMIT_FACTS = ordered("commit_facts", "tenant", "turn_id", "session_id")
_APPEND_FACTS = ordered("append_facts", "tenant", "turn_id", "n", "session_id")
_CONSUME_SIGNAL = queries["consume_signal"]
_INSERT_ITEM = queries["insert_item"]
_COMMIT_TURN = ordered(
    "commit_turn",
    *("seq", "ended_by", "detail", "agent", "start", "end", "rev", "changes", "link", "usage"),
    *("ended_ms", "links", "replayable", "tenant", "turn_id"),
)
_ADVANCE_SESSION = ordered(
    "advance_session",
    *("head", "length", "link", "agent", "opening", "source_key", "entry_agent", "active_ms"),
    *("unfinished", "retries_left", "tenant", "session_id"),
)

_CLAIM_KEEP_MS = int(limits.idempotency_keep_s * 1000)
"""How long an idempotency key is kept after its turn has ended."""

# ── finding ──────────────────────────────────────────────────────────────────────────────────


def find_session(db: Connection, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
    return tables.session_rows.one(db, "session", tenant=tenant, id=session_id)


def find_turn(db: Connection, tenant: Tenant, turn_id: TurnId | None) -> TurnRow | None:
    if turn_id is None:
        return None
    return tables.turn_rows.one(db, "turn", tenant=tenant, turn_id=turn_id)


def turn_unfinished(db: Connection, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
    return tables.turn_rows.one(db, "turn_unfinished", tenant=tenant, request_hash=request_hash)


def turn_at(db: Connection, session: SessionRow, version: int) -> TurnRow | None:
    """The turn that made a version of this very session."""
    return tables.turn_rows.one(
        db, "turn_at", tenant=session.tenant, session_id=session.id, seq=version
    )


def earlier_turn(db: Connection, session: SessionRow, attempt: Attempt) -> TurnRow | None:
    """The last turn before the head that was kept and that the same request began, if an SDK counts its retries."""
    if not attempt.client_attempt:
        return None
    return tables.turn_rows.one(
        db,
        "earlier_turn",
        tenant=session.tenant,
        session_id=session.id,
        head=session.head,
        after=session.head - limits.recognised_versions,
        request_hash=attempt.request_hash,
    )


def queued_of(db: Connection, session: SessionRow, *, limit: int = -1) -> tuple[TurnRow, ...]:
    """The turns that wait for a session, in the order in which they came."""
    return tables.turn_rows.all(
        db, "queued_of", tenant=session.tenant, session_id=session.id, limit=limit
    )


def waiting_signals(
    db: Connection, tenant: Tenant, turn_id: TurnId, kind: SignalKind
) -> tuple[SignalRow, ...]:
    return tables.signal_rows.all(db, "waiting_signals", tenant=tenant, turn_id=turn_id, kind=kind)


# ── append ───────────────────────────────────────────────────────────────────────────────────


def append(
    db: Connection, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int]
) -> None:
    session, last_n, same_n = _append_facts(db, fence, n=n)
    decisions.demand_fence(fence, session)
    for each in consumed:
        db.execute(_CONSUME_SIGNAL, (fence.tenant, fence.turn_id, each))
    if decisions.judge_append(n, records, last_n=last_n, same_n=same_n):
        insert_journal(db, fence, n=n, records=records)


def _append_facts(
    db: Connection, fence: Fence, *, n: int
) -> tuple[SessionRow | None, int, bytes | None]:
    """The session, the number of the journal's last row, and the records that are there under `n`."""
    row = only(db, _APPEND_FACTS, (fence.tenant, fence.turn_id, n, fence.session_id))
    last_n, same_n = row[tables.session_rows.width :]
    assert isinstance(last_n, int) and not isinstance(same_n, str | int | float)
    return tables.session_rows.joined(row, 0), last_n, same_n


def insert_journal(db: Connection, fence: Fence, *, n: int, records: bytes) -> None:
    db.execute(_INSERT_JOURNAL, (fence.tenant, fence.turn_id, n, fence.token, records))


# ── commit ───────────────────────────────────────────────────────────────────────────────────


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
    tenant, turn_id = fence.tenant, fence.turn_id
    row = only(db, _COMMIT_FACTS, (tenant, turn_id, fence.session_id))
    session = tables.session_rows.joined(row, 0)
    replayable, last_n, steered, claimed = row[tables.session_rows.width :]
    assert isinstance(last_n, int)
    # A turn that is open has not been committed before; of any other we have to know how it ended.
    is_open = session is not None and session.open_turn == turn_id
    found = decisions.judge_commit(
        fence,
        made,
        session=session,
        turn=None if is_open else find_turn(db, tenant, turn_id),
        steers=waiting_signals(db, tenant, turn_id, "steer") if steered else (),
        n=n,
        last_n=last_n,
    )
    if found is not None:
        return found
    assert session is not None, "judge_commit lets only held turns through"
    assert replayable is not None, "an open turn has a row"
    kept = made.keeps_journal(replayable=bool(replayable))
    _write_content(db, session, made, now_ms=now_ms)
    _write_turn(db, fence, session, made, kept=kept, now_ms=now_ms)
    if kept and records:
        insert_journal(db, fence, n=n, records=records)
    elif not kept:
        db.execute(_DELETE_JOURNAL, (tenant, turn_id))
    if claimed:
        _settle(db, tenant, turn_id, settlement, now_ms=now_ms)
    return Committed(version=made.version, at_ms=now_ms)


def _write_content(db: Connection, session: SessionRow, made: Commit, *, now_ms: int) -> None:
    """Items, state and memories."""
    tenant, session_id = session.tenant, session.id
    pairs = zip(made.items, made.encoded, strict=True)
    db.executemany(
        _INSERT_ITEM,
        (
            (tenant, session_id, pos, made.turn_id, path_text(item.path), body)
            for pos, (item, body) in enumerate(pairs, start=session.length)
        ),
    )
    if made.changes:
        _write_changes(db, session, made, now_ms=now_ms)


def _write_changes(db: Connection, session: SessionRow, made: Commit, *, now_ms: int) -> None:
    tenant, session_id = session.tenant, session.id
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
    db: Connection, fence: Fence, session: SessionRow, made: Commit, *, kept: bool, now_ms: int
) -> None:
    """The turn's row, and the session's next version. `kept`: its journal is."""
    end = session.length + len(made.items)
    db.execute(
        _COMMIT_TURN,
        (
            *(made.version, made.ended_by, made.detail, made.agent, session.length, end),
            *(session.meta_rev, encode(made.changes), made.link, encode(made.usage), now_ms),
            *(made.links, kept, fence.tenant, fence.turn_id),
        ),
    )
    db.execute(
        _ADVANCE_SESSION,
        (
            *(made.version, end, made.link, made.agent),
            # Who and what it is for is said by the first commit; it is not worked out again.
            session.opening or opening_of(made.items),
            *(made.source_key, made.entry_agent, now_ms, made.unfinished, made.retries_left),
            *(session.tenant, session.id),
        ),
    )


# ── end ──────────────────────────────────────────────────────────────────────────────────────


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
    session, last_n, same_n = _append_facts(db, fence, n=n)
    ended = decisions.judge_end(fence, session=session, turn=turn)
    if ended is not None:
        return ended
    assert session is not None and turn is not None, "judge_end lets only held turns through"
    if decisions.judge_append(n, records, last_n=last_n, same_n=same_n):
        insert_journal(db, fence, n=n, records=records)
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
    """End an open or queued turn's row without adding anything to its session."""
    run(
        db,
        "discard_turn",
        tenant=turn.tenant,
        turn_id=turn.turn_id,
        ended_by=ended_by,
        detail=detail,
        ended_ms=now_ms,
    )
    if turn.continues is not None and ended_by != "deleted":
        run(
            db,
            "return_keys",
            tenant=turn.tenant,
            turn_id=turn.turn_id,
            to_turn=turn.continues,
            expires_ms=now_ms + _CLAIM_KEEP_MS,
        )
    _settle(db, turn.tenant, turn.turn_id, settlement, now_ms=now_ms)
    return msgspec.structs.replace(
        turn, state="discarded", ended_by=ended_by, detail=detail, ended_ms=now_ms
    )


def _settle(
    db: Connection, tenant: Tenant, turn_id: TurnId, settlement: Settlement, *, now_ms: int
) -> None:
    run(
        db,
        "settle_keys",
        tenant=tenant,
        turn_id=turn_id,
        state=settlement,
        expires_ms=now_ms + _CLAIM_KEEP_MS,
    )
