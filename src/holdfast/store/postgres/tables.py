"""Between rows of PostgreSQL and the values of `store/rows.py`.

What people and models say is UTF-8 in bytea (`Words`), because PostgreSQL's text cannot hold U+0000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from holdfast.core.codec import Value
from holdfast.store import tables as of
from holdfast.store.dialects import POSTGRES

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
    """How one kind of row is read."""

    def __init__(self, table: of.Table[R]) -> None:
        self._make: Callable[..., R] = table.kind
        self._read = _readers((n, each, each.parse) for n, each in enumerate(table.columns))
        self._trust = _readers((n, each, each.trust) for n, each in enumerate(table.columns))

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


def _readers(
    columns: Iterable[tuple[int, of.Column, Callable[[Any], object] | None]],
) -> tuple[tuple[int, Callable[[Any], object]], ...]:
    found = ((n, bytes.decode if each.holds == "words" else how) for n, each, how in columns)
    return tuple((n, how) for n, how in found if how)


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
