"""A `Session` for the OpenAI Agents SDK, whose turns are committed whole or not at all.

    session = HoldfastSession(sessions, "trip-to-oslo")
    result = await Runner.run(agent, "And the weather?", session=session)

The SDK adds items while a run goes on. They are held back until the answer is complete, and the items of a failed run
are dropped when the next run begins: so a run that is tried again does not find them in the history.

`pop_item` takes back the last turn, not the last item, since a history is made of whole turns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec

from holdfast.core.history.reconciliation import Incoming
from holdfast.errors import SessionMissing
from holdfast.ids import LOCAL, Tenant, Version
from holdfast.integrations.framework_turns import FrameworkConversation
from holdfast.sessions.sessions import Sessions
from holdfast.wire.openai.responses.dialect import input_of
from holdfast.wire.openai.responses.items import read_input

ItemObject: TypeAlias = dict[str, Any]
"""An input item of the Responses API; the SDK's TResponseInputItem."""

_WANTS = "function_call"
_CAME = "function_call_output"


class HoldfastSession:
    """One conversation. Concurrent runs need one object each."""

    session_settings = None

    def __init__(self, sessions: Sessions, key: str, *, tenant: Tenant = LOCAL) -> None:
        self.session_id = key
        self._conversation = FrameworkConversation(sessions, key, tenant=tenant)
        self._base = Version(0)
        self._staged: list[ItemObject] = []

    async def get_items(self, limit: int | None = None) -> list[ItemObject]:
        """The items that the model sees: of committed turns only, nothing of an unfinished run."""
        self._staged = []
        self._base, items = await self._conversation.read()
        found = [_plain(each) for each in input_of(items)]
        return found if limit is None else found[-limit:] if limit > 0 else []

    async def add_items(self, items: Sequence[ItemObject]) -> None:
        """Add items of a run; the last one commits its turn. Raises SessionConflict if another turn came first."""
        self._staged += items
        if is_whole(self._staged):
            await self._commit()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """For runs that end without a final message, such as with `stop_on_first_tool`: the block is the turn."""
        yield
        if self._staged and not _unanswered(self._staged):
            await self._commit()

    async def pop_item(self) -> ItemObject | None:
        """Take back the last item of the present run; without one, the whole last turn."""
        if self._staged:
            return self._staged.pop()
        self._base, items = await self._conversation.read()
        found = [_plain(each) for each in input_of(items)]
        if not found:
            return None
        self._base = await self._conversation.take_back(self._base)
        return found[-1]

    async def clear_session(self) -> None:
        """Begin an empty session under the same key."""
        self._staged = []
        self._base = Version(0)
        try:
            await self._conversation.begin_anew()
        except SessionMissing:  # the key has no session
            return

    async def _commit(self) -> None:
        staged, self._staged = self._staged, []
        said = read_input(msgspec.json.encode(staged), param="items")
        messages = tuple(each for each in said if isinstance(each, Incoming))
        self._base = await self._conversation.add(messages, base=self._base)


def is_whole(items: Sequence[ItemObject]) -> bool:
    """Whether a run is complete: its last item is a message of the model, and no call lacks its result."""
    if not items or items[-1].get("role") != "assistant":
        return False
    return not _unanswered(items)


def _unanswered(items: Sequence[ItemObject]) -> set[object]:
    asked = {each.get("call_id") for each in items if each.get("type") == _WANTS}
    return asked - {each.get("call_id") for each in items if each.get("type") == _CAME}


def _plain(item: object) -> ItemObject:
    plain: ItemObject = msgspec.json.decode(msgspec.json.encode(item))
    return plain
