"""Retention, one small step at a time. `store/retention.py` says what may go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

import msgspec

from holdfast.store import retention
from holdfast.store.base import Pruned
from holdfast.store.memory import operations
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import SessionRow, TurnRow

Removal: TypeAlias = Callable[[], object]
"""Takes one thing away: a row, or a turn with its journal and signals."""


def prune(tables: Tables, *, limit: int, now_ms: int) -> Pruned:
    """Remove up to `limit` things of what may go."""
    due = tuple(islice(_due(tables, now_ms=now_ms), limit))
    for remove in due:
        remove()
    # What went may have been all that kept something else here, so this looks again.
    return Pruned(rows=len(due), more=any(True for _ in _due(tables, now_ms=now_ms)))


def _due(tables: Tables, *, now_ms: int) -> Iterator[Removal]:
    """Everything that may go now. Nothing is removed while this looks."""
    for turn in tables.turns.values():
        if retention.discarded_may_go(turn, now_ms=now_ms):
            yield partial(_drop_turn, tables, turn)
        if retention.journal_may_go(turn, now_ms=now_ms):
            if turn.replayable:
                yield partial(_forget_replay, tables, turn)
            sent = tables.signals.get((turn.tenant, turn.turn_id), [])
            yield from (sent.pop for _ in sent)
    for place, claim in tables.claims.items():
        if retention.claim_may_go(claim, now_ms=now_ms):
            yield partial(tables.claims.pop, place)
    for session in tables.sessions.values():
        if retention.line_may_go(session, now_ms=now_ms):
            yield partial(operations.remove, tables, session.tenant, session.id, now_ms=now_ms)
    yield from _due_in_deleted(tables)
    for owner, blobs in tables.blobs.items():
        if owner not in tables.sessions and retention.stray_blobs_may_go(owner[1], now_ms=now_ms):
            yield from (partial(blobs.pop, digest) for digest in blobs)
    holders = {session.lease_node for session, _ in tables.held()}
    for node in tables.nodes.values():
        if node.node_id not in holders and retention.node_may_go(node, now_ms=now_ms):
            yield partial(tables.nodes.pop, node.node_id)


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
    yield from (partial(blobs.pop, digest) for digest in blobs)
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
