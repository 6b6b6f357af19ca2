"""The notes that clients have received their whole answers, on their way to the store."""

from __future__ import annotations

import asyncio
import logging

from holdfast.errors import StoreError
from holdfast.ids import Tenant, TurnId
from holdfast.store.outcomes import Attempt
from holdfast.store.store import Store

log = logging.getLogger("holdfast.sessions")


class ReceivedAnswers:
    """Writes acknowledgements to the store without making a client wait for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writing: dict[asyncio.Task[None], TurnId] = {}

    def __len__(self) -> int:
        """How many are not in the store yet."""
        return len(self._writing)

    def note(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Note that a client has received the answer of this turn. The store gets the note before any later request."""
        task = asyncio.create_task(self._write(tenant, turn_id), name="holdfast-handed-over")
        self._writing[task] = turn_id
        task.add_done_callback(self._writing.pop)

    async def is_noted(self, tenant: Tenant, turn_id: TurnId, *, by: Attempt) -> bool:
        """Whether the client of a request had received the answer of this turn before it made the request, as far as
        this node or the store knows. If an SDK repeats the turn's own request, it had not."""
        own = [task for task, noted in self._writing.items() if noted == turn_id]
        await asyncio.gather(*own)
        row = await self._store.turn(tenant, turn_id)
        if row is None or (by.client_attempt and by.request_hash == row.request_hash):
            return False
        return row.acked

    async def settle(self) -> None:
        """Wait until all notes are in the store, or have failed."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write(self, tenant: Tenant, turn_id: TurnId) -> None:
        try:
            await self._store.acknowledge(tenant, turn_id)
        except StoreError:
            pass  # the answer stands; a retry of it would get the same one again
        except Exception as error:
            # The same for an error that we do not know: the next request would be told of it.
            log.error("the receipt of turn %s was not noted", turn_id, exc_info=error)
