"""Replicas as processes, each with a network of its own to the database and a clock of its own, hours from the others',
and a recording model behind them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

from tests.e2e.balancer import Balancer
from tests.pgbouncer import PROGRAM, pooling
from tests.postgres import Server, free_port
from tests.replicas.wire import Wire
from tests.repository import ROOT
from tests.torture.replicas.agent import LOG, UPSTREAM, WHO
from tests.torture.replicas.upstream import Oracle

AGENT = "tests.torture.replicas.agent:team"
READY_S = 180.0
SUPERVISE_S = 0.5
PAUSE_S = 0.02


class Replica:
    """One server: an address that stays, and processes that come and go."""

    def __init__(
        self,
        number: int,
        here: Path,
        wire: Wire,
        environment: dict[str, str],
        *,
        ahead_s: int,
        older: Path | None,
    ) -> None:
        self.number = number
        self._ahead_s = ahead_s
        self._older = older
        """What its first process runs; those that follow are of this version."""
        self.url = f"http://127.0.0.1:{free_port()}"
        self.wire = wire
        self.log = here / f"replica-{number}.log"
        """What its processes have logged, one after the other."""
        self.wanted = False
        """Whether it is to run: whoever looks after it starts it again if it does not."""
        self.hands = asyncio.Lock()
        """Held by whoever starts, stops or strikes it: a fault may take longer than was drawn for it."""
        self.environment = {**environment, WHO: f"replica {number}"}
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; it need not be ready yet."""
        self.wanted = True
        older, self._older = self._older, None
        skewed = ("tests.torture.replicas.skewed", str(self._ahead_s))
        path = {"PYTHONPATH": f"{older / 'src'}:{older}"} if older else {}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *(("holdfast",) if older else skewed), "serve", AGENT),
                *("--listen", self.url.removeprefix("http://"), "--log-format", "json"),
                cwd=older or ROOT,
                env={**os.environ, **self.environment, **path},
                stdout=log,
                stderr=log,
            )

    async def wait_ready(self, http: aiohttp.ClientSession) -> None:
        until = time.monotonic() + READY_S
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{self.url}/readyz") as response:
                    if response.status == 200:
                        return
            assert time.monotonic() < until, f"{self.log.read_text()[-2000:]}"
            await asyncio.sleep(PAUSE_S)

    def send(self, which: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(which)

    async def stop(self, *signals: signal.Signals) -> None:
        """Send it these, a little apart, and wait until it is gone. It stays so until it is started."""
        self.wanted = False
        for nth, each in enumerate(signals):
            await asyncio.sleep(0.1 if nth else 0)
            self.send(each)
        if self._process is not None:
            await self._process.wait()


class Fleet:
    """Several replicas over one database. Obtained by `started`."""

    def __init__(self, here: Path, database: Server, name: str, oracle: Oracle) -> None:
        self.here = here
        self.database = database
        self.name = name
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
        cls,
        here: Path,
        database: Server,
        *,
        ahead_s: Sequence[int],
        ttl_s: float,
        older: Path | None = None,
    ) -> AsyncIterator[Fleet]:
        """One for each clock, which is ahead by so much. Every second of them talks to the database by way of a
        PgBouncer, if there is one. They begin as `older` ones, if there are such."""
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
            for number, clock_s in enumerate(ahead_s):
                pooled = pooler is not None and number % 2 == 1
                port = pooler if pooler is not None and pooled else database.port
                wire = await entered.enter_async_context(Wire.before("127.0.0.1", port))
                query = f"timeout=5{'&pgbouncer=true' if pooled else '&sslmode=disable'}"
                there = urlsplit(fleet.url)
                there = there._replace(
                    netloc=f"{there.username}@127.0.0.1:{wire.port}", query=query
                )
                store = {"HOLDFAST_STORE": urlunsplit(there)}
                settings = {**environment, **store}
                fleet.replicas.append(
                    Replica(number, here, wire, settings, ahead_s=clock_s, older=older)
                )
            fleet.balancer = await entered.enter_async_context(Balancer.started())
            fleet.balancer.urls = [each.url for each in fleet.replicas]
            looking_after = None
            try:
                # One after the other: the first makes the tables, and a machine has few cores.
                for each in fleet.replicas:
                    await each.start()
                    await fleet.wait_ready(each)
                looking_after = asyncio.create_task(fleet._look_after())
                yield fleet
            finally:
                if looking_after is not None:
                    looking_after.cancel()
                    await asyncio.gather(looking_after, return_exceptions=True)
                for each in fleet.replicas:
                    each.send(signal.SIGCONT)
                    await each.stop(signal.SIGKILL)

    async def wait_ready(self, *replicas: Replica) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            for each in replicas or self.replicas:
                await each.wait_ready(http)

    async def _look_after(self) -> None:
        """Start what has ended and should not have, as whatever runs servers does: one that begins while its
        database is away gives up."""
        while True:
            await asyncio.sleep(SUPERVISE_S)
            for each in self.replicas:
                if each.wanted and not each.running and not each.hands.locked():
                    async with each.hands:
                        await each.start()

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
    if PROGRAM.found() is None:
        yield None
        return
    with pooling(url) as port:
        yield port
