"""Between rows of PostgreSQL and the values of `store/rows.py`.

A query names a table's columns by `{table}` and gets them in the order of its struct's fields; so one small mapper
serves them all, and a row that joins several tables is read off from left to right (`Reader`).

What people and models say is UTF-8 in bytea (`Words`), because PostgreSQL's text cannot hold U+0000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.conversation import Lineage
from holdfast.store import tables as of
from holdfast.store.dialects import POSTGRES
from holdfast.store.queries import load_queries

R = TypeVar("R", bound=Value)
Column: TypeAlias = str | int | bytes | bool | None
Bound: TypeAlias = Column | Sequence[Column]
Bindings: TypeAlias = Mapping[str, Bound]
Row: TypeAlias = Sequence[Any]
"""As asyncpg gives it: the columns in their order."""


def utf8(text: str) -> bytes:
    """What somebody said, as a column."""
    return text.encode()


class Table(Generic[R]):
    """How one kind of row is read and bound."""

    def __init__(self, table: of.Table[R]) -> None:
        self._make: Callable[..., R] = table.kind
        self.fields = table.names
        self.width = len(self.fields)
        self._read = _readers((n, each, each.parse) for n, each in enumerate(table.columns))
        self._trust = _readers((n, each, each.trust) for n, each in enumerate(table.columns))
        self._write = tuple(
            (each.name, _WRITTEN[each.holds]) for each in table.columns if each.holds in _WRITTEN
        )

    def made(self, row: Row) -> R:
        """The value of a row whose columns are in the order of the fields."""
        values = list(row)
        for at, read in self._read:
            if values[at] is not None:
                values[at] = read(values[at])
        return self._make(*values)

    def trusted(self, row: Row) -> R:
        """The same for a row that a transaction reads in passing: ids were parsed before this server stored them."""
        values = list(row)
        for at, read in self._trust:
            if values[at] is not None:
                values[at] = read(values[at])
        return self._make(*values)

    def bound(self, row: R) -> dict[str, Column]:
        """A row's fields by name, as columns."""
        values: dict[str, Column] = msgspec.structs.asdict(row)
        for name, write in self._write:
            if values[name] is not None:
                values[name] = write(values[name])
        return values


class Reader:
    """Reads a row that joins several tables, from left to right."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._at = 0

    def one(self, table: Table[R]) -> R | None:
        """The next columns as a row of this table; None if the join found none."""
        part = self._row[self._at : self._at + table.width]
        self._at += table.width
        # Every table's first column is part of its key, so it is null only if the whole row is.
        return None if part[0] is None else table.made(part)

    def value(self) -> Any:
        """The next column as it is."""
        self._at += 1
        return self._row[self._at - 1]

    def number(self) -> int:
        """The next column, which is a number; 0 if the join found none."""
        return int(self.value() or 0)


def _readers(
    columns: Iterable[tuple[int, of.Column, Callable[[Any], object] | None]],
) -> tuple[tuple[int, Callable[[Any], object]], ...]:
    found = ((n, bytes.decode if each.holds == "words" else how) for n, each, how in columns)
    return tuple((n, how) for n, how in found if how)


_WRITTEN: dict[of.Holds, Callable[[Any], bytes]] = {"words": utf8, "json": encode}

lineage_decoder: Decoder[Lineage] = Decoder(Lineage)

horizons = Table(of.HORIZON)
nodes = Table(of.NODES)
sessions = Table(of.SESSIONS)
keys = Table(of.KEYS)
turns = Table(of.TURNS)
signals = Table(of.SIGNALS)
memories = Table(of.MEMORIES)
api_keys = Table(of.API_KEYS)
seal_keys = Table(of.SEAL_KEYS)
grants = Table(of.GRANTS)

# ── queries ──────────────────────────────────────────────────────────────────────────────────

NOW = POSTGRES.spellings["now"]
"""The time when this is reached, not when the transaction began: a statement may have waited before."""

_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")


class Query(Value):
    """A statement with numbered parameters, and their names in that order."""

    name: str
    sql: str
    names: tuple[str, ...]

    def arguments(self, bindings: Bindings) -> tuple[Bound, ...]:
        return tuple([bindings[name] for name in self.names])


def compiled(name: str, text: str) -> Query:
    """A named query as PostgreSQL takes it: the time spelled out, `:names` as `$1`, `$2` and so on."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    sql = _NAME.sub(numbered, text.replace("{now}", NOW))
    return Query(name=name, sql=sql, names=tuple(names))


def load(*names: str) -> dict[str, Query]:
    """The queries of these files, by name."""
    folder = Path(__file__).parent / "sql"
    found = load_queries(*(folder / name for name in names))
    return {name: compiled(name, text) for name, text in found.items()}


queries = load("sessions.sql", "search.sql")
