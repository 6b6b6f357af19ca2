"""Every column of every table is changed, one at a time, in both homes that last: `verify` notices, or there is a reason.

What is changed is made of the tables as they are in the database, so that a new column is covered by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import apsw
import asyncpg
import pytest
from msgspec import Struct

from holdfast.ids import Minter
from holdfast.store.sql.tables import CHUNK_WORDS, TABLES, Holds, Table
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from holdfast.testing import ManualClock
from tests.postgres import connected, shared_database
from tests.store.furnishing import furnish_fully
from tests.store.test_archive import Database, File

LEASE = (
    "a lease: whoever holds it says so again, and a wrong one costs a turn its holder, never a word"
)
TIME = "a time that only says how long something is kept, or is shown to people"
OPEN = "of a turn that has not ended: its end writes it anew"
CLOCK = "what was seen of the clock; a wrong one makes things go later or sooner, and the next look mends it"

OVERLOOKED: dict[str, str] = {
    "node.node_id": LEASE,
    "node.slot": LEASE,
    "node.ttl_ms": LEASE,
    "node.since_ms": LEASE,
    "node.expires_ms": LEASE,
    "session.lease_token": LEASE,
    "session.lease_nonce": LEASE,
    "session.stamp": "moves with every write, and a write that names another one is made again",
    "turn.attempt": "bounds how often a crashed turn is resumed",
    "turn.source_digest": "nothing reads it: the journal's request has it, and is compared",
    "turn.answer": OPEN,
    "turn.prefix": OPEN,
    "turn.answer_id": OPEN,
    "turn.acked": "is said by clients, later and by any server",
    "turn.began_ms": TIME,
    "turn.ended_ms": TIME,
    "journal.token": "of a request: nothing reads it",
    "memory.at_ms": TIME,
    "blob.noticed_ms": TIME,
    "blob.tenant": "of bytes that no item names",
    "blob.session_id": "of bytes that no item names",
    "idempotency.expires_ms": TIME,
    "idempotency.state": "of a discarded turn, or of a steer: whether it may begin anew is a policy that is not kept",
    "signal.consumed": "whether a wish was heard is said by the turn, later and by any server",
    "api_key.revoked_ms": "a revocation that nobody made shuts a key out, and lets none in",
    "tool_grant.revoked_ms": "a revocation that nobody made makes a tool ask again",
    "horizon.seen_ms": CLOCK,
    "horizon.ran_ms": CLOCK,
    "horizon.leaps": CLOCK,
}
"""What `verify` does not notice, in some row at least, and why that is so."""


ONLY_THERE = {"sqlite": {"session.stamp", "node.slot"}, "postgres": set[str]()}
"""What the other home has."""

KINDS_MAX = 4
"""Rows of a table that are tried: of so many kinds, where every reason has to be needed by some row."""

Row = dict[str, Any]


class Change(Struct, frozen=True):
    """Another value in one column of one row, which is of a kind."""

    table: str
    kind: str
    row: Row
    column: str
    value: Any

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}"

    def __str__(self) -> str:
        kind = f" of a {self.kind} row" if self.kind else ""
        return f"{self.name}{kind}: {self.row[self.column]!r} becomes {self.value!r}"


def is_expected(change: Change) -> bool:
    """Of a deleted session nothing is served; without its proof a row counts as an older server's."""
    is_gone = change.table == "session" and change.kind == "deleted"
    is_unproven = change.column.endswith("proof") and change.value is None
    return is_gone or is_unproven or change.name in OVERLOOKED


# ── changes ──────────────────────────────────────────────────────────────────────────────────

KNOWN: dict[str, Table[Any]] = {**TABLES, CHUNK_WORDS.name: CHUNK_WORDS}
HELD: dict[str, Holds] = {"bytes_gone": "truth"}
"""Columns that are no field of a row's type, and no number."""


def changes(table: str, rows: list[Row], kinds_max: int) -> Iterator[Change]:
    """What is changed in a table: in one row of each of some kinds, each column."""
    kinds: dict[str, Row] = {}
    for row in rows:
        kinds.setdefault(_signature(table, row), row)
    for row in list(kinds.values())[:kinds_max]:
        for column in row:
            others = [each[column] for each in rows if each[column] not in (None, row[column])]
            for value in _others(table, column, row[column], others):
                yield Change(table, str(row.get("state", "")), row, column, value)


def _signature(table: str, row: Row) -> str:
    told = {name: row[name] for name in ("state", "kind", "replayable", "anonymous") if name in row}
    if table == "journal":  # the request of a queued turn has no proof
        return f"{row['n'] == 0}{row['token'] == 0}"
    empty = [name for name, value in row.items() if value is None and "proof" not in name]
    return f"{told}{empty if table not in ('session', 'turn') else ''}{row.get('lineage') == b'[]'}"


def _others(table: str, column: str, value: Any, others: list[Any]) -> Iterator[Any]:
    known = KNOWN[table]
    held = known.by_name[column].holds if column in known.by_name else HELD.get(column, "number")
    is_key = column in known.key
    nullable = column in known.by_name and known.by_name[column].nullable
    if value is None and not nullable:
        return  # is not shown
    if value is None:
        yield others[0] if others else {"number": 1, "bytes": b"x"}.get(held, "x")
        return
    if nullable:
        yield None
    literals = _literals(known, column)
    match held:
        case _ if literals:
            yield from (each for each in literals if each != value)
        case "number":
            yield value + 1
        case "truth":
            yield type(value)(not value)
        case "text" if not is_key and others:
            yield others[0]
        case "text" | "words" if isinstance(value, str):
            yield from _elsewhere(value, lambda letter: "0" if letter != "0" else "1") or ["1"]
        case "lexemes":
            yield ""
        case "json":
            yield others[0] if others else (b"{}" if value != b"{}" else b"[]")
            yield from _elsewhere(value, lambda byte: bytes([byte[0] ^ 1]))
        case _:
            yield from _elsewhere(value, lambda byte: bytes([byte[0] ^ 1])) or [b"\x01"]


