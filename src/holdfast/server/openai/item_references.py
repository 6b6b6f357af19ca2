"""Item references: an `item_reference` in a request becomes the item, as if the client had sent it again."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Snapshot, seen_by_people
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Item
from holdfast.ids import ItemId, ResponseId, SessionId, Tenant
from holdfast.sessions.sessions import Sessions
from holdfast.wire.openai.responses.items import (
    InputPiece,
    ItemReference,
    brought_along,
    joined,
    read_address,
    unknown_reference,
)


class ItemReferences:
    """The items that one request refers to."""

    def __init__(
        self,
        sessions: Sessions,
        tenant: Tenant,
        *,
        line: SessionId | None,
        previous: ResponseId | None,
        held: Snapshot | None = None,
    ) -> None:
        """An item id that names no session is looked up in the session `line`, in that of the response `previous`, or
        in the conversation `held`."""
        self._sessions = sessions
        self._tenant = tenant
        self._line = line
        self._previous = previous
        self._known: dict[SessionId, dict[ItemId, Item]] = {}
        if held is not None:
            self._line = held.session_id
            self._known[held.session_id] = _by_id(held)

    async def resolved(self, pieces: Iterable[InputPiece]) -> tuple[Incoming, ...]:
        """These pieces, with items in place of references. Raises Refused if a referenced item does not exist."""
        found: list[Incoming] = []
        for each in pieces:
            if isinstance(each, Incoming):
                found.append(each)
                continue
            item = await self._find(each)
            if item is None:
                raise unknown_reference(each.id)
            said = brought_along(item)
            if said is not None:
                found.append(said)
        return joined(found)

    async def _find(self, reference: ItemReference) -> Item | None:
        address = read_address(reference.id)
        if address is None:
            return None
        session_id = address.session_id or await self._here()
        if session_id is None:
            return None
        return (await self._items(session_id)).get(address.item)

    async def _here(self) -> SessionId | None:
        if self._line is None and self._previous is not None:
            row = await self._sessions.store.turn(self._tenant, self._previous.turn_id)
            self._line = row.session_id if row else None
        return self._line

    async def _items(self, session_id: SessionId) -> dict[ItemId, Item]:
        if session_id not in self._known:
            snapshot = await self._sessions.snapshot(self._tenant, session_id)
            self._known[session_id] = _by_id(snapshot) if snapshot else {}
        return self._known[session_id]


def _by_id(snapshot: Snapshot) -> dict[ItemId, Item]:
    seen = seen_by_people(snapshot)
    return {each.id: each for each in seen if not isinstance(each, Unreadable)}
