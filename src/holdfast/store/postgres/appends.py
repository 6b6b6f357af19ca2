"""Journal appends of many turns, in one statement and one sync.

Whoever appends puts its records into a queue and waits. As soon as the statement before has returned, all that has
queued goes in one: the previous sync is the wait, there is no timer.

1. Each append is fenced by itself: it is written if its turn is still held as it says, and left out otherwise.
2. One that was left out, and every one of a statement that failed, is looked at alone (`turns.append`): that knows
   whether it is there already, comes too late, or may not be.
3. A statement takes one append of a turn at most, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from asyncpg import PostgresError
from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.store.base import Fence
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.faults import fault_of
from holdfast.store.postgres.recall import Recall
from holdfast.store.postgres.turns import append

GROUP_MAX = 256
"""Appends in one statement: some milliseconds of the server's time."""


class Asked(Struct):
    """An append, and who waits for it."""

    fence: Fence
    n: int
    records: bytes
    done: Future[None]


class Appends:
    """The queue before the journal. One statement is on its way at a time."""

    def __init__(self, engine: Engine, recall: Recall) -> None:
        self._engine = engine
        self._recall = recall
        self._queue: list[Asked] = []
        self._draining: Task[None] | None = None
        self.statements = 0
        """How many went out, for whoever measures."""

    async def append(self, fence: Fence, *, n: int, records: bytes) -> None:
        """Add records to a turn's journal; durable when this returns. Raises as `Store.append` does."""
        done: Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(Asked(fence, n, records, done))
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        await done

    async def close(self) -> None:
        """Wait until everything that was asked for is answered."""
        if self._draining is not None:
            await self._draining

    async def _drain(self) -> None:
        try:
            while self._queue:
                group = self._take()
                try:
                    left_out = await self._write(group)
                    await asyncio.gather(*map(self._alone, left_out))
                except BaseException as error:
                    _tell(group, error)
                    if not isinstance(error, StoreError):
                        raise
        finally:
            self._draining = None

    def _take(self) -> list[Asked]:
        """What goes into the next statement; the rest stays."""
        group: dict[str, Asked] = {}
        later: list[Asked] = []
        for asked in self._queue:
            turn_id = asked.fence.turn_id
            if turn_id in group or len(group) == GROUP_MAX:
                later.append(asked)
            else:
                group[turn_id] = asked
        self._queue = later
        return list(group.values())

    async def _write(self, group: list[Asked]) -> list[Asked]:
        """Write them together, tell those that were written, and return those that were not."""
        self.statements += 1
        written = await self._engine.run(_together(group))
        left_out = []
        for asked in group:
            stamp = written.get((asked.fence.tenant, asked.fence.turn_id))
            if stamp is None:
                left_out.append(asked)
                continue
            self._recall.moved(asked.fence, stamp=stamp, n=asked.n)
            if not asked.done.done():
                asked.done.set_result(None)
        return left_out

    async def _alone(self, asked: Asked) -> None:
        def work(db: Db) -> Awaitable[None]:
            return append(db, asked.fence, self._recall, n=asked.n, records=asked.records)

        try:
            await self._engine.run(work)
        except Exception as error:
            _tell([asked], error)
        else:
            if not asked.done.done():
                asked.done.set_result(None)


def _tell(group: list[Asked], error: BaseException) -> None:
    for asked in group:
        if not asked.done.done():
            asked.done.set_exception(error)


Written: TypeAlias = dict[tuple[str, str], int]
"""By tenant and turn, the stamps that the sessions have now."""


def _together(group: list[Asked]) -> Callable[[Db], Awaitable[Written]]:
    fences = [asked.fence for asked in group]

    async def work(db: Db) -> Written:
        try:
            written = await db.write(
                "append_many",
                tenants=[each.tenant for each in fences],
                session_ids=[each.session_id for each in fences],
                turn_ids=[each.turn_id for each in fences],
                tokens=[each.token for each in fences],
                nonces=[each.nonce for each in fences],
                ns=[asked.n for asked in group],
                records=[asked.records for asked in group],
            )
        except PostgresError as error:
            if fault_of(error) not in ("again", None):
                raise
            return {}  # one of them is to blame, and the others need not suffer for it
        return {(tenant, turn_id): stamp for tenant, turn_id, stamp in written}

    return work
