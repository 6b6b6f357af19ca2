"""Another program's SQLite file, opened for reading; and helpers for all readers."""

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
    """The file is not a database of the named program."""


class Tables:
    """A database of another program. It is never written."""

    def __init__(self, connection: apsw.Connection, path: Path, peer: str) -> None:
        self._connection = connection
        self._path = path
        self._peer = peer

    def demand(self, *tables: str) -> None:
        """Raises NotTheirs unless these tables exist."""
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
    """The tables of a file. Raises NotTheirs if it does not exist or is not a database."""
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
    """The text of a cell. Queries read free text as a blob, since it may not be UTF-8."""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return cell if isinstance(cell, str) else "" if cell is None else str(cell)


def when_ms(cell: Cell) -> int:
    """A time as these programs write it: ISO 8601, SQLite's own form, or seconds; 0 for anything else."""
    if isinstance(cell, int | float):
        return int(cell * 1000)
    try:
        moment = datetime.fromisoformat(text(cell))
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
