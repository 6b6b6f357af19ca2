"""Another program's SQLite file, opened for reading: what all readers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import apsw

from holdfast.errors import InvalidValue

Cell: TypeAlias = int | float | bytes | str | None
Row: TypeAlias = tuple[Cell, ...]


class NotTheirs(InvalidValue):
    """The file is not one of the program that was named."""


class Tables:
    """A database of somebody else's. Nothing here writes."""

    def __init__(self, connection: apsw.Connection, path: Path, peer: str) -> None:
        self._connection = connection
        self._path = path
        self._peer = peer

    def demand(self, *tables: str) -> None:
        """Raises NotTheirs unless these tables are there."""
        missing = [each for each in tables if not self.columns(each)]
        if missing:
            named = ", ".join(missing)
            raise NotTheirs(f"{self._path} is no database of {self._peer}: it has no table {named}")

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none if it does not exist."""
        rows = self.rows("select name from pragma_table_info(?)", table)
        return frozenset(str(row[0]) for row in rows)

    def rows(self, query: str, *values: Cell) -> Iterator[Row]:
        try:
            yield from self._connection.execute(query, values)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotTheirs(f"{self._path} cannot be read as {self._peer}'s: {error}") from error


@contextmanager
def tables_of(path: Path, peer: str) -> Iterator[Tables]:
    """The tables of a file. Raises NotTheirs if there is none, or if it is no database."""
    if not path.is_file():
        raise NotTheirs(f"{path} does not exist")
    flags = apsw.SQLITE_OPEN_READONLY
    try:
        connection = apsw.Connection(str(path), flags=flags)
    except apsw.Error as error:
        raise NotTheirs(f"{path} cannot be opened: {error}") from error
    try:
        connection.set_busy_timeout(5000)
        yield Tables(connection, path, peer)
    finally:
        connection.close()


def text(cell: Cell) -> str:
    """What a cell says. What people wrote is asked for as a blob: nobody has checked that it is UTF-8."""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return cell if isinstance(cell, str) else "" if cell is None else str(cell)


def when_ms(cell: Cell) -> int:
    """A moment, as these programs write it: ISO 8601, SQLite's own form, or seconds; 0 if it is none of them."""
    if isinstance(cell, int | float):
        return int(cell * 1000)
    try:
        moment = datetime.fromisoformat(text(cell))
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
