"""Backups that are taken while a server is busy: each is restored, verified, and served from.

What was acknowledged before a backup began has to be in it, whole; and conversations have to go on from there.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import aiohttp
from msgspec import Struct

from holdfast.errors import SessionMissing
from holdfast.ids import Tenant, TurnId
from holdfast.store.store_url import open_store
from holdfast.store.verification.verification import Finding, verify
from tests.postgres import Server as Database
from tests.torture.campaign import Figures, Progress, Run
from tests.torture.postgres import on_disk
from tests.torture.server_process import say, serving

TENANT = Tenant("local")
CLIENTS = 16
SESSIONS = 24
WAIT_S = 120.0
TURNS_BETWEEN = 30
"""Answers between two backups."""

BackUp = Callable[[Path], Awaitable[None]]
Restore = Callable[[Path], Awaitable[str]]
"""Makes a store of a backup; its URL."""


# ── how a backup is made ─────────────────────────────────────────────────────────────────────


async def back_up_sqlite(store: str, file: Path) -> None:
    """By the command that people use, beside the server."""
    command = (sys.executable, "-m", "holdfast", "db", "backup", str(file), "--store", store)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"holdfast db backup: {said.decode()}")


async def back_up_postgres(database: Database, name: str, file: Path) -> None:
    """By PostgreSQL's own, which sees the database as it was when it began."""
    url = database.url(name)
    said = await asyncio.to_thread(database.call, "pg_dump", "--dbname", url)
    await asyncio.to_thread(file.write_text, said)


async def restore_postgres(database: Database, file: Path) -> str:
    """Another database with what is in a backup; its URL."""
    name = await asyncio.to_thread(database.fresh_database)
    url = database.url(name)
    quietly = ("--quiet", "--output", os.devnull, "--set", "ON_ERROR_STOP=1", "--dbname", url)
    script = await asyncio.to_thread(file.read_text)
    await asyncio.to_thread(partial(database.call, "psql", *quietly, reads=script))
    return url


# ── what has to be in it ─────────────────────────────────────────────────────────────────────


async def judge(store_url: str, acknowledged: Iterable[TurnId]) -> list[str]:
    """Everything that is wrong with a store that was restored, if these turns were acknowledged before."""
    store = await open_store(store_url)
    try:
        wrong = [
            f"in a backup: {each}" async for each in verify(store) if isinstance(each, Finding)
        ]
        for turn_id in acknowledged:
            with suppress(SessionMissing):
                row = await store.turn(TENANT, turn_id)
                if row is None or row.state != "committed":
                    became = "not there" if row is None else row.state
                    wrong.append(f"in a backup: {turn_id} was acknowledged, and is {became}")
        return wrong
    finally:
        await store.close()


async def serve_from(
    folder: Path,
    store_url: str,
    names: Iterable[str],
    *,
    source: str = "demo",
    model: str = "demo",
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Go on with these conversations on a server of their own; everything that is wrong."""
    wrong: list[str] = []
    async with serving(
        folder, store_url, source, name="restored", environment=environment
    ) as server:
        async with aiohttp.ClientSession(server.url) as http:
            for name in names:
                status, headers, body = await say(
                    http,
                    name,
                    "Are you still there?",
                    model=model,
                    **{"X-Conversation-Create": "never"},
                )
                base = headers.get("X-Conversation-Base", "0")
                if status != 200 or headers.get("X-Conversation-Version") != str(int(base) + 1):
                    wrong.append(f"{name} does not go on from a backup: {status} {body[:200]!r}")
    return wrong


# ── a busy server ────────────────────────────────────────────────────────────────────────────


class Told(Struct):
    """An answer that was acknowledged."""

    name: str
    turn_id: TurnId
    at_s: float


class Load:
    """Clients that talk, and remember what they were told."""

    def __init__(self, http: aiohttp.ClientSession, seed: int) -> None:
        self._http = http
        self._seed = seed
        self._numbers = count(1)
        self._news = asyncio.Event()
        self.told: list[Told] = []

    async def talk(self, client: int) -> None:
        chance = random.Random(f"{self._seed}/{client}")
        while True:
            name = f"c{chance.randrange(SESSIONS)}"
            key = f"k{next(self._numbers)}"
            status, headers, _ = await say(self._http, name, key, **{"Idempotency-Key": key})
            if status == 200:
                turn_id = TurnId(headers["X-Turn-Id"])
                self.told.append(Told(name, turn_id, time.monotonic()))
                self._news.set()

    async def wait_told(self, number: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.told) < number:
                self._news.clear()
                await self._news.wait()


async def back_up_under_load(
    folder: Path,
    store: str,
    take: BackUp,
    restore: Restore,
    *,
    rounds: int,
    seed: int,
    progress: Progress,
) -> Figures:
    """Take a backup of a busy server, so many times."""
    wrong: list[str] = []
    turns = 0
    async with serving(folder, store, "demo") as server:
        async with aiohttp.ClientSession(server.url) as http:
            load = Load(http, seed)
            talking = [asyncio.create_task(load.talk(client)) for client in range(CLIENTS)]
            for nth in range(rounds):
                await load.wait_told(len(load.told) + TURNS_BETWEEN)
                file, began_s = folder / f"backup-{nth}", time.monotonic()
                await take(file)
                before = [each for each in load.told if each.at_s < began_s]
                url = await restore(file)
                wrong += await judge(url, [each.turn_id for each in before])
                names = sorted({each.name for each in before})[:3]
                wrong += await serve_from(folder, url, names)
                wrong += await judge(url, ())
                turns += len(before)
                progress(nth + 1, rounds)
            for task in talking:
                task.cancel()
            ended = await asyncio.gather(*talking, return_exceptions=True)
            wrong += [f"a client broke: {each!r}" for each in ended if isinstance(each, Exception)]
    did = f"{rounds} backups of a busy server, restored, verified and served from: {turns:,} turns accounted for"
    return Figures(did, wrong)


def sqlite_backups(run: Run, progress: Progress) -> Figures:
    """Take backups of a file that a server writes to, and serve from them."""
    folder = run.folder / "backups"
    folder.mkdir()
    store = f"sqlite:///{folder / 'store.db'}"

    async def take(file: Path) -> None:
        await back_up_sqlite(store, file)

    async def restore(file: Path) -> str:
        return f"sqlite:///{file}"

    return asyncio.run(
        back_up_under_load(
            folder, store, take, restore, rounds=run.count(10), seed=run.seed, progress=progress
        )
    )


def postgres_backups(run: Run, progress: Progress) -> Figures:
    """Take backups of a database that a server writes to, and serve from them."""
    folder = run.folder / "backups"
    folder.mkdir()
    with on_disk(run.folder) as database:
        name = database.fresh_database()

        async def take(file: Path) -> None:
            await back_up_postgres(database, name, file)

        async def restore(file: Path) -> str:
            return await restore_postgres(database, file)

        return asyncio.run(
            back_up_under_load(
                folder,
                database.url(name),
                take,
                restore,
                rounds=run.count(10),
                seed=run.seed,
                progress=progress,
            )
        )
