"""Watching a turn: here, where it is played, or from anywhere else. Watching is not running.

A turn that this node plays is watched through its feed, event by event. Any other is followed through the
store: by plain reads of its journal, which holds every event of a replayable turn and the steps of a plain
one. A turn that changes hands while it is watched goes on being watched where it is played then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from holdfast import limits
from holdfast.core.codec import Unreadable
from holdfast.core.journal import Record, decode_records
from holdfast.errors import SessionMissing, StoreUnavailable
from holdfast.ids import Tenant, TurnId
from holdfast.sessions.ask import Admission, Ending, ending_of
from holdfast.sessions.transaction import LiveTurn, Lost
from holdfast.store.base import Store
from holdfast.store.rows import JournalRow


class Watch:
    """A place from which one sees a turn. As a context, it also says that somebody waits for the answer:
    when the last such client leaves, the turn's policy for disconnects decides."""

    def __init__(
        self, store: Store, tenant: Tenant, admission: Admission, live: LiveTurn | None
    ) -> None:
        self._store = store
        self._tenant = tenant
        self.admission = admission
        self.live = live
        """The turn, if this node plays it."""

    async def events(self, since: int = 0) -> AsyncIterator[Record]:
        """Every event from number `since` on, as it happens; ends with the turn.

        Elsewhere than where it is played, a plain turn shows its steps and not every token.
        """
        if self.live is not None:
            async for record in self.live.feed.watch(since):
                yield record
                since = record.n + 1
            if isinstance(await self.live.done, Ending):
                return
        async for record in followed(self._store, self._tenant, self.admission.turn_id, since):
            yield record

    async def ended(self) -> Ending:
        """Wait for the end, wherever the turn is played by then."""
        if self.live is not None:
            outcome = await self.live.wait_end()
            if not isinstance(outcome, Lost):
                return outcome
        return await ended_elsewhere(self._store, self._tenant, self.admission.turn_id)

    async def __aenter__(self) -> Self:
        if self.live is not None:
            self.live.join()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.leave()

    def __repr__(self) -> str:
        return f"<Watch {self.admission.turn_id} {'here' if self.live else 'elsewhere'}>"


async def followed(
    store: Store, tenant: Tenant, turn_id: TurnId, since: int
) -> AsyncIterator[Record]:
    """The records of a turn from number `since` on, read from its journal until it has ended."""
    while True:
        # In this order: what the row says to have ended is in the journal as a whole.
        ending = await find_ending(store, tenant, turn_id)
        async for record in journaled(store, tenant, turn_id, since):
            yield record
            since = record.n + 1
        if ending is not None:
            return
        await asyncio.sleep(limits.busy_poll_s)


async def journaled(
    store: Store, tenant: Tenant, turn_id: TurnId, since: int, upto: int | None = None
) -> AsyncIterator[Record]:
    """The records that a journal holds now, as far as they can be read.

    Waits while the store is away: a watcher has nothing else to do, and nothing to lose.
    """
    for row in await _read_journal(store, tenant, turn_id, since):
        for record in decode_records(row.records):
            if isinstance(record, Unreadable) or (upto is not None and record.n >= upto):
                return
            if record.n >= since:
                yield record


async def _read_journal(
    store: Store, tenant: Tenant, turn_id: TurnId, since: int
) -> tuple[JournalRow, ...]:
    while True:
        try:
            return await store.journal(tenant, turn_id, since=since)
        except StoreUnavailable:
            await asyncio.sleep(limits.busy_poll_s)


async def ended_elsewhere(store: Store, tenant: Tenant, turn_id: TurnId) -> Ending:
    """Wait until a turn's row says what became of it."""
    while True:
        ending = await find_ending(store, tenant, turn_id)
        if ending is not None:
            return ending
        await asyncio.sleep(limits.busy_poll_s)


async def find_ending(store: Store, tenant: Tenant, turn_id: TurnId) -> Ending | None:
    """What became of a turn; None while it is open, or the store is away for a moment."""
    try:
        row = await store.turn(tenant, turn_id)
    except StoreUnavailable:
        return None
    if row is None:
        raise SessionMissing("turn", turn_id)
    return ending_of(row)
