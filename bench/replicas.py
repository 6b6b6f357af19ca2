"""What several servers on one PostgreSQL carry, and what they cost the database: busy, idle and watched from afar.

    turns      one, two and three servers play the same turns, round by round; each turn is two durable transactions.
               Beside turns per second, which a machine with few cores shares out between everybody, stands the CPU
               time of a turn: in the servers, and in the database
    at rest    what a server asks of the database that has nothing to do: its heart, its sweep, its look around
    elsewhere  what a client costs that watches a turn at a server which does not play it
    a sweep    what looking for turns of the dead costs, for each turn that is open anywhere

The figures are what `capacity.py` and docs/explanation/capacity.md reckon with. The upstream costs nothing
(`serving/upstream.py`); the database syncs, on a real disk.

    python bench/replicas.py [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import aiohttp
import asyncpg
import msgspec
import uvloop
from _cpu import cpu_s as database_cpu_s
from _turns import Session, mint
from rich.console import Console
from rich.table import Table
from serving.process import cpu_s
from speed.servers import Server, on_disk, started, upstream
from speed.subjects import holdfast_on
from store_postgres import SETTINGS

from holdfast.ids import NodeId, SessionId
from holdfast.store.outcomes import Started
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from tests.postgres import Server as Database
from tests.postgres import give_away

REPLICAS = 3
SESSIONS, TURNS = 24, 12
"""Sessions that talk at once, and turns of each in a round."""
REST_S, WATCH_S = 8.0, 6.0
WATCHERS = 40
OPEN_TURNS, SWEEPS = 2_000, 20
OWN_TURNS, LOOKS = 100, 400


class Stage:
    """Servers, their database, and a client."""

    def __init__(self, database: Database, url: str, servers: Sequence[Server]) -> None:
        self.database = database
        self.url = url
        self.servers = servers
        self._names = 0

    def cpu(self) -> tuple[float, float]:
        """What the servers and the database have used so far."""
        return sum(cpu_s(each.pid) for each in self.servers), database_cpu_s(self.database)

    async def value(self, sql: str) -> float:
        connection = await asyncpg.connect(self.url)
        try:
            return float(await connection.fetchval(sql))
        finally:
            await connection.close()

    def new_name(self) -> str:
        self._names += 1
        return f"bench-{self._names}"


class Round(msgspec.Struct):
    """What one round of turns came to, for each turn."""

    per_s: float
    server_ms: float
    database_ms: float


async def play(stage: Stage, replicas: int) -> Round:
    """Every session plays its turns, one after the other, each at the next of so many servers."""
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as http:

        async def talk(n: int) -> None:
            name = stage.new_name()
            for nth in range(TURNS):
                port = stage.servers[(n + nth) % replicas].port
                await ask(http, port, name, f"bench:short, turn {nth}")

        before, began_s = stage.cpu(), loop.time()
        await asyncio.gather(*map(talk, range(SESSIONS)))
        took_s, after = loop.time() - began_s, stage.cpu()
    turns = SESSIONS * TURNS
    return Round(
        per_s=turns / took_s,
        server_ms=(after[0] - before[0]) / turns * 1e3,
        database_ms=(after[1] - before[1]) / turns * 1e3,
    )


async def ask(http: aiohttp.ClientSession, port: int, name: str, said: str) -> None:
    body = {"model": "short", "messages": [{"role": "user", "content": said}]}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with http.post(url, json=body, headers={"X-Conversation-Id": name}) as response:
        assert response.status == 200, await response.text()
        await response.read()


BEHIND = "select count(*) from holdfast.session where indexed_length <> length or indexed_rev <> meta_rev"


class Rest(msgspec.Struct):
    """What one server costs each second that has nothing to do."""

    database_ms: float
    server_ms: float


async def caught_up(stage: Stage) -> None:
    """Wait until everything is indexed: what the rounds have left to do is not rest."""
    while True:
        if not await stage.value(BEHIND):
            return
        await asyncio.sleep(0.2)


async def rest(stage: Stage) -> Rest:
    await caught_up(stage)
    before = stage.cpu()
    await asyncio.sleep(REST_S)
    after = stage.cpu()
    each = REST_S * len(stage.servers)
    return Rest(
        database_ms=(after[1] - before[1]) / each * 1e3,
        server_ms=(after[0] - before[0]) / each * 1e3,
    )


async def watched_ms(stage: Stage, resting: Rest) -> float:
    """CPU of the database for each second of a watcher who is elsewhere."""
    one, other = stage.servers[:2]
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
    ) as http:
        body = {
            "model": "idle",
            "stream": True,
            "messages": [{"role": "user", "content": "bench:idle"}],
        }
        url = f"http://127.0.0.1:{one.port}/v1/chat/completions"
        holding = await http.post(url, json=body, headers={"X-Conversation-Id": stage.new_name()})
        turn = holding.headers["x-turn-id"]
        there = f"http://127.0.0.1:{other.port}/api/turns/{turn}/events"
        watchers = [await http.get(there) for _ in range(WATCHERS)]
        before = stage.cpu()
        await asyncio.sleep(WATCH_S)
        after = stage.cpu()
        for each in (*watchers, holding):
            each.close()
    used_ms = (after[1] - before[1]) / WATCH_S * 1e3 - resting.database_ms * len(stage.servers)
    return used_ms / WATCHERS


async def sweep_us(stage: Stage) -> tuple[float, float]:
    """CPU µs of the database for each open turn, in a sweep that finds nobody dead; and for each of a server's own turns,
    which it looks for by their keys while it rests from sweeping."""
    store = await PostgresStore.open(parse_address(f"{stage.url}?listen=off"))
    node, sweeper = mint(NodeId), mint(NodeId)
    try:
        for each in (node, sweeper):
            await store.renew(each, ttl_ms=600_000)
        turns = [Session(f"o{mint(SessionId)}", node).next_turn() for _ in range(OPEN_TURNS)]
        for begun in await asyncio.gather(*(store.begin(each.ask) for each in turns)):
            assert isinstance(begun, Started), begun
        await store.engine.run(lambda db: db.script("analyze"))
        before = database_cpu_s(stage.database)
        for _ in range(SWEEPS):
            assert not await store.orphans(node=sweeper, limit=100)
        swept = database_cpu_s(stage.database)
        own = [(each.ask.tenant, each.ask.request.turn_id) for each in turns[:OWN_TURNS]]
        for _ in range(LOOKS):
            assert len(await store.orphans(node=node, limit=OWN_TURNS, among=own)) == OWN_TURNS
        looked = database_cpu_s(stage.database)
        return (
            (swept - before) / SWEEPS / OPEN_TURNS * 1e6,
            (looked - swept) / LOOKS / OWN_TURNS * 1e6,
        )
    finally:
        await store.close()


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def table_of(rounds: dict[int, list[Round]]) -> Table:
    table = Table("servers", "turns/s", "to one", "CPU of a turn", "of it the database")
    alone = median(each.per_s for each in rounds[1])
    for replicas, found in rounds.items():
        per_s = median(each.per_s for each in found)
        server_ms = median(each.server_ms for each in found)
        database_ms = median(each.database_ms for each in found)
        share = database_ms / (server_ms + database_ms)
        table.add_row(
            str(replicas),
            f"{per_s:.0f}",
            f"{per_s / alone:.2f}×",
            f"{server_ms + database_ms:.2f} ms",
            f"{database_ms:.2f} ms, {share:.0%}",
        )
    return table


async def measure(stage: Stage, rounds: int, console: Console) -> None:
    found: dict[int, list[Round]] = {replicas: [] for replicas in range(1, REPLICAS + 1)}
    for replicas in found:
        await play(stage, replicas)  # the first is dearer: connections, caches
    size, turns = await stage.value("select pg_database_size(current_database())"), 0
    for n in range(rounds):
        for replicas, each in found.items():
            with console.status(f"round {n + 1} of {rounds}: {replicas} servers"):
                each.append(await play(stage, replicas))
                turns += SESSIONS * TURNS
    grown = await stage.value("select pg_database_size(current_database())") - size
    console.print(table_of(found))
    with console.status("at rest"):
        resting = await rest(stage)
    with console.status("watching from elsewhere"):
        watching_ms = await watched_ms(stage, resting)
    with console.status("sweeping"):
        sweeping_us, own_us = await sweep_us(stage)
    console.print(
        f"a server at rest: {resting.database_ms:.2f} ms/s of the database's CPU, "
        f"{resting.server_ms:.2f} ms/s of its own"
    )
    console.print(f"a watcher elsewhere: {watching_ms:.2f} ms/s of the database's CPU")
    console.print(
        f"a sweep: {sweeping_us:.2f} µs of the database's CPU for each open turn; "
        f"a look at a server's own turns: {own_us:.2f} µs for each"
    )
    console.print(f"a turn of 20 tokens: {grown / turns / 1e3:.1f} kB in the database")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with ExitStack() as stack:
        here = stack.enter_context(on_disk())
        data = here / "database"
        data.mkdir()
        for each in (here, data):  # the database's user has to get in
            each.chmod(0o755)
        give_away(data)
        database = stack.enter_context(Database.started(SETTINGS, folder=data))
        url = database.url(database.fresh_database())
        behind = stack.enter_context(upstream())
        subject = holdfast_on(url)
        found = [
            stack.enter_context(started(subject, behind, here / f"server-{n}"))
            for n in range(REPLICAS)
        ]
        uvloop.run(measure(Stage(database, url, found), asked.rounds, console))


if __name__ == "__main__":
    main()
