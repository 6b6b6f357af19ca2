"""Running work on the database: reads, decisions, and one statement that writes what was decided.

*Work* is a function of a `Db`. It reads, asks `store/decisions.py`, and writes by a single statement that is
conditional on what it has read (`driver.py`). So

1. no lock is held while we wait for the network: a process that dies delays no other, and nothing is needed of a
   connection but that it carries one statement;
2. if what was read has changed, nothing was written, and the work is run again from the start;
3. if an answer was lost, the work is run again as well: it finds what it has done, or does it. Whichever of the
   two statements comes first, the other one's condition fails. Work for which that is not true (`once`) says so,
   and its caller is told that the outcome is not known.

Work may therefore run several times, and changes nothing but the database.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.address import DatabaseAddress
from holdfast.store.postgres.faults import fault_of, is_harmless, translated
from holdfast.store.postgres.pool import GRACE_S, Pool, PooledConnection, connect
from holdfast.store.postgres.queries import Bindings, Bound, PostgresQuery, Row

T = TypeVar("T")

Clock = Callable[[], int | None]
"""Milliseconds; None leaves it to the database."""

ONE_MOMENT = "isolation level repeatable read read only"
"""A transaction for reads of several statements: all of them see what the first one saw."""

PAUSE_FIRST_S = 0.002
PAUSE_MOST_S = 0.25


def database_clock() -> None:
    """The database's own clock rules."""


class Db:
    """What work sees of a connection: named queries, and whether it may have written."""

    def __init__(
        self, link: PooledConnection, *, clock: Clock, until: float, was_lost: bool
    ) -> None:
        self.wrote = False
        self.was_lost = was_lost
        """The answer to a write of an earlier try was lost."""
        self._link = link
        self._clock = clock
        self._until = until
        self._loop = asyncio.get_running_loop()

    async def fetch(self, query: PostgresQuery, bindings: Bindings) -> list[Row]:
        values = query.arguments({"now_ms": self._clock(), **bindings})
        return await self._link.fetch(query, values, timeout_s=self._left_s())

    async def put(self, query: PostgresQuery, values: Sequence[Bound]) -> list[Row]:
        """Run a query that changes something; the clock comes after its values."""
        self.wrote = True
        return await self._link.fetch(query, (*values, self._clock()), timeout_s=self._left_s())

    @property
    def moment_s(self) -> float:
        """Our own clock: good for telling how much time has passed."""
        return self._loop.time()

    async def script(self, sql: str) -> None:
        """Statements without parameters or rows."""
        self.wrote = True
        await self._link.run(sql, timeout_s=self._left_s())

    @asynccontextmanager
    async def transaction(self, mode: str = "read write") -> AsyncIterator[None]:
        """Several statements as one. Should we die in here, the server ends it by itself."""
        limit_ms = round((self._left_s() + GRACE_S) * 1000)
        await self._link.run(
            f"begin {mode}; set local idle_in_transaction_session_timeout = {limit_ms}; "
            f"set local statement_timeout = {limit_ms}; set local lock_timeout = {limit_ms}",
            timeout_s=self._left_s(),
        )
        yield  # after an error the connection is thrown away, and the transaction with it
        await self._link.run("commit", timeout_s=self._left_s())

    def _left_s(self) -> float:
        left = self._until - self._loop.time()
        if left <= 0:
            raise TimeoutError
        return left


Work = Callable[[Db], Awaitable[T]]


class PostgresEngine:
    """Runs work on pooled connections, again where that is right."""

    def __init__(
        self,
        pool: Pool,
        *,
        timeout_s: float,
        clock: Clock = database_clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.pool = pool
        self.timeout_s = timeout_s
        self.clock = clock
        self._jitter = jitter

    @classmethod
    def at(cls, address: DatabaseAddress, *, clock: Clock = database_clock) -> PostgresEngine:
        pool = Pool(partial(connect, address, timeout_s=address.timeout_s), size=address.pool_size)
        return cls(pool, timeout_s=address.timeout_s, clock=clock)

    def reckoned_ms(self, *, was_ms: int, at_s: float) -> int:
        """About the time that the database has now, if it was `was_ms` when our own clock said `at_s`."""
        given = self.clock()
        if given is not None:
            return given
        return was_ms + round((asyncio.get_running_loop().time() - at_s) * 1000)

    def like(self, *, size: int) -> PostgresEngine:
        """Another engine on the same database, with connections of its own."""
        pool = Pool(self.pool.connect, size=size, was_reached=self.pool.was_reached)
        return PostgresEngine(pool, timeout_s=self.timeout_s, clock=self.clock, jitter=self._jitter)

    async def run(
        self,
        work: Work[T],
        *,
        once: bool = False,
        was_lost: bool = False,
        timeout_s: float | None = None,
    ) -> T:
        """Run work until it is done, for as long as there is time. Raises our errors; they tell whether an answer to a
        write was lost (`in_doubt`), here or before (`was_lost`).

        `once`: do not run it again after its answer was lost; it would be done twice.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                link = await self.pool.take(until=until)
            except StoreUnavailable as unavailable:
                unavailable.in_doubt = was_lost
                raise
            db = Db(link, clock=self.clock, until=until, was_lost=was_lost)
            try:
                done = await work(db)
            except Exception as error:
                self._settle(link, error)
                fault = fault_of(error)
                in_doubt = once and db.wrote
                may_repeat = fault == "again" or (fault == "lost" and not in_doubt)
                was_lost |= fault == "lost" and db.wrote
                # Others are in the way, or the database is away: not all of us at the same moment.
                wait_s = pause_s * (0.5 + self._jitter())
                if not may_repeat or loop.time() + wait_s >= until:
                    raise _told(error, once_in_doubt=in_doubt, was_lost=was_lost) from error
            except BaseException:
                self.pool.drop(link)  # we were cancelled in the middle of something
                raise
            else:
                self.pool.give(link)
                return done
            await asyncio.sleep(wait_s)
            pause_s = min(PAUSE_MOST_S, pause_s * 2)

    def _settle(self, link: PooledConnection, error: Exception) -> None:
        """After an error: a connection is kept if it had no part in it."""
        if is_harmless(error):
            self.pool.give(link)
        else:
            self.pool.drop(link)

    async def close(self) -> None:
        await self.pool.close(timeout_s=self.timeout_s)


def _told(error: Exception, *, once_in_doubt: bool, was_lost: bool) -> Exception:
    told = translated(error, in_doubt=once_in_doubt)
    if isinstance(told, StoreUnavailable):
        told.in_doubt = was_lost
    return told
