"""Retention, one small step at a time. `store/retention.py` says what may go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.store import retention
from holdfast.store.base import Pruned
from holdfast.store.horizon import Horizon, believed, looked
from holdfast.store.memory.tables import Tables
from holdfast.store.operations import sessions
from holdfast.store.rows import BlobRow, SessionRow, TurnRow
from holdfast.store.tables import BLOBS, HORIZON, JOURNAL, SIGNALS, TURNS

Removal: TypeAlias = Callable[[], object]
"""Takes one thing away: a row, or a turn with its journal and signals."""


def prune(tables: Tables, *, limit: int, now_ms: int, trust_clock: bool) -> Pruned:
    """Remove up to `limit` things of what may go."""
    look = believed if trust_clock else looked
    horizon = look(tables.horizon, now_ms)
    tables.of(HORIZON).put(horizon)
    due = tuple(islice(_due(tables, horizon, now_ms=now_ms), limit))
    for remove in due:
        remove()
    # What went may have been all that kept something else here, so this looks again.
    more = any(True for _ in _due(tables, horizon, now_ms=now_ms))
    return Pruned(rows=len(due), more=more, behind_ms=horizon.behind_ms)


def _due(tables: Tables, horizon: Horizon, *, now_ms: int) -> Iterator[Removal]:
    """Everything that may go now. Nothing is removed while this looks."""
    for turn in tables.turns.by_key.values():
        if retention.discarded_may_go(turn, horizon):
            yield partial(_drop_turn, tables, turn)
        if retention.journal_may_go(turn, horizon):
            if turn.replayable:
                yield partial(_forget_replay, tables, turn)
            for sent in tables.signals_of(turn.tenant, turn.turn_id):
                yield partial(tables.signals.drop, SIGNALS.key_of(sent))
    for place, claim in tables.claims.by_key.items():
        if retention.claim_may_go(claim, horizon):
            yield partial(tables.claims.drop, place)
    for session in tables.sessions.by_key.values():
        if retention.line_may_go(session, horizon):
            yield partial(_remove, tables, session)
    yield from _due_in_deleted(tables)
    yield from _due_blobs(tables, horizon)
    for blob in tables.blobs.by_key.values():
        has_session = (blob.tenant, blob.session_id) in tables.sessions.by_key
        if not has_session and blob.session_id < retention.stray_blobs_before(horizon):
            yield partial(tables.blobs.drop, BLOBS.key_of(blob))
    holders = {session.lease_node for session, _ in tables.held()}
    for node in tables.nodes.by_key.values():
        if node.node_id not in holders and retention.node_may_go(node, horizon):
            yield partial(tables.nodes.drop, (node.node_id,))


def _due_blobs(tables: Tables, horizon: Horizon) -> Iterator[Removal]:
    """Blobs of which it is time to look whether an item, or a journal, names them."""
    for blob in tuple(tables.blobs.by_key.values()):
        if blob.noticed_ms is None:
            tables.blobs.put(msgspec.structs.replace(blob, noticed_ms=horizon.seen_ms))
        elif 0 < blob.noticed_ms <= horizon.before_ms(limits.discarded_keep_s):
            yield partial(_judge_blob, tables, blob)


def _judge_blob(tables: Tables, blob: BlobRow) -> None:
    tenant, digest = blob.tenant, blob.digest.encode()
    readers = [
        session
        for session in tables.sessions.where(("tenant",), (tenant,))
        if blob.session_id in (session.id, *(each.session_id for each in session.lineage))
    ]
    named = any(
        digest in data
        for session in readers
        for data in (
            *(row.body for row in tables.rows_of(tables.items, tenant, session.id)),
            *(
                row.records
                for turn in tables.turns_of(tenant, session.id)
                for row in tables.journal_of(tenant, turn.turn_id)
            ),
        )
    )
    if named:
        tables.blobs.put(msgspec.structs.replace(blob, noticed_ms=0))
    else:
        tables.blobs.drop(BLOBS.key_of(blob))


def _remove(tables: Tables, session: SessionRow) -> None:
    tables.run(sessions.remove(session.tenant, session.id))


def _due_in_deleted(tables: Tables) -> Iterator[Removal]:
    read_on = {
        tenant: retention.still_read(each for each in tables.sessions.where(("tenant",), (tenant,)))
        for tenant in {tenant for tenant, _ in tables.sessions.by_key}
    }
    for session in tables.sessions.by_key.values():
        if session.state == "deleted" and session.id not in read_on[session.tenant]:
            yield from _due_in(tables, session)


def _due_in(tables: Tables, session: SessionRow) -> Iterator[Removal]:
    place = session.tenant, session.id
    for rows in (tables.items, tables.state, tables.annotations, tables.blobs):
        for row in tables.rows_of(rows, *place):
            yield partial(rows.drop, rows.table.key_of(row))
    for turn in tables.turns_of(*place):
        if not tables.claims_of(turn):
            yield partial(_drop_turn, tables, turn)


def _drop_turn(tables: Tables, turn: TurnRow) -> None:
    _drop_journal(tables, turn)
    for sent in tables.signals_of(turn.tenant, turn.turn_id):
        tables.signals.drop(SIGNALS.key_of(sent))
    tables.turns.drop(TURNS.key_of(turn))


def _drop_journal(tables: Tables, turn: TurnRow) -> None:
    for row in tables.journal_of(turn.tenant, turn.turn_id):
        tables.journals.drop(JOURNAL.key_of(row))


def _forget_replay(tables: Tables, turn: TurnRow) -> None:
    _drop_journal(tables, turn)
    tables.turns.put(msgspec.structs.replace(turn, replayable=False))