S = TypeVar("S", str, bytes)


def _elsewhere(value: S, other: Callable[[S], S]) -> list[S]:
    """A value, changed at its first place, in the middle, and at its last."""
    places = sorted({0, len(value) // 2, len(value) - 1}) if value else []
    return [value[:at] + other(value[at : at + 1]) + value[at + 1 :] for at in places]


def _literals(table: Table[Any], column: str) -> tuple[str, ...]:
    hint = get_type_hints(table.kind).get(column)
    found = [hint, *get_args(hint)]
    return next((get_args(each) for each in found if get_origin(each) is Literal), ())


# ── homes ────────────────────────────────────────────────────────────────────────────────────


class Home:
    """A furnished store, and a way to change it behind its back."""

    name = ""

    def __init__(self, store: Store, rows: dict[str, list[Row]]) -> None:
        self.store = store
        self.rows = rows

    async def write(self, table: str, column: str, value: Any, where: Row) -> bool:
        """Write a value into the row that looks so; False if the database refuses."""
        raise NotImplementedError


class SqliteHome(Home):
    name = "sqlite"

    async def write(self, table: str, column: str, value: Any, where: Row) -> bool:
        where = {name: where[name] for name in KNOWN[table].key}
        conditions = " and ".join(f'"{name}" is ?' for name in where)
        sql = f'update {table} set "{column}" = ? where {conditions}'
        assert isinstance(self.store, SqliteStore)

        def work(db: apsw.Connection) -> bool:
            try:
                db.execute(sql, [value, *where.values()])
            except apsw.ConstraintError:
                return False
            assert db.changes() == 1, (sql, where)
            return True

        return await self.store.engine.write(work)


class PostgresHome(Home):
    name = "postgres"

    def __init__(self, store: Store, rows: dict[str, list[Row]], db: asyncpg.Connection) -> None:
        super().__init__(store, rows)
        self._db = db

    async def write(self, table: str, column: str, value: Any, where: Row) -> bool:
        compared = {name: where[name] for name in KNOWN[table].key}
        conditions = " and ".join(
            f'"{name}" is not distinct from ${n}' for n, name in enumerate(compared, 2)
        )
        given = "$1::text::tsvector" if column == "words" else "$1"
        sql = f'update holdfast.{table} set "{column}" = {given} where {conditions}'
        try:
            done = await self._db.execute(sql, value, *compared.values())
        except asyncpg.IntegrityConstraintViolationError:
            return False
        assert done == "UPDATE 1", (sql, where)
        return True


async def _furnished(store: Store, clock: ManualClock) -> None:
    steps = count()
    mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
    await furnish_fully(store, clock, mint)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Of a database; empty for a file."""
    return "" if request.param == "sqlite" else shared_database()


@pytest.fixture
async def furnished(url: str, tmp_path: Path) -> AsyncIterator[Home]:
    clock = ManualClock()
    place: File | Database = Database(url) if url else File(tmp_path / "store.db")
    store = await place.open(clock)
    await _furnished(store, clock)
    columns = await place.columns()
    found = await place.rows(columns)
    rows = {
        table: [dict(zip(columns[table], row, strict=True)) for row in found[table]]
        for table in columns
        if table in KNOWN
    }
    if not url:
        yield SqliteHome(store, rows)
    else:
        async with connected(url) as db:
            yield PostgresHome(store, rows, db)
    await store.close()


async def is_noticed(store: Store) -> bool:
    async for report in verify(store):
        if isinstance(report, Finding):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "kinds_max"),
    [
        pytest.param("sqlite", 1, id="sqlite, a row of each table"),
        *(
            pytest.param(name, KINDS_MAX, id=name, marks=pytest.mark.thorough)
            for name in ("sqlite", "postgres")
        ),
    ],
    indirect=["url"],
)
async def test_each_change_is_noticed_or_has_a_reason(furnished: Home, kinds_max: int) -> None:
    assert {*furnished.rows} == {*KNOWN}
    assert not await is_noticed(furnished.store)
    overlooked, tried = list[Change](), 0
    for table, rows in furnished.rows.items():
        assert rows, table
        for change in changes(table, rows, kinds_max):
            tried += 1
            if not await furnished.write(table, change.column, change.value, change.row):
                continue  # refused
            if not await is_noticed(furnished.store):
                overlooked.append(change)
            changed = {**change.row, change.column: change.value}
            assert await furnished.write(table, change.column, change.row[change.column], changed)
    assert not await is_noticed(furnished.store)
    assert len(overlooked) < tried / 4, f"{tried - len(overlooked)} of {tried} are noticed"
    assert [str(each) for each in overlooked if not is_expected(each)] == []
    if kinds_max == KINDS_MAX:
        overlooked_here = {each.name for each in overlooked}
        needless = OVERLOOKED.keys() - overlooked_here - ONLY_THERE[furnished.name]
        assert needless == set()
