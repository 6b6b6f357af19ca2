"""What many callers ask for at once, in one statement and one sync.

A write that comes while a few statements are on their way waits in a queue; as soon as one of them has returned, all
that has queued goes in the next. The previous sync is the wait, there is no timer. A write that comes when nothing is
on its way goes at once.

1. A statement writes what it can, and leaves out what it cannot; the caller is told.
2. If it fails as a whole, perhaps because of one of them, all of them were left out; the others need not suffer for it.
3. No write waits in the queue beyond the time that a call may take: a late one gets an error, and nothing was sent.
4. A statement has the time of the youngest call in it. With that of the oldest, an overloaded database would fail calls
   that had just come, and their retries would keep it overloaded.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar, final

from asyncpg import PostgresError
from msgspec import Struct

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.faults import fault_of

A = TypeVar("A")
D = TypeVar("D")

GROUP_MAX = 256
"""Asked for in one statement: some milliseconds of the server's time."""
GROUP_BYTES_MAX = 1 << 20
"""About what one statement carries, unless a single one has more."""

TOO_LATE = "the database did not come to it in time; nothing changed, retry in a few seconds"

Write = Callable[[Db, Sequence[A]], Awaitable[Sequence[D | None]]]
"""Writes what it can. What came of each, in their order; None for what was left out."""


@final
class OmittedWrite(Struct, frozen=True):
    """A write that came to nothing with the others: its caller asks for it alone."""

    was_lost: bool
    """The answer to an earlier try was lost: it may have happened then."""


class _Asked(Struct, Generic[A, D]):
    what: A
    until: float
    """By the loop's clock."""
    done: Future[D | OmittedWrite]


class StatementGroup(Generic[A, D]):
    """A queue before one kind of statement.

    No two that have the same `key` go in one statement, and `at_once` statements are on their way at a time, at most.
    """

    def __init__(
        self,
        engine: PostgresEngine,
        write: Write[A, D],
        *,
        key: Callable[[A], Hashable],
        size: Callable[[A], int],
        at_once: int,
    ) -> None:
        self._engine = engine
        self._write = write
        self._key = key
        self._size = size
        self._at_once = at_once
        self._queue: list[_Asked[A, D]] = []
        self._single = 0
        self._sending: set[Task[None]] = set()
        self.statements = 0
        """How many went out, for measurements."""

    async def ask(self, what: A) -> D | OmittedWrite:
        """What came of it, durable when this returns."""
        if self._under_way < self._at_once and not self._queue:
            return await self._go_at_once(what)
        loop = asyncio.get_running_loop()
        asked = _Asked[A, D](what, loop.time() + self._engine.timeout_s, loop.create_future())
        self._queue.append(asked)
        try:
            return await asked.done
        finally:
            del asked  # which holds what is raised here, and with it this frame

    async def close(self) -> None:
        """Wait until everything that was asked for is answered."""
        while self._sending:
            await asyncio.wait(tuple(self._sending))

    @property
    def _under_way(self) -> int:
        return self._single + len(self._sending)

    async def _go_at_once(self, what: A) -> D | OmittedWrite:
        self._single += 1
        try:
            (came,) = await self._run([what], timeout_s=self._engine.timeout_s)
            return came
        finally:
            self._single -= 1
            self._go_on()

    def _go_on(self) -> None:
        while self._queue and self._under_way < self._at_once:
            group = self._take(asyncio.get_running_loop().time())
            if group:
                sending = asyncio.create_task(self._send(group))
                self._sending.add(sending)
                sending.add_done_callback(self._sent)

    def _sent(self, sending: Task[None]) -> None:
        self._sending.discard(sending)
        self._go_on()

    def _take(self, now: float) -> list[_Asked[A, D]]:
        """What goes into the next statement; the rest stays. A write whose caller no longer waits is left out."""
        group: dict[Hashable, _Asked[A, D]] = {}
        later: list[_Asked[A, D]] = []
        size = 0
        for asked in self._queue:
            if asked.done.done():
                continue
            if asked.until <= now:
                asked.done.set_exception(StoreUnavailable(TOO_LATE))
                continue
            key = self._key(asked.what)
            size += self._size(asked.what)
            full = len(group) == GROUP_MAX or (group and size > GROUP_BYTES_MAX)
            if key in group or full:
                later.append(asked)
            else:
                group[key] = asked
        self._queue = later
        return list(group.values())

    async def _send(self, group: list[_Asked[A, D]]) -> None:
        left_s = max(asked.until for asked in group) - asyncio.get_running_loop().time()
        try:
            came = await self._run([asked.what for asked in group], timeout_s=left_s)
        except BaseException as error:
            for asked in group:
                if not asked.done.done():
                    asked.done.set_exception(error)
            if not isinstance(error, StoreError):
                raise
            return
        for asked, each in zip(group, came, strict=True):
            if not asked.done.done():
                asked.done.set_result(each)

    async def _run(self, group: Sequence[A], *, timeout_s: float) -> Sequence[D | OmittedWrite]:
        was_lost = False

        async def work(db: Db) -> Sequence[D | None]:
            nonlocal was_lost
            was_lost = db.was_lost
            try:
                return await self._write(db, group)
            except PostgresError as error:
                if fault_of(error) not in ("again", "unknown", None):
                    raise
                return [None] * len(group)

        self.statements += 1
        came = await self._engine.run(work, timeout_s=timeout_s)
        left_out = OmittedWrite(was_lost)
        return [left_out if each is None else each for each in came]
