"""Damaged leaves of indexes, written anew from their tables while servers use the store.

An index holds nothing that its table does not hold. A leaf of an index holds the entries between two others, its
*bounds*, which are on the pages above it. So the leaf is made of the rows between them, and takes the place of the
damaged page; no other page changes.

1. A leaf is written only with every entry that it had. A row that cannot be read has to have its entry on another page:
   else a reader would not find the row, and would not know that it is missing.
2. No row between the bounds comes or goes while the leaf is damaged, because each would have to change the leaf. So the
   rows are read while others write, from a file that holds one state of the store: all of the log is copied before, and
   none of it meanwhile. For the writing itself, all other writers wait, the log is empty, and the bounds have to be
   those that the rows were read by.
3. A leaf that is half written, after a crash or a failed sync, is damaged as before.

A page between root and leaf, and a root, cannot be made anew: nothing else knows which pages are below it.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.observe.events import warn
from holdfast.store.sqlite.connection import open_reader, open_writer
from holdfast.store.sqlite.engine.engine import beside
from holdfast.store.sqlite.faults import described, is_damage
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.migration import has_checksums
from holdfast.store.sqlite.pages.records import Bound, Cells, Record, index_leaf
from holdfast.store.sqlite.pages.survey import LEAVES, FilePages

PAUSE_S = 10.0
"""A repair reads all indexes. Damage that it could not repair is met again and again."""

BUSY_S = 5.0
"""How long a repair waits for readers of the log, and for a check-point that another connection makes."""

BUSY_PAUSE_S = 0.01
"""A check-point takes milliseconds."""

PAGES_MAX = 50_000
"""How large a table with damaged leaves may be: its rows are read page by page, which takes a second for some thousands."""

LOST_MAX = 100_000
"""How many numbers the rows on damaged leaves may have."""

ALL_ROWS = "true"
"""The condition of an index that has an entry for each row."""


class Index(Struct, frozen=True):
    """An index of a file, and how its entries are read from its table."""

    name: str
    root: int
    table: str
    table_root: int
    is_numbered: bool
    """The table's rows have numbers."""
    columns: tuple[str, ...]
    places: tuple[int, ...]
    """Where each column is in a row; -1 for the row's number."""
    condition: str
    """Which rows have an entry, in SQL."""


class Leaf(Struct, frozen=True):
    """A page of an index, and the entries before and after all of its own; None at an end of the index. Of a table: the
    number before its first row, and the last that a row of its own may have."""

    page: int
    above: Bound | None = None
    below: Bound | None = None


