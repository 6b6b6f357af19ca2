"""The ids under which clients see items: an item's own id, followed by the body of its session's id.

So an `item_reference` finds its item in later requests, however old it is, without an index of items. A bare id is
understood too, wherever the session is known.
"""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.errors import InvalidId
from holdfast.ids import CallId, ItemId, SessionId

_BODY_CHARS = 26
_REQUEST_PREFIX = "mcpr_"
"""A call that waits for an approval is shown as a request for it: the same address, with another prefix."""


class ItemAddress(Value):
    """Where an item is stored. `session_id` is None if the request names the session otherwise."""

    item: ItemId
    session_id: SessionId | None = None

    def __str__(self) -> str:
        return f"{self.item}{self.session_id.body}" if self.session_id else str(self.item)


def read_address(text: str) -> ItemAddress | None:
    """The address in a client's text; None if it is no address of ours."""
    if text.startswith(_REQUEST_PREFIX):
        text = CallId.prefix + text.removeprefix(_REQUEST_PREFIX)
    for cut, named in ((len(text), False), (len(text) - _BODY_CHARS, True)):
        try:
            item = ItemId(text[:cut])
            session_id = SessionId.from_body(text[cut:]) if named else None
        except InvalidId:
            continue
        return ItemAddress(item=item, session_id=session_id)
    return None


def approval_request_id(call: ItemId, session_id: SessionId | None) -> str:
    where = str(ItemAddress(item=call, session_id=session_id))
    return _REQUEST_PREFIX + where.removeprefix(CallId.prefix)
