"""A store as a run has left it, for the checker."""

from __future__ import annotations

from holdfast.core.items import ToolCall, ToolResult, item_decoder
from holdfast.core.turns.journal import Record, decode_records, fold
from holdfast.ids import SessionId, Tenant
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from tests.simulation.history import FoundSession, FoundTurn, Shown


async def find_all(store: Store, tenant: Tenant) -> tuple[FoundSession, ...]:
    """Every session with its turns, in every state."""
    found = []
    after: SessionId | None = None
    while page := await store.session_ids(tenant, after=after, limit=100):
        after = page[-1]
        found += [await _found(store, tenant, session_id) for session_id in page]
    return tuple(found)


async def _found(store: Store, tenant: Tenant, session_id: SessionId) -> FoundSession:
    dump = await store.dump(tenant, session_id)
    row = await store.session(tenant, session_id)
    assert dump is not None and row is not None
    rows = await store.turns(tenant, session_id, limit=1000)
    bodies: dict[str, list[bytes]] = {}
    for item in dump.items:
        bodies.setdefault(item.turn_id, []).append(item.body)
    turns = [await _found_turn(store, each, bodies.get(each.turn_id, [])) for each in rows[::-1]]
    return FoundSession(dump=dump, turns=tuple(turns), open_turn=row.open_turn)


async def _found_turn(store: Store, row: TurnRow, bodies: list[bytes]) -> FoundTurn:
    items = tuple(map(item_decoder.lenient, bodies))
    rows = await store.journal(row.tenant, row.turn_id)
    records = [record for each in rows for record in decode_records(each.records)]
    folded = fold(records)
    journal = tuple(
        Shown(n=each.n, event=each.event) for each in records if isinstance(each, Record)
    )
    acted = folded.turn.acted if folded.turn else _acted(items)
    return FoundTurn(row=row, items=items, journal=journal, acted=acted)


def _acted(items: tuple[object, ...]) -> bool:
    started = {
        each.call
        for each in items
        if isinstance(each, ToolResult) and each.outcome in ("ok", "error", "unknown")
    }
    return any(
        isinstance(each, ToolCall) and each.id in started and each.name in ("act", "again")
        for each in items
    )
