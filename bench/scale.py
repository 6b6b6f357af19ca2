"""Very many sessions in either home: how long it takes to list, to search, and to open one.

100,000 sessions with 1,000,000 turns are made in bulk (`tests/store/crowd.py`), as rows that `verify` accepts, and
indexed for search by the store itself. Then each question is asked many times, of places that differ:

- *list*: a page of 20, the first and one further down, all sessions and those of a filter by key;
- *search*: a word of one session, two words that few have, a word that very many have;
- *open*: a session's head with its whole history, as a request on a process that has never seen it does.

Printed are the middle and the 95th percentile in milliseconds; both are judged, with the goal of 50 at p95.
`make bench-scale` runs it (`SESSIONS=…`, `TURNS=…`, `ARGS="--store sqlite"` for one home); `make bench` a small one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles

from holdfast.store.base import SessionFilter, Store
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.searching import parse_query
from holdfast.store.sqlite import SqliteStore
from tests.postgres import SAFE, Server, give_away
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


class Size(argparse.Namespace):
    sessions: int
    turns: int


def told(what: str, of: int) -> Callable[[int], None]:
    """Progress, on one line of stderr."""

    def tell(done: int) -> None:
        print(f"\r{what}: {done:,} of {of:,} ", end="", file=sys.stderr, flush=True)

    return tell


@asynccontextmanager
async def in_sqlite(folder: Path, size: Size) -> AsyncIterator[Store]:
    path = folder / "crowd.db"
    made = crowd(sessions=size.sessions, turns=size.turns)
    await asyncio.to_thread(fill_sqlite, path, made, told("sqlite", size.sessions))
    store = await SqliteStore.open(path)
    yield store
    await store.close()


@asynccontextmanager
async def in_postgres(folder: Path, size: Size) -> AsyncIterator[Store]:
    data = folder / "server"
    data.mkdir()
    give_away(data)
    with ExitStack() as entered:
        started = Server.started({**SAFE, "shared_buffers": "256MB"}, folder=data)
        # In a thread, because starting one runs a loop of its own.
        server = await asyncio.to_thread(entered.enter_context, started)
        url = server.url(await asyncio.to_thread(server.fresh_database))
        made = crowd(sessions=size.sessions, turns=size.turns)
        await fill_postgres(url, made, told("postgres", size.sessions))
        store = await PostgresStore.open(parse_address(url))
        yield store
        await store.close()


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


async def asked(store: Store, question: Question, size: Size) -> tuple[float, float]:
    """p50 and p95, in milliseconds."""
    dice, taken = random.Random(1), []
    for _ in range(5):
        await question(store, dice, size.sessions)
    for _ in range(ASKED):
        began = time.perf_counter()
        await question(store, dice, size.sessions)
        taken.append((time.perf_counter() - began) * 1000)
    cuts = quantiles(taken, n=20)
    return cuts[9], cuts[18]


async def measure(name: str, folder: Path, size: Size) -> None:
    began = time.monotonic()
    async with HOMES[name](folder, size) as store:
        made_s = time.monotonic() - began
        index_s = await indexed(store, size)
        if isinstance(store, PostgresStore):
            await store.engine.run(lambda db: db.script("analyze"), timeout_s=600)
        print("\r", end="", file=sys.stderr)
        print(
            f"\n{name}: {size.sessions:,} sessions, {size.turns:,} turns; made in {made_s:.0f} s, "
            f"indexed in {index_s:.0f} s"
        )
        print(f"{'':26}{'p50':>10}{'p95':>10}  goal")
        for what, question in QUESTIONS.items():
            p50, p95 = await asked(store, question, size)
            met = "met" if p95 < GOAL_MS else "MISSED"
            print(f"{what:26}{p50:>7.1f} ms{p95:>7.1f} ms  p95 < {GOAL_MS:.0f} ms {met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--store", choices=HOMES, action="append")
    options = parser.parse_args(namespace=Size())
    for name in options.store or HOMES:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as folder:
            Path(folder).chmod(0o755)
            asyncio.run(measure(name, Path(folder), options))


if __name__ == "__main__":
    main()
