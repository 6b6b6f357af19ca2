"""`Watch`: the events and the end of a turn, whichever node plays it. Watching does not run a turn.

A turn that this node plays is watched through its feed, event by event. Any other turn is followed through
plain reads of its journal, which holds every event of a replayable turn and the steps of a plain one. If
another node takes the turn over meanwhile, the watch follows it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Self

from holdfast.core.codec import Unreadable
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import SessionMissing, StoreUnavailable
from holdfast.ids import Tenant, TurnId
from holdfast.sessions.session_requests import Admission, Ending, ending_of
from holdfast.sessions.turns.feed import Take
from holdfast.sessions.turns.lease import Lease
from holdfast.sessions.turns.live_turn import LiveTurn, Lost
from holdfast.sessions.turns.store_retries import persistently, told_again
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store


class Watch:
    """A client's view of a turn. As a context, it also says that the client waits for the answer: when the last
    waiting client leaves, the turn's policy for disconnects decides."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        tenant: Tenant,
        admission: Admission,
        live: LiveTurn | None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._tenant = tenant
        self.admission = admission
        self.live = live
        """The turn, if this node plays it."""

    async def events(self, since: int = 0) -> AsyncIterator[Record]:
        """Every event from number `since` on, as it happens; ends with the turn.

        A plain turn that another node plays shows its steps, not every token.
        """
        async with aclosing(self.batches(since)) as batches:
            async for records in batches:
                for record in records:
                    yield record

    async def batches(
        self, since: int = 0, *, quiet_s: float | None = None, take: Take | None = None
    ) -> AsyncGenerator[Sequence[Record], None]:
        """The same events in batches; an empty batch each time that nothing has happened for `quiet_s`. Events of a
        turn that this node plays are offered to `take` the moment they happen."""
        if self.live is not None:
            feed = self.live.feed
            async with aclosing(feed.watch(since, quiet_s=quiet_s, take=take)) as shown:
                async for records in shown:
                    yield records
            since = max(since, feed.next_n)
            if isinstance(await self.live.done, Ending):
                return
            await self._demand_stored(self.live)
        turn_id = self.admission.turn_id
        elsewhere = followed(self._store, self._lease, self._tenant, turn_id, since)
        async with aclosing(elsewhere if quiet_s is None else paused(elsewhere, quiet_s)) as read:
            async for records in read:
                yield records

    async def ended(self) -> Ending:
        """Wait for the end, whichever node plays the turn by then.

        Raises StoreUnavailable if the store did not accept the turn's end, or is unavailable for `store_retry_s`.
        """
        if self.live is not None:
            outcome = await self.live.wait_end()
            if not isinstance(outcome, Lost):
                return outcome
            await self._demand_stored(self.live)
        while True:
            ending = await persistent_ending(self._store, self._tenant, self.admission.turn_id)
            if ending is not None:
                return ending
            await self._lease.wait_for_others()

    async def _demand_stored(self, live: LiveTurn) -> None:
        """Raise the error with which the store did not accept the turn's end, unless the end is there: then only the
        store's reply was lost."""
        if live.unstored is not None:
            if await find_ending(self._store, self._tenant, self.admission.turn_id) is None:
                raise told_again(live.unstored)

    async def __aenter__(self) -> Self:
        if self.live is not None:
            self.live.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.leave()

    def __repr__(self) -> str:
        return f"<Watch {self.admission.turn_id} {'here' if self.live else 'elsewhere'}>"


async def paused(
    batches: AsyncGenerator[Sequence[Record], None], quiet_s: float
) -> AsyncGenerator[Sequence[Record], None]:
    """The same batches, and an empty one each time that nothing has come for `quiet_s`."""
    async with aclosing(batches):
        while True:
            coming = asyncio.ensure_future(anext(batches, None))
            try:
                while not (await asyncio.wait({coming}, timeout=quiet_s))[0]:
                    yield ()
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            try:
                records = coming.result()
            finally:
                del coming  # its exception would hold this frame
            if records is None:
                return
            yield records


async def followed(
    store: Store, lease: Lease, tenant: Tenant, turn_id: TurnId, since: int
) -> AsyncGenerator[Sequence[Record], None]:
    """The records of a turn from number `since` on, read from its journal until it has ended.

    A queued turn has no records to show: its request is decided on when it is opened.
    """
    while True:
        # In this order: once the row says that the turn has ended, its journal is whole.
        row = await persistently(lambda: turn_row(store, tenant, turn_id))
        if row.state != "queued":
            async for records in journaled(store, tenant, turn_id, since):
                yield records
                since = records[-1].n + 1
        if row.ended_by is not None:
            return
        await lease.wait_for_others()


async def journaled(
    store: Store, tenant: Tenant, turn_id: TurnId, since: int, upto: int | None = None
) -> AsyncIterator[Sequence[Record]]:
    """The records of a journal as it is now, row by row, up to the first that cannot be read."""

    def wanted(record: Record | Unreadable) -> bool:
        return isinstance(record, Record) and (upto is None or record.n < upto)

    for row in await persistently(lambda: store.journal(tenant, turn_id, since=since)):
        records = decode_records(row.records)
        readable = [each for each in takewhile(wanted, records) if isinstance(each, Record)]
        if news := [each for each in readable if each.n >= since]:
            yield news
        if len(readable) < len(records):
            return


async def persistent_ending(store: Store, tenant: Tenant, turn_id: TurnId) -> Ending | None:
    """How a turn ended; None while it is open. Raises StoreUnavailable if the store is unavailable for
    `store_retry_s`."""
    return ending_of(await persistently(lambda: turn_row(store, tenant, turn_id)))


async def find_ending(store: Store, tenant: Tenant, turn_id: TurnId) -> Ending | None:
    """How a turn ended; None while it is open, or while the store is unavailable."""
    try:
        return ending_of(await turn_row(store, tenant, turn_id))
    except StoreUnavailable:
        return None


async def turn_row(store: Store, tenant: Tenant, turn_id: TurnId) -> TurnRow:
    """A turn's row. Raises SessionMissing."""
    row = await store.turn(tenant, turn_id)
    if row is None:
        raise SessionMissing("turn", turn_id)
    return row
