"""Between rows of SQLite and the values of `store/rows.py`.

A query selects a table's columns in the order of its struct's fields; so one small mapper serves them all.
Ids are parsed on the way in, values that are not plain columns are JSON. What a turn's transactions read in
passing is ours, and was parsed before it was stored; there, ids are only given their type again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from apsw import Connection

from holdfast.core.codec import Value, encode
from holdfast.store import tables as of
from holdfast.store.queries import load_queries

queries = load_queries(
    *(Path(__file__).parent / "sql" / name for name in ("sessions.sql", "search.sql"))
)

R = TypeVar("R", bound=Value)
Column: TypeAlias = str | int | float | bytes | None
Read = Callable[[Any], object]
"""Makes a field of a column that is not null; the constructor of an id is its parser."""


def ordered(query: str, *names: str) -> str:
    """The SQL of a named query that will be bound by position, with values in the order of `names`.

    SQLite numbers parameters in the order in which a query first names them. Binding by number saves
    looking each of them up, which for a wide row takes longer than SQLite does.
    """
    sql = queries[query]
    named = tuple(dict.fromkeys(re.findall(r":(\w+)", sql)))
    assert named == names, f"{query} wants {named}, in this order"
    return sql


class Table(Generic[R]):
    """How one kind of row is read and bound."""

    def __init__(self, table: of.Table[R]) -> None:
        self._make: Callable[..., R] = table.kind
        self._fields = table.names
        self._json = tuple(n for n, each in enumerate(table.columns) if each.holds == "json")
        read = ((n, bool if each.holds == "truth" else each.parse) for n, each in _numbered(table))
        self._read = tuple((n, how) for n, how in read if how)
        trust = ((n, bool if each.holds == "truth" else each.trust) for n, each in _numbered(table))
        self._trust = tuple((n, how) for n, how in trust if how)
        self._inserts: dict[str, str] = {}
        self.width = len(self._fields)
        """How many columns a row has."""

    def one(self, db: Connection, query: str, /, **bindings: Column) -> R | None:
        """The first row of a named query, or None."""
        row = db.execute(queries[query], bindings).fetchone()
        return None if row is None else self.made(row)

    def all(self, db: Connection, query: str, /, **bindings: Column) -> tuple[R, ...]:
        """All rows of a named query."""
        return tuple(map(self.made, db.execute(queries[query], bindings)))

    def made(self, row: Iterable[Column]) -> R:
        """The value of a row whose columns are in the order of the fields."""
        return self._of(list(row), self._read)

    def joined(self, row: Sequence[Column], at: int) -> R | None:
        """The value of the columns from `at` on, if an outer join has found them; ids are trusted."""
        # The first field of each is part of its key, and never null.
        if row[at] is None:
            return None
        return self._of(list(row[at : at + self.width]), self._trust)

    def _of(self, values: list[Any], readers: tuple[tuple[int, Read], ...]) -> R:
        # Most columns are plain, and this runs for every row of every turn.
        for at, read in readers:
            value = values[at]
            if value is not None:
                values[at] = read(value)
        return self._make(*values)

    def put(self, db: Connection, query: str, *rows: R) -> None:
        """Execute a named query, which binds all fields in their order, for each row."""
        sql = self._inserts.get(query)
        if sql is None:
            sql = self._inserts[query] = ordered(query, *self._fields)
        for row in rows:
            db.execute(sql, self._bound(row))

    def _bound(self, row: R) -> list[Column]:
        values: list[Column] = list(msgspec.structs.astuple(row))
        for at in self._json:
            values[at] = encode(values[at])
        return values


def to_column(value: object) -> Column:
    """A field as a column: plain values as they are, everything else as JSON."""
    if value is None or isinstance(value, bytes | int | str):
        return value
    return encode(value)


def run(db: Connection, query: str, /, **bindings: Column) -> None:
    """Execute a named query for its effect."""
    db.execute(queries[query], bindings)


def only(db: Connection, sql: str, values: tuple[Column, ...]) -> tuple[Column, ...]:
    """The row of a query that has exactly one, bound by position."""
    row: tuple[Column, ...] | None = db.execute(sql, values).fetchone()
    assert row is not None
    return row


def scalar(db: Connection, query: str, /, **bindings: Column) -> Column:
    """The first column of a named query's first row; None if there is none."""
    row = db.execute(queries[query], bindings).fetchone()
    return None if row is None else row[0]


def texts(db: Connection, query: str, /, **bindings: Column) -> list[tuple[str, ...]]:
    """All rows of a named query that selects nothing but text."""
    return [tuple(map(_text, row)) for row in db.execute(queries[query], bindings)]


def numbers(db: Connection, query: str, /, **bindings: Column) -> tuple[int, ...]:
    """The one row of a named query that counts things."""
    return tuple(map(_number, db.execute(queries[query], bindings).fetchall()[0]))


def _text(value: Column) -> str:
    assert isinstance(value, str)
    return value


def _number(value: Column) -> int:
    assert isinstance(value, int)
    return value


def _numbered(table: of.Table[R]) -> Iterable[tuple[int, of.Column]]:
    return enumerate(table.columns)


horizon_rows = Table(of.HORIZON)
node_rows = Table(of.NODES)
session_rows = Table(of.SESSIONS)
turn_rows = Table(of.TURNS)
signal_rows = Table(of.SIGNALS)
memory_rows = Table(of.MEMORIES)
api_key_rows = Table(of.API_KEYS)
seal_key_rows = Table(of.SEAL_KEYS)
grant_rows = Table(of.GRANTS)