class IndexRepair:
    """Repairs the indexes of a file, one call at a time. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running = threading.Lock()
        self._ended_s = -inf
        self._has_written = False

    def run(self) -> bool:
        """Whether a leaf was written anew, by this call or by another a moment ago: then it is worth trying again what
        has met damage. It blocks."""
        with self._running:
            if time.monotonic() - self._ended_s >= PAUSE_S:
                try:
                    self._has_written = self._repair() > 0
                except apsw.Error as error:
                    # Also of a failed write: the page was damaged before, and still is.
                    self._has_written = False
                    warn("store.index_not_repaired", path=str(self._path), why=described(error))
                self._ended_s = time.monotonic()
            return self._has_written

    def _repair(self) -> int:
        """How many leaves were written."""
        with (
            closing(open_writer(self._path)) as db,
            closing(WriteTurn(beside(self._path, "writer"))) as turn,
        ):
            if not has_checksums(db):
                return 0
            db.set_busy_timeout(round(BUSY_S * 1000))
            return sum(self._repair_index(db, turn, index) for index in list(_indexes(db)))

    def _repair_index(self, db: Connection, turn: WriteTurn, index: Index) -> int:
        if all(page is not None for _, page in _pages(FilePages(db), index.root)):
            return 0
        with closing(open_reader(self._path)) as held:
            with turn:
                _copy_log(db)
                held.execute("begin")
                held.execute("select count(*) from sqlite_schema").fetchall()
            # While this snapshot is held, no check-point changes the file. Its connection is one of its own: an error
            # ends a transaction.
            made = {
                leaf: page
                for leaf in _damaged_leaves(FilePages(db), index.root) or ()
                if (page := _made_anew(db, index, leaf)) is not None
            }
        if not made:
            return 0
        with turn:
            _copy_log(db)
            there = [
                each for each in _damaged_leaves(FilePages(db), index.root) or () if each in made
            ]
            for leaf in there:
                _write_page(self._path, leaf.page, made[leaf])
                warn("store.index_repaired", index=index.name, page=leaf.page)
        return len(there)


def _copy_log(db: Connection) -> None:
    """Copy all of the log. Raises BusyError if readers, or check-points, are in the way for too long; SQLite itself waits
    for the readers alone."""
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
        except apsw.BusyError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(BUSY_PAUSE_S)
        else:
            return


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


# ── indexes ──────────────────────────────────────────────────────────────────────────────────

_INDEXES = """
select i.name, i.rootpage, i.tbl_name, t.rootpage, coalesce(i.sql, ''), t.sql like '%without rowid%'
from sqlite_schema i join sqlite_schema t on t.type = 'table' and t.name = i.tbl_name where i.type = 'index'
"""


def _indexes(db: Connection) -> Iterator[Index]:
    for name, root, table, table_root, sql, is_keyed in db.execute(_INDEXES).fetchall():
        columns = db.execute(f'PRAGMA index_xinfo("{name}")').fetchall()
        assert not any(is_falling for _, _, _, is_falling, *_ in columns), "indexes of ours rise"
        yield Index(
            name=str(name),
            root=int(str(root)),
            table=str(table),
            table_root=int(str(table_root)),
            is_numbered=not is_keyed,
            columns=tuple(f'"{column}"' if column else "rowid" for _, _, column, *_ in columns),
            places=tuple(int(str(place)) for _, place, *_ in columns),
            condition=(*re.split(r"\bwhere\b", str(sql), maxsplit=1), ALL_ROWS)[1],
        )


def _damaged_leaves(pages: FilePages, root: int, *, is_numbered: bool = False) -> list[Leaf] | None:
    """The leaves of a tree that are not as they were written; None if it cannot be told."""
    cells, level = Cells(pages), [Leaf(root)]
    while level:
        read = [pages.read(each.page) for each in level]
        if any(page and page[0] in LEAVES for page in read):  # all leaves are equally deep
            return [leaf for leaf, page in zip(level, read, strict=True) if page is None]
        if not all(read):
            return None
        level = [
            below
            for each, page in zip(level, read, strict=True)
            for below in _below(each, page or b"", cells.bounds(each.page, is_numbered))
        ]
    return None


def _below(branch: Leaf, page: bytes, between: list[Bound | None]) -> Iterator[Leaf]:
    """The pages below one, with their bounds; without those next to an entry that cannot be read."""
    bounds = [branch.above, *between, branch.below]
    numbers = list(FilePages.children(page, branch.page))
    for n, number in enumerate(numbers):
        is_known = (n == 0 or between[n - 1]) and (n == len(between) or between[n])
        if is_known:
            yield Leaf(number, bounds[n], bounds[n + 1])


# ── entries ──────────────────────────────────────────────────────────────────────────────────


def _made_anew(db: Connection, index: Index, leaf: Leaf) -> bytes | None:
    """The leaf with its entries; None if it cannot be said which these are."""
    pages = FilePages(db)
    try:
        entries: list[Record] | None = _entries(db, index, leaf)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        entries = _entries_around(pages, index, leaf)
    return None if entries is None else index_leaf(entries, pages.page_bytes)


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


def _entries_around(pages: FilePages, index: Index, leaf: Leaf) -> list[Record] | None:
    """The same if the table has damaged leaves, and every row that may be on one has its entry on another page of the
    index; else None."""
    if not index.is_numbered or index.condition != ALL_ROWS:
        return None
    cells = Cells(pages)
    leaves = [number for number, page in _pages(pages, index.table_root) if page]
    lost = _lost_rows(_damaged_leaves(pages, index.table_root, is_numbered=True) or [])
    if not lost or len(leaves) > PAGES_MAX:
        return None
    for number, page in _pages(pages, index.root):
        if page:
            lost.difference_update(each[-1] for each in cells.records(number, False) if each)
    if lost:
        return None
    found = list[Record]()
    for number in leaves:
        for row, record in cells.rows(number, is_numbered=True):
            if record is None:
                return None
            entry = [_value(record, row, place) for place in index.places]
            if _is_between(leaf, entry):
                found.append(entry)
    return sorted(found, key=_order)


def _lost_rows(leaves: list[Leaf]) -> set[int]:
    """The numbers that rows on these leaves of a table may have; none if there are too many."""
    firsts = [each.above[0] + 1 if each.above else 1 for each in leaves]
    lasts = [each.below[0] if each.below else sys.maxsize for each in leaves]
    if sum(lasts) - sum(firsts) > LOST_MAX:
        return set()
    return {n for first, last in zip(firsts, lasts, strict=True) for n in range(first, last + 1)}


def _pages(pages: FilePages, root: int) -> Iterator[tuple[int, bytes | None]]:
    """The pages of a tree, but those below damaged ones; a damaged page is None."""
    level = [root]
    while level:
        read = [(number, pages.read(number)) for number in level]
        yield from read
        level = [each for number, page in read if page for each in pages.children(page, number)]


def _value(record: Record, row: int, place: int) -> object:
    """A column of a row; a row from before the column was added is shorter."""
    if place < 0:
        return row
    return record[place] if place < len(record) else None


def _is_between(leaf: Leaf, entry: Record) -> bool:
    order = _order(entry)
    return (leaf.above is None or _order(leaf.above) < order) and (
        leaf.below is None or order < _order(leaf.below)
    )


def _order(entry: Iterable[object]) -> list[tuple[int, Any]]:
    """What entries are sorted by: null, numbers, texts, bytes."""
    return [
        (0, 0)
        if each is None
        else (1, each)
        if isinstance(each, int)
        else (2, each.encode())
        if isinstance(each, str)
        else (3, each)
        for each in entry
    ]
