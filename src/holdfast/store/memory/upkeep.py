"""Retention, one small step at a time. `store/retention.py` says what may go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.ids import SessionId, Tenant
from holdfast.store import retention
from holdfast.store.base import Pruned
from holdfast.store.horizon import Horizon, believed, looked
from holdfast.store.memory import operations
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import SessionRow, TurnRow

Removal: TypeAlias = Callable[[], object]
"""Takes one thing away: a row, or a turn with its journal and signals."""


def prune(tables: Tables, *, limit: int, now_ms: int, trust_clock: bool) -> Pruned:
    """Remove up to `limit` things of what may go."""
    look = believed if trust_clock else looked
    horizon = tables.horizon = look(tables.horizon, now_ms)
    due = tuple(islice(_due(tables, horizon, now_ms=now_ms), limit))
    for remove in due:
        remove()
    # What went may have been all that kept something else here, so this looks again.
    more = any(True for _ in _due(tables, horizon, now_ms=now_ms))
    return Pruned(rows=len(due), more=more, behind_ms=horizon.behind_ms)


def _due(tables: Tables, horizon: Horizon, *, now_ms: int) -> Iterator[Removal]:
    """Everything that may go now. Nothing is removed while this looks."""
    for turn in tables.turns.values():
        if retention.discarded_may_go(turn, horizon):
            yield partial(_drop_turn, tables, turn)
        if retention.journal_may_go(turn, horizon):
            if turn.replayable:
                yield partial(_forget_replay, tables, turn)
            sent = tables.signals.get((turn.tenant, turn.turn_id), [])
            yield from (sent.pop for _ in sent)
    for place, claim in tables.claims.items():
        if retention.claim_may_go(claim, horizon):
            yield partial(tables.claims.pop, place)
    for session in tables.sessions.values():
        if retention.line_may_go(session, horizon):
            yield partial(operations.remove, tables, session.tenant, session.id, now_ms=now_ms)
    yield from _due_in_deleted(tables)
    yield from _due_blobs(tables, horizon)
    for owner, blobs in tables.blobs.items():
        if owner not in tables.sessions and owner[1] < retention.stray_blobs_before(horizon):
            yield from (partial(blobs.pop, digest, None) for digest in blobs)
    holders = {session.lease_node for session, _ in tables.held()}
    for node in tables.nodes.values():
        if node.node_id not in holders and retention.node_may_go(node, horizon):
            yield partial(tables.nodes.pop, node.node_id)


def _due_blobs(tables: Tables, horizon: Horizon) -> Iterator[Removal]:
    """Blobs of which it is time to look whether an item, or a journal, names them."""
    for owner, blobs in tables.blobs.items():
        for digest in blobs:
            place = (*owner, digest)
            noticed_ms = tables.blobs_noticed.setdefault(place, horizon.seen_ms)
            if 0 < noticed_ms <= horizon.before_ms(limits.discarded_keep_s):
                yield partial(_judge_blob, tables, *place)


def _judge_blob(tables: Tables, tenant: Tenant, session_id: SessionId, digest: str) -> None:
    readers = [
        place
        for place, session in tables.sessions.items()
        if place == (tenant, session_id)
        or (place[0] == tenant and any(s.session_id == session_id for s in session.lineage))
    ]
    named = any(
        digest.encode() in data
        for place in readers
        for data in (
            *(row.body for row in tables.items.get(place, ())),
            *(
                row.records
                for turn in tables.turns_of(*place)
                for row in tables.journals.get((tenant, turn.turn_id), ())
            ),
        )
    )
    if named:
        tables.blobs_noticed[tenant, session_id, digest] = 0
    else:
        tables.blobs[tenant, session_id].pop(digest, None)
        tables.blobs_noticed.pop((tenant, session_id, digest), None)


def _due_in_deleted(tables: Tables) -> Iterator[Removal]:
    read_on = {
        tenant: retention.still_read(
            each for each in tables.sessions.values() if each.tenant == tenant
        )
        for tenant in {tenant for tenant, _ in tables.sessions}
    }
    for session in tables.sessions.values():
        if session.state == "deleted" and session.id not in read_on[session.tenant]:
            yield from _due_in(tables, session)


def _due_in(tables: Tables, session: SessionRow) -> Iterator[Removal]:
    place = session.tenant, session.id
    for rows in (tables.items, tables.state, tables.annotations):
        held = rows.get(place, [])
        yield from (held.pop for _ in held)
    blobs = tables.blobs.get(place, {})
    yield from (partial(blobs.pop, digest, None) for digest in blobs)
    for turn in tables.turns_of(*place):
        if not tables.claims_of(turn):
            yield partial(_drop_turn, tables, turn)


def _drop_turn(tables: Tables, turn: TurnRow) -> None:
    place = turn.tenant, turn.turn_id
    tables.journals.pop(place, None)
    tables.signals.pop(place, None)
    tables.turns.pop(place, None)
    if turn.seq is not None:
        tables.versions[turn.tenant, turn.session_id].pop(turn.seq, None)


def _forget_replay(tables: Tables, turn: TurnRow) -> None:
    tables.journals.pop((turn.tenant, turn.turn_id), None)
    tables.put_turn(msgspec.structs.replace(turn, replayable=False))
