"""Replicas as processes, each with a network of its own to the database, and a recording model behind them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

from tests.e2e.balancer import Balancer
from tests.pgbouncer import found_program, pooling
from tests.postgres import Server, free_port
from tests.replicas.wire import Wire
from tests.repository import ROOT
from tests.torture.replicas.agent import LOG, UPSTREAM, WHO
from tests.torture.replicas.upstream import Oracle

READY_S = 60.0
PAUSE_S = 0.02


class Replica:
    """One server: an address that stays, and processes that come and go."""

    def __init__(self, number: int, here: Path, wire: Wire, environment: dict[str, str]) -> None:
        self.number = number
        self.url = f"http://127.0.0.1:{free_port()}"
        self.wire = wire
        self.log = here / f"replica-{number}.log"
        """What its processes have logged, one after the other."""
        self._environment = {**os.environ, **environment, WHO: f"replica {number}"}
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it; it need not be ready yet."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast", "serve", "tests.torture.replicas.agent:team"),
                *("--listen", self.url.removeprefix("http://"), "--log-format", "json"),
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    async def wait_ready(self, http: aiohttp.ClientSession) -> None:
        until = time.monotonic() + READY_S
        while True:
            if self._process is None or self._process.returncode is not None:
                await self.start()  # it could not, because something else was away
            with suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{self.url}/readyz") as response:
                    if response.status == 200:
                        return
            assert time.monotonic() < until, f"{self.log.read_text()[-2000:]}"
            await asyncio.sleep(PAUSE_S)

    def signal(self, which: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(which)

    async def wait_gone(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGKILL)
            await self._process.wait()


class Fleet:
    """Several replicas over one database. Obtained by `started`."""

    def __init__(self, here: Path, database: Server, name: str, oracle: Oracle) -> None:
        self.here = here
        self.database = database
        self.url = database.url(name)
        """The database, directly."""
        self.oracle = oracle
        self.replicas: list[Replica] = []
        self.tools = here / "tools.log"
        """What tools have done."""
        self.balancer = Balancer()
        """One address for all of them."""

    @classmethod
    @asynccontextmanager
    async def started(
        cls, here: Path, database: Server, *, replicas: int = 3, ttl_s: float
    ) -> AsyncIterator[Fleet]:
        """Every second of them talks to the database by way of a PgBouncer, if there is one."""
        name = await asyncio.to_thread(database.fresh_database)
        fleet = cls(here, database, name, Oracle())
        async with AsyncExitStack() as entered:
            await entered.enter_async_context(fleet.oracle.upstream)
            pooler = await asyncio.to_thread(entered.enter_context, _pooler(fleet.url))
            environment = {
                UPSTREAM: fleet.oracle.upstream.base_url,
                LOG: str(fleet.tools),
                "HOLDFAST_LEASE_TTL_S": str(ttl_s),
            }
            for number in range(replicas):
                pooled = pooler is not None and number % 2 == 1
                port = pooler if pooler is not None and pooled else database.port
                wire = await entered.enter_async_context(Wire.before("127.0.0.1", port))
                query = f"timeout=5{'&pgbouncer=true' if pooled else '&sslmode=disable'}"
                there = urlsplit(fleet.url)
                there = there._replace(
                    netloc=f"{there.username}@127.0.0.1:{wire.port}", query=query
                )
                store = {"HOLDFAST_STORE": urlunsplit(there)}
                fleet.replicas.append(Replica(number, here, wire, {**environment, **store}))
            fleet.balancer = await entered.enter_async_context(Balancer.started())
            fleet.balancer.urls = [each.url for each in fleet.replicas]
            try:
                await fleet.start()
                yield fleet
            finally:
                for each in fleet.replicas:
                    each.signal(signal.SIGCONT)
                    await each.end()

    async def start(self) -> None:
        """Start every replica that does not run, and wait until all are ready."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            # One after the other: the first makes the tables, and a machine has few cores.
            for each in self.replicas:
                await each.wait_ready(http)

    async def ask(self, sql: str) -> list[asyncpg.Record]:
        """Ask the database itself."""
        connection = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql)
            return rows
        finally:
            await connection.close()


@contextmanager
def _pooler(url: str) -> Iterator[int | None]:
    """The port of a PgBouncer before the database; None if there is no such program."""
    if found_program() is None:
        yield None
        return
    with pooling(url) as port:
        yield port
