"""A store that an earlier version left: it opens, says what it said, and goes on. Every entry of the archive, in both
homes that last; and what this version leaves is what the last entry holds, row for row."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

from holdfast.core.turns.journal import decode_records, fold
from holdfast.ids import IdempotencyKey, Minter, NodeId
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Joined, Orphan, Replay, Started, Taken, Unfinished
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rows import IdempotencyRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.postgres import connected, shared_database
from tests.store import archive
from tests.store.builders import ACME, TTL_MS, Player, Playing
from tests.store.verification.test_verification import findings

LATEST = archive.entries()[-1]
Rows = dict[str, list[tuple[Any, ...]]]
"""Table → all that it holds."""


# ── the homes that last ──────────────────────────────────────────────────────────────────────


class Place(Protocol):
    """Where a store of the archive can be unpacked, and one can be made."""

    async def unpack(self, entry: str) -> None: ...

    async def open(self, clock: ManualClock) -> Store: ...

    async def columns(self) -> dict[str, list[str]]: ...

    async def rows(self, columns: dict[str, list[str]]) -> Rows: ...


class File:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def unpack(self, entry: str) -> None:
        await asyncio.to_thread(archive.unpack_sqlite, entry, self._path)

    async def open(self, clock: ManualClock) -> Store:
        return await SqliteStore.open(self._path, now_ms=clock.now_ms)

    def connect(self) -> apsw.Connection:
        return apsw.Connection(str(self._path))

    async def columns(self) -> dict[str, list[str]]:
        db = self.connect()
        named = "select name from pragma_table_info(?)"
        return {
            table: [str(name) for (name,) in db.execute(named, (table,))] for table, _ in ours(db)
        }

    async def rows(self, columns: dict[str, list[str]]) -> Rows:
        db = self.connect()
        return {
            table: sorted(db.execute(_select(table, names)).fetchall(), key=repr)
            for table, names in columns.items()
        }


def ours(db: apsw.Connection) -> list[tuple[str, str]]:
    """Our tables, and how each was made. SQLite and its search have some as well."""
    listed = db.execute(
        "select name, sql from sqlite_master "
        "where type = 'table' and name not like 'sqlite%' and name not like 'search_word%'"
    )
    return [(str(name), str(sql)) for name, sql in listed]


class Database:
    def __init__(self, url: str) -> None:
        self._url = url

    async def unpack(self, entry: str) -> None:
        await archive.unpack_postgres(entry, self._url)

    async def open(self, clock: ManualClock) -> Store:
        return await PostgresStore.open(
            parse_address(f"{self._url}?listen=off"), clock=clock.now_ms
        )

    async def columns(self) -> dict[str, list[str]]:
        """Of all tables but the one that has the time at which they were made."""
        async with connected(self._url) as connection:
            listed = await connection.fetch(
                "select table_name::text, column_name::text from information_schema.columns "
                "where table_schema = 'holdfast' and table_name <> 'migration'"
            )
        found: dict[str, list[str]] = {}
        for table, column in listed:
            found.setdefault(table, []).append(column)
        return found

    async def rows(self, columns: dict[str, list[str]]) -> Rows:
        async with connected(self._url) as connection:
            return {
                table: sorted(
                    map(tuple, await connection.fetch(_select(f"holdfast.{table}", names))),
                    key=repr,
                )
                for table, names in columns.items()
            }


def _select(table: str, names: Sequence[str]) -> str:
    # A deleted session was held while it was cleared, and moves its stamp now: older servers know what a stamp means.
    shown = {"stamp": "case when state = 'live' then stamp end"}
    quoted = ", ".join(shown.get(name, f'"{name}"') for name in names)
    return f"select {quoted} from {table}"


def place(kind: str, path: Path) -> Place:
    return File(path) if kind == "sqlite" else Database(shared_database())


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def here(kind: str, tmp_path: Path) -> Place:
    return place(kind, tmp_path / "here.db")


@pytest.fixture
def there(kind: str, tmp_path: Path) -> Place:
    return place(kind, tmp_path / "there.db")


@pytest.fixture(params=archive.entries())
def entry(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def clock(entry: str) -> ManualClock:
    """As late as when the entry was made."""
    return ManualClock(at_ms=archive.said_of(entry)["now_ms"])


@pytest.fixture
async def kept(here: Place, entry: str, clock: ManualClock) -> AsyncIterator[Store]:
    """A store of the archive, opened by this version."""
    await here.unpack(entry)
    store = await here.open(clock)
    yield store
    await store.close()


# ── what an earlier version left ─────────────────────────────────────────────────────────────


async def test_it_is_sound_and_says_what_it_said(
    kept: Store, entry: str, clock: ManualClock
) -> None:
    assert await findings(kept) == []
    assert await archive.everything(kept, clock) == archive.said_of(entry)


async def test_its_turns_go_on(kept: Store, clock: ManualClock) -> None:
    """A node of this version takes over what the dead ones played, and then whatever waited for it."""
    player = await _eligible(kept, clock)
    orphans = await kept.orphans(node=player.node, limit=100)
    assert len(orphans) > 5
    for orphan in orphans:
        turn = await _taken(player, orphan)
        await turn.interrupt("crash")
        await turn.commit()
    for waiting in await kept.queued(limit=100):
        turn = await player.open_queued(waiting.turn_id)
        await turn.answer("At last")
        await turn.commit()
    stats = await kept.stats()
    assert (stats.turns_open, stats.turns_queued) == (0, 0)
    assert await findings(kept) == []


async def test_its_retries_are_known(kept: Store, clock: ManualClock) -> None:
    """Whatever became of a key's request, the same request again is told of it; one that failed begins anew."""
    player = await _eligible(kept, clock)
    outcomes = {}
    for name in ("friday", "steered", "heard", "busy", "unheard", "waiting", "failed", "broken"):
        row = await _claim(kept, name)
        turn = await kept.turn(ACME, row.turn_id)
        assert turn is not None
        outcome = await player.begin(
            turn.session_id, "Again", key=name, request_hash=row.request_hash
        )
        outcomes[name] = type(outcome)
        if isinstance(outcome, Started):
            assert outcome.retry_of == row.turn_id
        elif not isinstance(outcome, Unfinished):
            assert isinstance(outcome, Joined | Replay) and outcome.turn_id == row.turn_id
    assert outcomes == {
        **dict.fromkeys(("friday", "steered", "heard"), Replay),
        **dict.fromkeys(("busy", "unheard", "waiting"), Joined),
        "failed": Started,
        "broken": Unfinished,
    }


