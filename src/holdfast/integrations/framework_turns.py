"""A turn that a framework's loop has played, committed to a session at once.

1. Nothing of a run is stored until its turn is complete: a run that fails, or a process that dies, leaves no trace.
2. The turn is committed on top of the version that the run has read. If another turn came first, nothing is added and
   SessionConflict is raised: the run answered an outdated conversation, and running it again is right.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.history.conversation import seen_by_model
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Item
from holdfast.errors import TurnFailed
from holdfast.ids import SessionKey, Tenant, Version
from holdfast.sessions.manual_turns import play_without_model
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions


class FrameworkConversation:
    """The session of a key, for a framework's loop: read it, then add one turn."""

    def __init__(self, sessions: Sessions, key: str, *, tenant: Tenant) -> None:
        self._sessions = sessions
        self._key = SessionKey(key)
        self._tenant = tenant

    async def read(self) -> tuple[Version, list[Item]]:
        """The items that the model sees, and their version; version 0 and no items if there is no session."""
        found = await self._sessions.store.resolve(self._tenant, self._key)
        if found is None:
            return Version(0), []
        snapshot = await self._sessions.snapshot(self._tenant, found.session_id)
        if snapshot is None:
            return Version(0), []
        return snapshot.version, list(seen_by_model(snapshot))

    async def add(self, messages: Iterable[Incoming], *, base: Version) -> Version:
        """Add a turn on top of a version. Raises SessionConflict, and adds nothing, if it is not the latest."""
        ask = Ask(
            tenant=self._tenant,
            name=self._key,
            messages=tuple(messages),
            if_match=base,
            system_is_stored=True,
            verbatim=True,
        )
        async with await self._sessions.submit(ask, play=play_without_model) as watch:
            ending = await watch.ended()
        if ending.version is None or not ending.ok:
            raise TurnFailed("model_error", f"the turn ended by {ending.by}: {ending.detail}")
        return ending.version

    async def take_back(self, base: Version) -> Version:
        """Bind the key to its session before the last turn; that turn stays under the old id."""
        await self._sessions.operations.rewind(self._tenant, self._key, Version(base - 1))
        return Version(base - 1)

    async def begin_anew(self) -> None:
        """Bind the key to a new, empty session; the old session stays under its id."""
        await self._sessions.operations.reset(self._tenant, self._key)
