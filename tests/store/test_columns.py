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


class Overlooked(Struct, frozen=True):
    """Why `verify` may overlook changes of a column, and which ones: all others have to be noticed."""

    why: str
    is_one: Callable[[Change], bool] = lambda change: True


def _is_first_value(change: Change) -> bool:
    return change.row[change.column] is None


def _has_no_journal(change: Change) -> bool:
    """Of most turns that are committed, and of none else."""
    return bool(change.kind == "committed")


LEASE = Overlooked(
    "a lease, which its holder renews: a wrong one costs a turn its holder, or lets a session wait for a dead one; a late "
    "holder is refused by the other of token and nonce"
)
REVOKED = Overlooked(
    "revoked, and was not: an older server revokes so, and nothing runs by it; the reverse is noticed",
    _is_first_value,
)
UNNAMED = Overlooked(
    "of bytes that no item names: no client is served them",
    lambda change: change.row["noticed_ms"] != 0,
)
CLOCK = Overlooked(
    "what was seen of the clock: a wrong one makes things go as if the clock had been right all the time, and the next "
    "look mends it"
)

OVERLOOKED: dict[str, Overlooked] = {
    "node.node_id": LEASE,
    "node.slot": LEASE,
    "node.ttl_ms": LEASE,
    "node.since_ms": LEASE,
    "node.expires_ms": LEASE,
    "session.lease_token": LEASE,
    "session.lease_nonce": LEASE,
    "session.stamp": Overlooked(
        "moves with every write, and a write that names another one is made again"
    ),
    "turn.attempt": Overlooked(
        "counts crashes, and any server counts on: it bounds how often a turn is resumed, and is shown beside it"
    ),
    "turn.source_digest": Overlooked(
        "without a journal, whose request is compared: a trace says by it that the agent's file has changed since",
        _has_no_journal,
    ),
    "turn.acked": Overlooked(
        "is said by clients, later and by any server: for ten minutes it tells a retry without a key from a new request"
    ),
    "turn.began_ms": Overlooked(
        "without a journal, whose request is compared: it is shown to people; of a queued turn it is its place",
        lambda change: _has_no_journal(change) or change.kind == "queued",
    ),
    "turn.ended_ms": Overlooked(
        "of a turn that is not the last one, whose end is compared: it is shown, and says how long a discarded one is kept",
        lambda change: change.kind in ("committed", "discarded"),
    ),
    "journal.token": Overlooked(
        "of a turn that ended while it waited: nothing reads it; of one that waits still it is noticed",
        lambda change: change.row["token"] == 0,
    ),
    "blob.noticed_ms": Overlooked(
        "retention looks again whether an item names the bytes; at worst, bytes that none names stay as long as their session"
    ),
    "blob.tenant": UNNAMED,
    "blob.session_id": UNNAMED,
    "idempotency.expires_ms": Overlooked(
        "later, or sooner by less than a day: before the end of its turn it is noticed",
        lambda change: change.value >= change.row["expires_ms"],
    ),
    "idempotency.state": Overlooked(
        "of a discarded turn: nothing of it is in the history, and whether its key answers with its end or begins anew is "
        "a policy that is not kept",
        lambda change: change.kind in ("done", "failed") and change.value != "running",
    ),
    "api_key.revoked_ms": REVOKED,
    "tool_grant.revoked_ms": REVOKED,
    "horizon.seen_ms": CLOCK,
    "horizon.ran_ms": CLOCK,
    "horizon.leaps": CLOCK,
}
"""What `verify` does not notice, in some row at least, and why that is so."""


ONLY_THERE = {"sqlite": {"session.stamp", "node.slot"}, "postgres": set[str]()}
"""What the other home has."""

KINDS_MAX = 4
"""Rows of a table that are tried: of so many kinds, where every reason has to be needed by some row."""


def is_expected(change: Change) -> bool:
    """Of a deleted session nothing is served; without its proof a row counts as an older server's."""
    is_gone = change.table == "session" and change.kind == "deleted"
    is_unproven = change.column.endswith("proof") and change.value is None
    reason = OVERLOOKED.get(change.name)
    return is_gone or is_unproven or (reason is not None and reason.is_one(change))


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