async def test_what_broke_off_is_continued(kept: Store, clock: ManualClock) -> None:
    player = await _eligible(kept, clock)
    row = await _claim(kept, "broken")
    turn = await player.open(
        "broken", key="broken", request_hash=row.request_hash, continues=row.turn_id, links=1
    )
    await turn.answer("Whole")
    await turn.commit()
    assert (await turn.row()).continues == row.turn_id
    retried = await player.begin("broken", key="broken", request_hash=row.request_hash)
    assert retried == Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await findings(kept) == []


async def _eligible(store: Store, clock: ManualClock) -> Player:
    """A node that has been there for long enough to judge others."""
    dice = count(1 << 40)  # ids that the store has not seen
    mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(dice) % (1 << bits))
    player = Player(store, mint, node=mint(NodeId))
    for _ in range(3):
        await player.renew()
        clock.advance(TTL_MS / 2000)
    await player.renew()
    return player


async def _taken(player: Player, orphan: Orphan) -> Playing:
    """A dead node's turn in the hands of this one, as its journal tells of it."""
    player = Player(player.store, player.mint, tenant=orphan.tenant, node=player.node)
    taken = await player.store.takeover(
        orphan.tenant, orphan.session_id, node=player.node, nonce="taken over"
    )
    assert isinstance(taken, Taken), taken
    rows = await player.store.journal(orphan.tenant, orphan.turn_id)
    told = fold(record for row in rows for record in decode_records(row.records))
    assert told.turn is not None and told.damage is None
    base = await player.snapshot(orphan.session_id)
    playing = Playing(player, Started(fence=taken.fence, created=False), told.turn, base)
    playing.n = told.next_n
    return playing


async def _claim(store: Store, name: str) -> IdempotencyRow:
    row = await store.idempotency(ACME, IdempotencyKey(name))
    assert row is not None
    return row


# ── what this version leaves ─────────────────────────────────────────────────────────────────


async def test_the_same_story_leaves_the_same_rows(here: Place, there: Place) -> None:
    """Older servers work on the same rows. Columns that came later are not looked at."""
    await here.unpack(LATEST)
    columns = await here.columns()
    clock = ManualClock()
    store = await there.open(clock)
    await archive.play(store, clock)
    await store.close()
    assert await there.rows(columns) == await here.rows(columns)


async def test_the_memory_tells_the_same_story() -> None:
    clock = ManualClock()
    assert await archive.play(MemoryStore(now_ms=clock.now_ms), clock) == archive.said_of(LATEST)


# ── whether the archive holds everything ─────────────────────────────────────────────────────


async def test_nothing_is_missing_in_the_archive(tmp_path: Path) -> None:
    """Each table has rows, each column that may be empty is and is not, and each value of a list occurs. Proofs are empty
    in rows of older servers alone."""
    file = File(tmp_path / "store.db")
    await file.unpack(LATEST)
    db = file.connect()
    missing = []
    for table, made_by in ours(db):
        ((rows,),) = db.execute(f"select count(*) from {table}")
        missing += [] if rows else [table]
        may_be_empty = 'select name from pragma_table_info(?) where not "notnull" and not pk'
        may_be_empty += " and name not like '%proof'"
        for (name,) in db.execute(may_be_empty, (table,)).fetchall():
            ((full,),) = db.execute(f"select count({name}) from {table}")
            missing += [] if 0 < full < rows else [f"{table}.{name}: {full} of {rows}"]
        for name, listed in re.findall(r"check \((\w+) in \(([^)]*)\)", made_by):
            found = {value for (value,) in db.execute(f"select {name} from {table}")}
            missing += [
                f"{table}.{name}: {each}" for each in {*re.findall(r"'(\w+)'", listed)} - found
            ]
    assert missing == []
