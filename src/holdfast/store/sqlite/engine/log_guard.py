"""A guard against programs that cut, delete or replace the log while this process writes to it.

SQLite does not look: it would go on writing behind a gap, or into a file that has no name any more, and a later
check-point would copy the gap into the database. So the writer looks before each batch:

1. A log that was deleted is still open here, and whole: it is copied into the database, and nothing is lost.
2. A log that was cut or replaced is left as it is, and so is the database: recovery reads as much of the log as there is.
3. The store stops in all cases, and is opened anew.

The check needs the write turn: then no process of ours writes to the log, or cuts it.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw
from apsw import Connection

from holdfast.store.sqlite.pages.log_length import FRAME_HEADER_BYTES, LOG_HEADER_BYTES


class LogGuard:
    """Knows which file the log of a connection is, and how long it has to be."""

    def __init__(self, database: Path, connection: Connection) -> None:
        self._path = f"{database}-wal"
        self._connection = connection
        size = connection.execute("PRAGMA page_size").get
        assert isinstance(size, int)
        self._frame_bytes = FRAME_HEADER_BYTES + size
        found = self._look()
        self._file = (found.st_dev, found.st_ino) if found else None

    def check(self, pages: int) -> str | None:
        """What happened to the log, in words; None if nothing did. `pages` are in it as far as this process knows."""
        found = self._look()
        if found is None:
            return None if self._file is None else self._rescued()
        file = found.st_dev, found.st_ino
        if self._file is None:
            self._file = file
        if file != self._file:
            return f"the log {self._path} was replaced while in use"
        if found.st_size < self._bytes_of(pages) and found.st_size < self._bytes_of(self._pages()):
            return f"the log {self._path} was cut while in use"
        return None

    def _look(self) -> os.stat_result | None:
        try:
            return os.stat(self._path)
        except FileNotFoundError:
            return None

    def _bytes_of(self, pages: int) -> int:
        return LOG_HEADER_BYTES + pages * self._frame_bytes if pages > 0 else 0

    def _pages(self) -> int:
        """How many pages are in the log: another process may have emptied it."""
        return self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)[0]

    def _rescued(self) -> str:
        told = f"the log {self._path} was deleted or moved while in use"
        try:
            pages, copied = self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            return f"{told}, and could not be copied into the database ({error})"
        saved = "what was in it is in the database" if pages == copied else "some of it is lost"
        return f"{told}; {saved}"
