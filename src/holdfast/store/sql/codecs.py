"""Codecs: they make row values from the columns that a database returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeAlias

from holdfast.store.sql.tables import Holds, R, Table

Parse: TypeAlias = Callable[[Any], object]


class Codec(Generic[R]):
    """Makes the rows of one table; `kept` parses the kinds of columns that a database stores in its own way."""

    def __init__(self, table: Table[R], kept: Mapping[Holds, Parse]) -> None:
        self.make: Callable[..., R] = table.kind
        self._parse = _numbered(kept.get(each.holds, each.parse) for each in table.columns)
        self.trust = _numbered(kept.get(each.holds, each.trust) for each in table.columns)
        """Readers for a row that a transaction reads in passing: this server parsed its ids before it stored them."""

    def made(self, row: Iterable[Any]) -> R:
        """The value of a row whose columns are in the order of the fields."""
        return self._made(row, self._parse)

    def trusted(self, row: Iterable[Any]) -> R:
        return self._made(row, self.trust)

    def _made(self, row: Iterable[Any], readers: tuple[tuple[int, Parse], ...]) -> R:
        # Most columns are plain, and this runs for every row of every turn.
        values = list(row)
        for at, parse in readers:
            value = values[at]
            if value is not None:
                values[at] = parse(value)
        return self.make(*values)


def _numbered(found: Iterable[Parse | None]) -> tuple[tuple[int, Parse], ...]:
    return tuple((n, how) for n, how in enumerate(found) if how)
