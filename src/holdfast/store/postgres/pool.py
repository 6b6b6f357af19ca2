"""Connections: a bounded number of them, made when needed, closed when idle for long, thrown away when in doubt.

1. A connection is used by one caller at a time, the one that was used last first: an idle one may be closed by
   the server, and few warm ones are better than many cold ones.
2. Nothing is set up on a connection that a pooler in transaction mode would lose: no session settings but those
   that the start-up message carries, no named statement unless the connection is ours alone.
3. Callers wait for a connection in line, and not past their deadlines.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import asyncpg
from asyncpg import exceptions as pg

from holdfast.errors import StoreClosed, StoreUnavailable, StoreUnusable
from holdfast.store.postgres.address import DatabaseAddress
from holdfast.store.postgres.faults import described, fault_of
from holdfast.store.postgres.queries import Bound, PostgresQuery, Row

SERVER_AT_LEAST = (13, 0)
BACKOFF_FIRST_S = 0.05
BACKOFF_MOST_S = 1.0
IDLE_KEPT = 2
"""Idle connections that stay open. PostgreSQL has a process for each, and a server at rest needs no more."""
IDLE_S = 60.0
"""Any other connection is closed once it has been idle for so long: load comes in waves, and making one takes time."""
GRACE_S = 5.0
"""How much longer than we wait for it the server lets a statement, or a transaction that has gone quiet, live."""

_REFUSED = (
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.UndefinedObjectError,
    pg.FeatureNotSupportedError,
    asyncpg.ClientConfigurationError,
)
"""What no second try helps with."""


class PooledConnection:
    """One connection, and the statements that were described on it."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], *, named: bool) -> None:
        self.connection = connection
        # A statement without a name is parsed anew each time it is run, in the same round trip: it needs nothing
        # of the server that it meets. What we keep of it is its description.
        self._named = named
        self._statements: dict[str, asyncpg.prepared_stmt.PreparedStatement[asyncpg.Record]] = {}
        self.idle_since_s = 0.0

    async def fetch(
        self, query: PostgresQuery, values: Sequence[Bound], *, timeout_s: float
    ) -> list[Row]:
        """Run a query: one round trip, and one more when this connection sees it first."""
        statement = self._statements.get(query.sql)
        if statement is None:
            name = f"{query.name}_{len(self._statements)}" if self._named else ""
            statement = await self.connection.prepare(query.sql, name=name, timeout=timeout_s)
            self._statements[query.sql] = statement
        rows: list[Row] = await statement.fetch(*values, timeout=timeout_s)
        return rows

    async def run(self, script: str, *, timeout_s: float) -> None:
        """Statements without parameters, in one round trip."""
        await self.connection.execute(script, timeout=timeout_s)

    @property
    def usable(self) -> bool:
        return not self.connection.is_closed() and not self.connection.is_in_transaction()


async def _close(link: PooledConnection, *, timeout_s: float) -> None:
    try:
        await link.connection.close(timeout=timeout_s)
    except Exception as error:
        if fault_of(error) is None:
            raise
        link.connection.terminate()


Connect = Callable[[], Awaitable[PooledConnection]]


async def connect(address: DatabaseAddress, *, timeout_s: float) -> PooledConnection:
    """Make a connection. Raises StoreUnusable if trying again is useless, and PostgreSQL's error otherwise."""
    try:
        connection = await asyncpg.connect(
            address.dsn,
            timeout=timeout_s,
            statement_cache_size=0,
            server_settings=_settings(address),
        )
    except _REFUSED as error:
        raise StoreUnusable(f"{address.shown} cannot be used: {described(error)}") from error
    except ValueError as error:
        # The driver repeats what it cannot parse, and that may be a password.
        raise StoreUnusable(f"{address.shown} is not a URL that PostgreSQL can use") from error
    version = connection.get_server_version()
    if (version.major, version.minor) < SERVER_AT_LEAST:
        connection.terminate()
        raise StoreUnusable(
            f"{address.shown} is PostgreSQL {version.major}; {SERVER_AT_LEAST[0]} or later is needed"
        )
    return PooledConnection(connection, named=not address.pgbouncer)


