"""Item references: an `item_reference` in a request becomes the item, as if the client had sent it again."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.approval_questions import question_in
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Snapshot, seen_by_people
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Item
from holdfast.ids import CallId, ItemId, ResponseId, SessionId, Tenant
from holdfast.sessions.sessions import Sessions
from holdfast.wire.openai.responses.item_addresses import read_address
from holdfast.wire.openai.responses.items import (
    InputPiece,
    ItemReference,
    brought_along,
    by_id,
    find_item,
    question_message,
    unknown_item,
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
        self._known: dict[SessionId, dict[str, Item]] = {}
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
                raise unknown_item(each.id, param="input")
            said = brought_along(item)
            if said is not None:
                found.append(said)
        return tuple(found)

    async def _find(self, reference: ItemReference) -> Item | None:
        address = read_address(reference.id)
        session_id = (address and address.session_id) or await self._here()
        if session_id is None:
            return None
        items = await self._items(session_id)
        found = find_item(items, reference.id)
        if found is None and address is not None:
            return await self._question(session_id, items, address.item)
        return found

    async def _question(
        self, session_id: SessionId, items: dict[str, Item], name: ItemId
    ) -> Item | None:
        """The server's question about waiting calls, which is a message of an output and no item."""
        call = items.get(CallId.from_body(name.body))
        snapshot = await self._sessions.snapshot(self._tenant, session_id) if call else None
        if snapshot is None:
            return None
        for mark in reversed(snapshot.marks.since(0)):
            question = question_in(snapshot.said_by(mark), mark.turn_id)
            if question is not None and call in question.calls:
                return question_message(question.text, question.calls)
        return None

    async def _here(self) -> SessionId | None:
        if self._line is None and self._previous is not None:
            row = await self._sessions.store.turn(self._tenant, self._previous.turn_id)
            self._line = row.session_id if row else None
        return self._line

    async def _items(self, session_id: SessionId) -> dict[str, Item]:
        if session_id not in self._known:
            snapshot = await self._sessions.snapshot(self._tenant, session_id)
            self._known[session_id] = _by_id(snapshot) if snapshot else {}
        return self._known[session_id]


def _by_id(snapshot: Snapshot) -> dict[str, Item]:
    seen = seen_by_people(snapshot)
    return by_id(each for each in seen if not isinstance(each, Unreadable))
