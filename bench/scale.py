"""Very many sessions in either home: how long it takes to list, to search, and to open one.

100,000 sessions with 1,000,000 turns are made in bulk (`tests/store/crowd.py`), as rows that `verify` accepts, and
indexed for search by the store itself. Then each question is asked many times, of places that differ:

- *list*: a page of 20, the first and one further down, all sessions and those of a filter by key;
- *search*: a word of one session, two words that few have, a word that very many have;
- *open*: a session's head with its whole history, as a request on a process that has never seen it does.

Printed are the middle and the 95th percentile in milliseconds, with the goal of 50 at p95; beside them the CPU time that
one question took, in this process and in the server's, which tells a slow answer from one that waited for a core.
`make bench-scale` runs it (`SESSIONS=…`, `TURNS=…`, `ARGS="--store sqlite"` for one home); `make bench` a small one.
`--keep FOLDER` leaves the sessions there, and finds them the next time: making them takes longer than asking.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import quantiles

from _cpu import cpu_s
from msgspec import Struct

from holdfast.store.outcomes import SessionFilter
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from tests.postgres import SAFE, Server, execute, give_away
from tests.store.crowd import TENANT, crowd, fill_postgres, fill_sqlite, key_of, own_word

ASKED = 200
GOAL_MS = 50.0
INDEX_BYTES = 4_000_000

Question = Callable[[Store, random.Random, int], Awaitable[object]]
"""Of a store, with chance, and how many sessions it has."""


# ── questions ────────────────────────────────────────────────────────────────────────────────


async def first_page(store: Store, dice: random.Random, sessions: int) -> object:
    return await store.sessions(TENANT, limit=20)


async def second_page(store: Store, dice: random.Random, sessions: int) -> object:
    first = await store.sessions(TENANT, limit=20)
    return await store.sessions(TENANT, cursor=first.cursor, limit=20)


async def page_of_a_filter(store: Store, dice: random.Random, sessions: int) -> object:
    prefix = key_of(dice.randrange(sessions))[:-1]
    found = await store.sessions(TENANT, where=SessionFilter(key_prefix=prefix), limit=20)
    assert found.sessions
    return found


async def own_words(store: Store, dice: random.Random, sessions: int) -> object:
    found = await store.search(TENANT, parse_query(own_word(dice.randrange(sessions))), limit=20)
    assert len(found.matches) == 1
    return found


async def two_words(store: Store, dice: random.Random, sessions: int) -> object:
    words = f"word{dice.randrange(2_000, 20_000)} word{dice.randrange(50)}"
    return await store.search(TENANT, parse_query(words), limit=20)


async def common_word(store: Store, dice: random.Random, sessions: int) -> object:
    found = await store.search(TENANT, parse_query("then"), limit=20)
    assert found.matches
    return found


async def one_session(store: Store, dice: random.Random, sessions: int) -> object:
    row = await store.resolve(TENANT, key_of(dice.randrange(sessions)))
    assert row is not None
    return await store.snapshot(TENANT, row.session_id)


QUESTIONS: dict[str, Question] = {
    "list, first page": first_page,
    "list, two pages": second_page,
    "list, by key": page_of_a_filter,
    "search, one session": own_words,
    "search, two words": two_words,
    "search, a common word": common_word,
    "open one session": one_session,
}


# ── homes ────────────────────────────────────────────────────────────────────────────────────


class Home(Struct):
    """A store full of sessions, and a clock of the CPU time that it takes, in this process and elsewhere."""

    store: Store
    cpu_s: Callable[[], float]


class Size(argparse.Namespace):
    sessions: int
    turns: int
    store: list[str] | None
    keep: Path | None


def told(what: str, of: int) -> Callable[[int], None]:
    """Progress, on one line of stderr."""

    def tell(done: int) -> None:
        print(f"\r{what}: {done:,} of {of:,} ", end="", file=sys.stderr, flush=True)

    return tell


@asynccontextmanager
async def in_sqlite(folder: Path, size: Size) -> AsyncIterator[Home]:
    path = folder / "crowd.db"
    if not path.exists():
        made = crowd(sessions=size.sessions, turns=size.turns)
        unfinished = path.with_suffix(".unfinished")
        await asyncio.to_thread(fill_sqlite, unfinished, made, told("sqlite", size.sessions))
        unfinished.rename(path)
    store = await SqliteStore.open(path)
    yield Home(store, cpu_s=time.process_time)
    await store.close()


@asynccontextmanager
async def in_postgres(folder: Path, size: Size) -> AsyncIterator[Home]:
    give_away(folder)
    server = Server(folder, {**SAFE, "shared_buffers": "256MB"})
    fresh = not server.data.exists()
    # In threads, because each of these runs a loop of its own.
    if fresh:
        await asyncio.to_thread(server.initialise)
    await asyncio.to_thread(server.start)
    try:
        if fresh:
            await execute(server.url(), "create database crowd")
            made = crowd(sessions=size.sessions, turns=size.turns)
            await fill_postgres(server.url("crowd"), made, told("postgres", size.sessions))
        store = await PostgresStore.open(parse_address(server.url("crowd")))
        yield Home(store, cpu_s=lambda: time.process_time() + cpu_s(server))
        await store.close()
    finally:
        await asyncio.to_thread(server.stop)


HOMES = {"sqlite": in_sqlite, "postgres": in_postgres}


async def indexed(store: Store, size: Size) -> float:
    """Bring everything into the search index, as a server does when it has nothing else to do. Seconds."""
    began, done, tell = time.monotonic(), 0, told("indexed", size.sessions)
    while True:
        step = await store.index(bytes_max=INDEX_BYTES)
        done += step.sessions
        tell(done)
        if not step.more:
            return time.monotonic() - began


class Answered(Struct):
    """How long a question took, and what it cost, in milliseconds."""

    p50: float
    p95: float
    cpu: float

    def __str__(self) -> str:
        met = "met" if self.p95 < GOAL_MS else "MISSED"
        return f"{self.p50:>7.1f} ms{self.p95:>7.1f} ms  {met:8}{self.cpu:>7.1f} ms"


async def asked(home: Home, question: Question, size: Size) -> Answered:
    dice, taken = random.Random(1), []
    for _ in range(5):
        await question(home.store, dice, size.sessions)
    before = home.cpu_s()
    for _ in range(ASKED):
        began = time.perf_counter()
        await question(home.store, dice, size.sessions)
        taken.append((time.perf_counter() - began) * 1000)
    cuts = quantiles(taken, n=20)
    return Answered(cuts[9], cuts[18], (home.cpu_s() - before) / ASKED * 1000)


async def measure(name: str, folder: Path, size: Size) -> None:
    began = time.monotonic()
    async with HOMES[name](folder, size) as home:
        made_s = time.monotonic() - began
        index_s = await indexed(home.store, size)
        if isinstance(home.store, PostgresStore):
            await home.store.engine.run(lambda db: db.script("analyze"), timeout_s=600)
        print("\r", end="", file=sys.stderr)
        print(
            f"\n{name}: {size.sessions:,} sessions, {size.turns:,} turns; made in {made_s:.0f} s, "
            f"indexed in {index_s:.0f} s"
        )
        print(f"{'':26}{'p50':>10}{'p95':>10}  < {GOAL_MS:.0f} ms {'CPU':>10}")
        for what, question in QUESTIONS.items():
            print(f"{what:26}{await asked(home, question, size)}")


@contextmanager
def a_place(name: str, size: Size) -> Iterator[Path]:
    """Where to put a home: beside this file for a while, or where it was asked to be kept."""
    if size.keep is None:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)
    else:
        folder = size.keep / f"{name}-{size.sessions}-{size.turns}"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--store", choices=HOMES, action="append")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    options = parser.parse_args(namespace=Size())
    for name in options.store or HOMES:
        with a_place(name, options) as folder:
            asyncio.run(measure(name, folder, options))


if __name__ == "__main__":
    main()