def _settings(address: DatabaseAddress) -> dict[str, str]:
    """What the start-up message asks for. PgBouncer refuses what it does not know, so through one there is little:
    single statements hold no lock while they wait for us, and transactions say it for themselves."""
    if address.pgbouncer:
        return {"application_name": "holdfast"}
    limit_ms = str(round((address.timeout_s + GRACE_S) * 1000))
    return {
        "application_name": "holdfast",
        "statement_timeout": limit_ms,
        "lock_timeout": limit_ms,
        "idle_in_transaction_session_timeout": limit_ms,
        "synchronous_commit": "on",
        # Every query of ours finds rows by their keys, so that one plan does for all values, and is made once.
        "plan_cache_mode": "force_generic_plan",
        # Short statements gain nothing by it.
        "jit": "off",
    }


class Pool:
    """Up to `size` connections. Obtain one by `take`, and `give` it back or `drop` it."""

    def __init__(self, connect: Connect, *, size: int, was_reached: bool = False) -> None:
        self.connect = connect
        self.was_reached = was_reached
        """Whether this database was ever connected to: then it is one that can be used, and a refusal may pass."""
        self._size = size
        self._idle: list[PooledConnection] = []
        """In the order in which they were given back."""
        self._closing: set[asyncio.Task[None]] = set()
        self._links: set[PooledConnection] = set()
        self._making = 0
        self._waiting: deque[Future[PooledConnection | None]] = deque()
        self._failures = 0
        self._closed = False
        self.dropped = 0
        """How many connections were thrown away."""

    def __repr__(self) -> str:
        return f"<Pool {len(self._idle)} idle of {len(self._links)}, {len(self._waiting)} waiting>"

    @property
    def waiting(self) -> int:
        """How many wait for a connection."""
        return len(self._waiting)

    async def take(self, *, until: float) -> PooledConnection:
        """A connection, before the loop's clock says `until`. Raises StoreUnavailable, StoreClosed, and StoreUnusable if
        the database was never reached."""
        while True:
            self._demand_open()
            link = self._take_idle()
            if link is not None:
                return link
            if len(self._links) + self._making < self._size:
                link = await self._make(until=until)
            else:
                link = await self._wait(until=until)
            if link is not None:
                return link

    def give(self, link: PooledConnection) -> None:
        """Take back a connection that is as good as new."""
        if self._closed or not link.usable:
            self.drop(link)
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(link)
                return
        link.idle_since_s = time.monotonic()
        self._idle.append(link)
        longest = self._idle[0]
        if len(self._idle) > IDLE_KEPT and link.idle_since_s - longest.idle_since_s >= IDLE_S:
            del self._idle[0]
            self._links.discard(longest)
            closing = asyncio.create_task(_close(longest, timeout_s=GRACE_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def drop(self, link: PooledConnection) -> None:
        """Throw away a connection. What runs on it may still happen, or have happened."""
        self.dropped += 1
        self._links.discard(link)
        link.connection.terminate()
        self._wake_one()

    async def close(self, *, timeout_s: float) -> None:
        """Refuse further callers and close what is idle; connections in use go when they are given back."""
        self._closed = True
        while self._waiting:
            self._wake_one()
        idle, self._idle = self._idle, []
        for link in idle:
            self._links.discard(link)
            await _close(link, timeout_s=timeout_s)
        await asyncio.gather(*self._closing)

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store was closed; open another one")

    def _take_idle(self) -> PooledConnection | None:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            self.drop(link)
        return None

    async def _make(self, *, until: float) -> PooledConnection | None:
        """A new connection; None if it failed and there is time for another try."""
        loop = asyncio.get_running_loop()
        self._making += 1
        try:
            async with asyncio.timeout_at(until):
                link = await self.connect()
        except Exception as error:
            # A login that was taken away, or a database under another name, is an outage, once a store is in use.
            may_pass = self.was_reached and isinstance(error, StoreUnusable)
            if fault_of(error) is None and not may_pass:
                raise
            delay_s = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            if loop.time() + delay_s >= until:
                why = str(error) if may_pass else described(error)
                raise StoreUnavailable(
                    f"the database cannot be reached ({why}); retry in a few seconds"
                ) from error
            await asyncio.sleep(delay_s)
            return None
        finally:
            self._making -= 1
            self._wake_one()
        self._failures = 0
        self.was_reached = True
        self._links.add(link)
        if self._closed:
            self.drop(link)
            self._demand_open()
        return link

    async def _wait(self, *, until: float) -> PooledConnection | None:
        """A connection that another caller gives back; None if one may be made now."""
        waiter: Future[PooledConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                # It came at the moment when we gave up: a connection, or leave to make one. The next in line gets it.
                link = waiter.result()
                if link is None:
                    self._wake_one()
                else:
                    self.give(link)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(
                    f"all {self._size} connections to the database are in use; retry in a few seconds"
                ) from error
            raise

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
