"""What a turn asks of PostgreSQL: statements and round trips, counted on the wire, and what its updates leave behind.

A request waits for every round trip, so none comes in unnoticed. An update is *heap-only* (HOT) if it changes no column
that an index has, and finds room on its page: then no index is written, and the next reader of the page cleans it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import NamedTuple, Unpack
from urllib.parse import urlsplit, urlunsplit

import pytest
from msgspec import Struct

from holdfast.ids import Minter
from holdfast.store.outcomes import Started
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from tests.postgres import connected, shared_database
from tests.postgres_wire import Wire
from tests.store.builders import ACME, Asking, Player
from tests.store.postgres.conftest import LONG_MS


class Cost(Struct):
    """What something asked of the server."""

    statements: int = 0
    trips: int = 0


class TurnCost(Struct):
    """What the steps of one turn asked of the server."""

    begin: Cost
    append: Cost
    commit: Cost
    acknowledge: Cost


WRITES = Cost(statements=1, trips=1)
"""One statement, which writes if what the process knows is still so."""
READS_FIRST = Cost(statements=2, trips=2)
"""One that reads, and one that writes."""


class Process:
    """A player on a store of its own, behind a wire that counts."""

    def __init__(self, wire: Wire, player: Player) -> None:
        self.player = player
        self.store = player.store
        self._wire = wire

    @contextmanager
    def counted(self) -> Iterator[Cost]:
        self._wire.cut_at(0, "before")  # which is never; it counts from here
        before, cost = self._wire.statements, Cost()
        yield cost
        cost.statements, cost.trips = self._wire.statements - before, self._wire.questions

    async def play(self, name: str, **asking: Unpack[Asking]) -> TurnCost:
        """A whole turn, and what it costs. What the player reads besides is not counted."""
        ask = await self.player.ask(name, "And then?", **asking)
        with self.counted() as begin:
            begun = await self.store.begin(ask)
        assert isinstance(begun, Started), begun
        turn = await self.player.playing(ask, begun)
        with self.counted() as append:
            await turn.answer("Then we left")
        with self.counted() as commit:
            await turn.commit()
        with self.counted() as acknowledge:
            await self.store.acknowledge(ACME, turn.turn_id)
        return TurnCost(begin, append, commit, acknowledge)


@pytest.fixture
async def wire(url: str) -> AsyncIterator[Wire]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    async with Wire.before(parts.hostname, parts.port) as made:
        yield made


@pytest.fixture
async def processes(
    url: str, wire: Wire, mint: Minter, clock: ManualClock
) -> AsyncIterator[tuple[Process, Process]]:
    netloc = f"{urlsplit(url).username}@127.0.0.1:{wire.port}"
    there = urlunsplit(urlsplit(url)._replace(netloc=netloc))
    address = parse_address(f"{there}?sslmode=disable&listen=off")
    async with AsyncExitStack() as opened:
        made = []
        for _ in range(2):
            store = await PostgresStore.open(address, clock=clock.now_ms)
            opened.push_async_callback(store.close)
            made.append(Process(wire, Player(store, mint)))
            await made[-1].player.renew()
        yield made[0], made[1]


async def costs(
    ada: Process, ben: Process, name: str, *, keyed: bool, replayable: bool
) -> dict[str, TurnCost]:
    """Turns of one session, by what the process knows of it when the turn begins."""

    async def played(process: Process, number: int) -> TurnCost:
        asking: Asking = {"replayable": replayable}
        if keyed:
            asking["key"] = f"{name}-{number}"
        return await process.play(name, **asking)

    return {
        "nothing: the session is new": await played(ada, 1),
        "everything: it wrote last": await played(ada, 2),
        "nothing: another process wrote": await played(ben, 3),
        "less than there is: another process wrote since": await played(ada, 4),
    }


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("replayable", [False, True], ids=["", "replayable"])
async def test_what_a_turn_asks_of_the_database(
    processes: tuple[Process, Process], keyed: bool, replayable: bool
) -> None:
    """A key is looked for before a turn begins under it, so that a keyed turn reads, whatever is known."""
    ada, ben = processes
    # A connection prepares each statement once.
    await costs(ada, ben, "before", keyed=keyed, replayable=replayable)

    def turn(begin: Cost) -> TurnCost:
        return TurnCost(begin=begin, append=WRITES, commit=WRITES, acknowledge=WRITES)

    assert await costs(ada, ben, "trip", keyed=keyed, replayable=replayable) == {
        "nothing: the session is new": turn(READS_FIRST),
        "everything: it wrote last": turn(READS_FIRST if keyed else WRITES),
        "nothing: another process wrote": turn(READS_FIRST),
        "less than there is: another process wrote since": turn(READS_FIRST),
    }


# ── updates ──────────────────────────────────────────────────────────────────────────────────

SESSIONS, TURNS = 10, 20
SLACK = 0.95
"""An update that finds its page full goes to another one."""


OTHERS = """
select count(*) from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


class Updates(NamedTuple):
    """Updates of one table, and how many of them wrote no index."""

    all: int
    heap_only: int


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
async def test_updates_write_indexes_as_seldom_as_they_can(
    clock: ManualClock, mint: Minter, keyed: bool
) -> None:
    """Of a session's row, begin and append change no indexed column, and a commit does: it makes the session the last
    active one. Of a turn's, the commit changes its state, and the acknowledgement nothing that an index has."""
    url = await asyncio.to_thread(shared_database)
    found = await updates(url, clock, mint, keyed=keyed)
    turns = SESSIONS * TURNS
    assert {name: each.all for name, each in found.items() if each.all} == {
        "session": 3 * turns - SESSIONS,  # the first begin inserts it
        "turn": 2 * turns,
        **({"idempotency": turns} if keyed else {}),
    }
    assert found["session"].heap_only >= SLACK * (2 * turns - SESSIONS)
    assert found["turn"].heap_only >= SLACK * turns


async def updates(url: str, clock: ManualClock, mint: Minter, *, keyed: bool) -> dict[str, Updates]:
    """Of each table, after some sessions have played some turns each, a second apart, in a database of their own."""
    store = await PostgresStore.open(parse_address(f"{url}?listen=off"), clock=clock.now_ms)
    player = Player(store, mint)
    await player.renew(ttl_ms=LONG_MS)
    for turn in range(TURNS):
        for session in range(SESSIONS):
            clock.advance(1)
            asking: Asking = {"key": f"{session}-{turn}"} if keyed else {}
            played = await player.play(f"trip-{session}", **asking)
            await store.acknowledge(ACME, played.turn_id)
    await store.close()
    async with connected(url) as connection:
        while await connection.fetchval(OTHERS):
            pass  # the server's end of a connection says what it has counted when it ends, which takes a moment
        rows = await connection.fetch(
            "select relname::text, n_tup_upd, n_tup_hot_upd from pg_stat_user_tables"
        )
    return {row[0]: Updates(row[1], row[2]) for row in rows}
