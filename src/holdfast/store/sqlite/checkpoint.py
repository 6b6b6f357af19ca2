"""When the log is copied into the database, and how.

Commits append to the log; check-points copy it into the database so that it can start over.
We do that between batches, never inside one. Which kind is a decision from a few numbers:

- *passive* whenever the log has grown by a step: it waits for nobody and blocks nobody;
- *truncate* when nobody writes and the log is worth its disk space;
- *truncate*, too, when the log has passed a hard bound although passive ones were made: some
  reader or other process always had a page in use. This one waits a moment for them.
"""

from __future__ import annotations

from enum import IntEnum

import apsw
from apsw import Connection
from msgspec import Struct


class Mode(IntEnum):
    """Of the check-points that SQLite offers, those that we use."""

    PASSIVE = apsw.SQLITE_CHECKPOINT_PASSIVE
    TRUNCATE = apsw.SQLITE_CHECKPOINT_TRUNCATE


class Policy(Struct, frozen=True, kw_only=True):
    """In pages of the log; a page is 4 KiB."""

    step_pages: int = 1_000
    """4 MiB: copying it takes milliseconds, and recovery after a crash reads no more than that."""
    idle_pages: int = 4_000
    """16 MiB. A smaller file stays: writing over existing blocks syncs faster than growing."""
    idle_s: float = 1.0
    """Nobody has written for that long."""
    hard_pages: int = 16_000
    """64 MiB: from here on readers get slower, and we would rather make writers wait once."""


def wanted(policy: Policy, *, pages: int, seen: int, idle: bool) -> Mode | None:
    """What to do about a log of `pages` that had `seen` pages at the last attempt.

    `idle` says that nobody writes, and that nothing was tried since the last commit.
    """
    grown = pages - seen if pages >= seen else pages  # fewer than then: it has started over
    if pages >= policy.hard_pages and grown >= policy.step_pages:
        return Mode.TRUNCATE
    if idle and pages >= policy.idle_pages:
        return Mode.TRUNCATE
    if grown >= policy.step_pages:
        return Mode.PASSIVE
    return None


class Log:
    """The log of one connection, as its commits report it."""

    def __init__(self, connection: Connection) -> None:
        self.pages = 0
        self.seen = 0
        self.rested = False
        """An idle moment was used since the last commit."""
        self._connection = connection
        connection.set_wal_hook(self._committed)

    def _committed(self, connection: Connection, name: str, pages: int) -> int:
        self.pages = pages
        self.rested = False
        return apsw.SQLITE_OK

    def run(self, mode: Mode) -> bool:
        """Make a check-point; whether all of the log was copied. Fatal errors travel."""
        self.seen = self.pages
        try:
            pages, copied = self._connection.wal_checkpoint("main", mode)
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            # Somebody reads, somebody else does it, or the disk is full. The log keeps it all.
            return False
        if mode is Mode.TRUNCATE:
            self.pages = self.seen = 0
        return pages == copied
