"""What this process knows of sessions because it was the last to write them.

A write moves the session's stamp, and whoever wrote can work out what the row is now. That stays true for as long as
the stamp does, and the next write names the stamp in any case. So a process that goes on with a session begins and
commits its turns by one statement each, and reads nothing.

1. What is known is a proposal: the statement that builds on it touches nothing if somebody else has written since.
2. Only a yes comes of it. Whatever looks like a refusal, a repetition or a late commit is read before it is said.
3. It is used once, and known anew from what was written: a statement whose answer was lost leaves nothing behind.
4. A connection that breaks ends all of it. There may be another database behind the next one, a standby that has
   heard less, and there the same stamp can come a second time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store.base import Fence
from holdfast.store.rows import SessionRow


class Known(Value):
    """A session as our last write left it."""

    session: SessionRow
    stamp: int
    key: SessionKey | None
    """One that means it: whoever moves a key moves the stamp of what it meant."""
    last_n: int = -1
    """The first number of the last row in its open turn's journal."""
    replayable: bool = False
    """Whether its open turn is."""
    noted_s: float = 0.0
    """When that was, by our own clock."""


class Recall:
    """The sessions that were written last by us. `era` changes when a connection breaks."""

    def __init__(self, *, era: Callable[[], int]) -> None:
        self._era = era
        self._since = era()
        self._known: OrderedDict[tuple[Tenant, SessionId], Known] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Recall {len(self._known)} sessions>"

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def put(self, known: Known) -> None:
        """This is how we have written a session."""
        self._forget_former()
        place = known.session.tenant, known.session.id
        self._known[place] = known
        self._known.move_to_end(place)
        if len(self._known) > limits.known_rows_max:
            self._known.popitem(last=False)

    def take(
        self, tenant: Tenant, session_id: SessionId | None, *, key: SessionKey | None = None
    ) -> Known | None:
        """What is known of a session, for once; None if nothing is, or nothing about this key of it."""
        self._forget_former()
        if session_id is None:
            return None
        known = self._known.pop((tenant, session_id), None)
        return known if known is not None and key in (None, known.key) else None

    def moved(self, fence: Fence, *, stamp: int, n: int) -> None:
        """We have appended to a turn's journal, and this is the stamp now."""
        known = self.take(fence.tenant, fence.session_id)
        if known is not None and known.stamp + 1 == stamp:
            self.put(msgspec.structs.replace(known, stamp=stamp, last_n=n))

    def _forget_former(self) -> None:
        if self._since != self._era():
            self._since = self._era()
            self._known.clear()
