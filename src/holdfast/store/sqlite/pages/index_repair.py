"""Damaged leaves of indexes, written anew from their tables while servers use the store.

An index holds nothing that its table does not hold. A leaf of an index holds the entries between two others, its
*bounds*, which are on the pages above it. So the leaf is made of the rows between them, and takes the place of the
damaged page; no other page changes.

1. A leaf is written only with every entry that it had, also for rows that cannot be read (`lost_rows.py`): else a reader
   would not find such a row, and would not know that it is missing.
2. No row between the bounds comes or goes while the leaf is damaged, because each would have to change the leaf. So the
   rows are read while others write, from a file that holds one state of the store: all of the log is copied before, and
   none of it meanwhile. For the writing itself, all other writers wait, the log is empty, and the bounds have to be
   those that the rows were read by.
3. A leaf that is half written, after a crash or a failed sync, is damaged as before.

A page between root and leaf, and a root, cannot be made anew: nothing else knows which pages are below it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path

import apsw
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.observe.events import warn
from holdfast.store.sqlite.connection import open_reader, open_writer
from holdfast.store.sqlite.engine.engine import beside
from holdfast.store.sqlite.faults import described, is_damage
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.migration import has_checksums
from holdfast.store.sqlite.pages.leaf_division import LeafDivision
from holdfast.store.sqlite.pages.lost_rows import DamagedTable
from holdfast.store.sqlite.pages.records import Bound, Record, index_leaf
from holdfast.store.sqlite.pages.survey import FilePages
from holdfast.store.sqlite.pages.trees import Index, Leaf, damaged_leaves, indexes, pages_of

PAUSE_S = 10.0
"""A repair reads all indexes. Damage that it could not repair is met again and again."""

BUSY_S = 5.0
"""How long a repair waits for readers of the log, and for a check-point that another connection makes."""

BUSY_AGAIN_S = 1.0
"""When a repair that readers or check-points were in the way of is worth another try: it has found out nothing."""

BUSY_PAUSE_S = 0.01
"""A check-point takes milliseconds."""

READERS_S = 0.05
"""How long other writers wait at first for readers of an older state, most of which take milliseconds."""


class IndexRepair:
    """Repairs the indexes of a file, and has leaves of tables beside damaged ones divided, one call at a time. Any
    thread may call it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running = threading.Lock()
        self._again_s = -inf
        """When damage that is met is worth the next repair."""
        self._has_written = False

    def run(self) -> bool:
        """Whether a page was written, by this call or by another a moment ago: then it is worth trying again what has met
        damage. It blocks."""
        with self._running:
            if time.monotonic() >= self._again_s:
                pause_s = PAUSE_S
                self._has_written = False
                try:
                    self._repair()
                except (apsw.Error, StoreUnusable) as error:
                    # Also of a failed write: the page was damaged before, and still is.
                    if isinstance(error, apsw.BusyError):
                        pause_s = BUSY_AGAIN_S
                    warn("store.index_not_repaired", path=str(self._path), why=described(error))
                self._again_s = time.monotonic() + pause_s
            return self._has_written

    def _repair(self) -> None:
        with (
            closing(open_writer(self._path)) as db,
            closing(WriteTurn(beside(self._path, "writer"))) as turn,
        ):
            if not has_checksums(db):
                return
            found = list(indexes(db))
            # One index may tell what another one needs.
            while sum(self._repair_index(db, turn, index) for index in found):
                self._has_written = True
            division = LeafDivision(db, self._path)
            while division.is_needed:
                with _log_copied(db, turn):
                    if not division.step():
                        return
                self._has_written = True

    def _repair_index(self, db: Connection, turn: WriteTurn, index: Index) -> int:
        if all(page is not None for _, page in pages_of(FilePages(db), index.root)):
            return 0
        with closing(open_reader(self._path)) as held:
            with _log_copied(db, turn):
                held.execute("begin")
                held.execute("select count(*) from sqlite_schema").fetchall()
            # While this snapshot is held, no check-point changes the file. Its connection is one of its own: an error
            # ends a transaction.
            table = DamagedTable(db, index)
            made = {
                leaf: page
                for leaf in damaged_leaves(FilePages(db), index.root) or ()
                if (page := _made_anew(db, index, leaf, table)) is not None
            }
        if not made:
            return 0
        with _log_copied(db, turn):
            there = [
                each for each in damaged_leaves(FilePages(db), index.root) or () if each in made
            ]
            for leaf in there:
                _write_page(self._path, leaf.page, made[leaf])
                warn("store.index_repaired", index=index.name, page=leaf.page)
        return len(there)


@contextmanager
def _log_copied(db: Connection, turn: WriteTurn) -> Iterator[None]:
    """Hold the write turn, with all of the log copied into the file. Raises BusyError if readers, or check-points, are in
    the way for too long.

    Others may write between two tries. Each of these writes makes older readers of all that read just now, so that a try
    waits for readers as long as the ones before it took together.
    """
    began_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - began_s
        with turn:
            left_s = max(BUSY_S - waited_s, 0.0)
            db.set_busy_timeout(round(min(max(waited_s, READERS_S), left_s) * 1000))
            try:
                db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
            except apsw.BusyError:
                if time.monotonic() - began_s >= BUSY_S:
                    raise
            else:
                yield
                return
        time.sleep(BUSY_PAUSE_S)


def _write_page(path: Path, number: int, page: bytes) -> None:
    """Write a page into a file with checksums, by SQLite's own way to it: to open and close a file in any other way would
    drop the locks of this process."""
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        file.xRead(
            len(page), 0
        )  # the first page tells that there are checksums, and each write then makes one
        file.xWrite(page, (number - 1) * len(page))
        file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()


# ── entries ──────────────────────────────────────────────────────────────────────────────────


def _made_anew(db: Connection, index: Index, leaf: Leaf, table: DamagedTable) -> bytes | None:
    """The leaf with its entries; None if it cannot be said which these are."""
    try:
        entries: list[Record] | None = _entries(db, index, leaf)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        entries = table.entries(leaf)
    return None if entries is None else index_leaf(entries, FilePages(db).page_bytes)


def _entries(db: Connection, index: Index, leaf: Leaf) -> list[Record]:
    """The entries of an index between two of them, from the rows of its table."""
    place = ", ".join(f"{each} is not null, ifnull({each}, 0)" for each in index.columns)
    sides = [(">", leaf.above), ("<", leaf.below)]
    given = [(side, _compared(bound)) for side, bound in sides if bound is not None]
    marks = ", ".join("?" * 2 * len(index.columns))
    within = "".join(f" and ({place}) {side} ({marks})" for side, _ in given)
    listed = ", ".join(index.columns)
    by_table = (
        "not indexed" if index.is_numbered else f"indexed by sqlite_autoindex_{index.table}_1"
    )
    sql = f"select {listed} from {index.table} {by_table} where {index.condition}{within} order by {listed}"
    return [list(row) for row in db.execute(sql, [each for _, bound in given for each in bound])]


def _compared(bound: Bound) -> list[object]:
    """An entry as SQL compares it: nothing is above or below null there, while an index has an order."""
    return [part for each in bound for part in (each is not None, 0 if each is None else each)]
