"""Turns as the store has them: found by id, whether they run, are complete or have failed.

The items of a turn are in the history once it is committed. Until then only its request is known, from record 0 of its
journal, which exists while the turn is open and as long as a discarded turn is kept.
"""

from __future__ import annotations

from holdfast.core.codec import Unreadable, Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Items
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, decode_records
from holdfast.ids import Tenant, TurnId
from holdfast.sessions.sessions import Sessions
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store


class LoadedTurn(Value):
    """A stored turn, and the conversation that it belongs to."""

    row: TurnRow
    snapshot: Snapshot
    """The conversation at its head."""
    items: Items
    """The items of the turn; until it is committed, the items of its request."""
    chain: Items = ()
    """The items of the turns that it continues."""
    by_retry: bool = False
    """A retry continues those turns, and not a user: then their items are the beginning of its answer."""
    begun: bool = True
    """Whether the turn has started to play. It has not while it waits for a node with room."""

    @property
    def before(self) -> Items:
        """The beginning of its answer: items of earlier turns, if this one is a retry that continues them."""
        return self.chain if self.by_retry else ()


async def stored_turn(sessions: Sessions, tenant: Tenant, turn_id: TurnId) -> LoadedTurn | None:
    """A turn by its id; None if there is none, or its conversation was deleted."""
    row = await sessions.store.turn(tenant, turn_id)
    snapshot = await sessions.snapshot(tenant, row.session_id) if row else None
    if row is None or snapshot is None:
        return None
    items: Items
    begun, links = True, row.links
    if row.state == "committed":
        stored = snapshot.items[row.start : row.end]
        items = tuple(each for each in stored if not isinstance(each, Unreadable))
    else:
        request, begun = await _request(sessions.store, tenant, row)
        items, links = (request.input, request.links) if request else ((), None)
    chain: Items = ()
    if row.continues is not None and 0 < row.base_head <= len(snapshot.marks):
        chain = snapshot.said_by(snapshot.marks[row.base_head - 1])
    return LoadedTurn(
        row=row,
        snapshot=snapshot,
        items=items,
        chain=chain,
        by_retry=bool(links),
        begun=begun,
    )


async def _request(
    store: Store, tenant: Tenant, row: TurnRow
) -> tuple[ev.TurnRequest | None, bool]:
    """The request of a turn, from record 0 of its journal, and whether the journal has more records."""
    request: ev.TurnRequest | None = None
    for each in await store.journal(tenant, row.turn_id):
        for record in decode_records(each.records):
            if isinstance(record, Record) and isinstance(record.event, ev.Began):
                request = record.event.request
            else:
                return request, True
    return request, False
