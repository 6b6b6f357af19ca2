"""Full leaves of the table of sessions beside damaged ones, divided without their neighbours.

A session's row is longer while a turn of it is open. Where its leaf is full, SQLite divides the leaf, and first reads the
leaves beside it, in case the rows fit there. If one of these is damaged, sound sessions could take no turns.

Nothing of the neighbours is needed to divide a leaf in two, and to lead to the new page from the page above:

    above:  … [S] …          above:  … [N] c [S] …
    S:      a b c d e        N:      a b              S:      d e

1. A damaged page is neither read nor written: what lay there is told as damaged, as before.
2. SQLite writes all of it in one transaction: whole or not at all, whenever it ends.
3. N is a page that SQLite has made, of a table with these rows, whose name is removed from the schema.
4. The new bytes of S and of the page above are shown to SQLite as what it reads from the file. One row on each is changed
   and changed back, so that SQLite writes them.
5. Before the commit, all rows of the leaf are read as they were: once from memory, and once from what was written.

A page above that has no room is divided by SQLite itself: a row on it is made longer for a moment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from struct import pack
from typing import Any

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.observe.events import warn
from holdfast.store.sqlite.connection import open_writer
from holdfast.store.sqlite.faults import described
from holdfast.store.sqlite.pages.records import Bound, Cells, page_of, room_beside
from holdfast.store.sqlite.pages.survey import BRANCHES, LEAVES, FilePages
from holdfast.store.sqlite.pages.trees import pages_of

TABLE = "session"
KEY = ("tenant", "id")

NEW_TABLE = "session_divided"
"""What the new leaf is called until it is part of the table, in the same transaction."""

ROOM_BYTES = 2_000
"""A leaf with less room is divided: about half of a page, so that every row on it may be twice as long."""

SPARE_BYTES = 16
"""By how much a row may be longer while it is changed and changed back."""

ROW_BYTES = 950
"""A row of this size is on its page as a whole."""

TRIES = 3
"""How often room is made above one leaf: where rows take a quarter of a page, one more may not fit all the same."""


class FullLeaf(Struct, frozen=True):
    """A leaf with little room beside a damaged one, and the page above it."""

    page_bytes: int
    number: int
    cells: tuple[bytes, ...]
    keys: tuple[Bound, ...]
    above: int
    cells_above: tuple[bytes, ...]
    keys_above: tuple[Bound, ...]
    last_above: int
    place: int
    """Which of the pages below that one the leaf is."""
    middle: int
    """Which of its rows goes up."""

    @property
    def has_room_above(self) -> bool:
        room = room_beside(self.cells_above, self.page_bytes, is_leaf=False)
        return room >= len(self.cells[self.middle]) + 4 + 2 + SPARE_BYTES

    def divided(self, new: int) -> dict[int, bytes]:
        """The leaf and the page above it, if the first rows are on a `new` page."""
        up = pack(">I", new) + self.cells[self.middle]
        above = [*self.cells_above[: self.place], up, *self.cells_above[self.place :]]
        return {
            self.number: page_of(self.cells[self.middle + 1 :], self.page_bytes),
            self.above: page_of(above, self.page_bytes, last=self.last_above),
        }


class LeafDivision:
    """Divides the full leaves beside damaged pages of the table, one step at a time."""

    def __init__(self, db: Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._damaged = {
            number for number, page in pages_of(FilePages(db), _root(db)) if page is None
        }
        self._tried = Counter[int]()
        """How often room was made above a leaf, or the leaf could not be divided."""

    def step(self) -> bool:
        """Divide a leaf, or make room above it; False if there is none left that can be divided. Call it while all of the
        log is copied into the file, and no other process of ours writes. Raises BusyError if another program writes."""
        for leaf in _full_leaves(self._db, self._damaged):
            if self._tried[leaf.number] == TRIES:
                continue
            self._tried[leaf.number] += 1
            try:
                if leaf.has_room_above:
                    _divide(self._db, self._path, leaf)
                    warn("store.leaf_divided", table=TABLE, page=leaf.number)
                    return True
                if _make_room(self._db, leaf):
                    return True
            except apsw.BusyError:
                raise
            except (apsw.Error, UnicodeError) as error:
                warn("store.leaf_not_divided", table=TABLE, page=leaf.number, why=described(error))
        return False

    @property
    def is_needed(self) -> bool:
        return bool(self._damaged)


def _root(db: Connection) -> int:
    return int(str(db.execute("select rootpage from sqlite_schema where name = ?", (TABLE,)).get))


# ── which ────────────────────────────────────────────────────────────────────────────────────


def _full_leaves(db: Connection, damaged: Collection[int]) -> Iterator[FullLeaf]:
    """The leaves with little room that SQLite cannot divide, as far as they can be divided at all."""
    pages = FilePages(db)
    cells = Cells(pages)
    level, seen = [_root(db)], set[int]()
    while level:
        told = next(filter(None, map(pages.read, level)), b"")
        if not told or told[0] not in BRANCHES:  # all leaves are equally deep
            return
        below = list[int]()
        for number in level:
            page = pages.read(number)
            if not page or number in seen:
                continue
            seen.add(number)
            children = list(pages.children(page, number))
            below += children
            for place, child in enumerate(children):
                beside = {*children[max(0, place - 1) : place], *children[place + 1 : place + 2]}
                if child not in damaged and beside.intersection(damaged):
                    found = _full_leaf(pages, cells, number, place, child, damaged)
                    if found is not None:
                        yield found
        level = below


def _full_leaf(
    pages: FilePages,
    cells: Cells,
    above: int,
    place: int,
    number: int,
    damaged: Collection[int],
) -> FullLeaf | None:
    page, page_above = pages.read(number), pages.read(above)
    if not page or not page_above or page[0] not in LEAVES:
        return None
    own, keys = cells.whole(page), _keys(cells, number)
    middle = _middle(own)
    if room_beside(own, pages.page_bytes) >= ROOM_BYTES or middle is None or not all(keys):
        return None
    *children, last = pages.children(page_above, above)
    found = zip(_keys(cells, above), children, strict=True)
    return FullLeaf(
        page_bytes=pages.page_bytes,
        number=number,
        cells=tuple(own),
        keys=keys,
        above=above,
        cells_above=tuple(cells.whole(page_above)),
        # SQLite finds a row on a page above by way of the leaf before it.
        keys_above=tuple(() if child in damaged else key for key, child in found),
        last_above=last,
        place=place,
        middle=middle,
    )


def _keys(cells: Cells, number: int) -> tuple[Bound, ...]:
    """The keys of the rows on a page; empty for a row that goes on on a damaged page."""
    return tuple(tuple(each[: len(KEY)]) if each else () for each in cells.records(number, False))


def _middle(cells: Sequence[bytes]) -> int | None:
    """Which cell goes up, such that the two parts are about as large as each other; None if it cannot be. The rows before
    it are written anew, so that none of them may go on on another page."""
    whole = next((n for n, each in enumerate(cells) if not Cells.is_whole(each)), len(cells))
    sizes = [len(each) for each in cells]
    places = range(1, min(whole + 1, len(cells) - 1))
    return min(places, key=lambda n: abs(sum(sizes[:n]) - sum(sizes[n + 1 :])), default=None)


# ── how ──────────────────────────────────────────────────────────────────────────────────────


def _make_room(db: Connection, leaf: FullLeaf) -> bool:
    """Have SQLite divide the page above a leaf: rows on it are made so long that they do not fit, and again as they were.
    No leaf is read for it."""
    of = f"where {' and '.join(f'{each} = ?' for each in KEY)}"
    left = room_beside(leaf.cells_above, leaf.page_bytes, is_leaf=False)
    titles = list[tuple[object, Bound]]()
    db.execute("begin immediate")
    try:
        for cell, key in zip(leaf.cells_above, leaf.keys_above, strict=True):
            if left >= 0 and key and len(cell) < ROW_BYTES:
                title = db.execute(f"select title from {TABLE} {of}", key).get
                titles.append((title, key))
                longer = f"{title}{' ' * (ROW_BYTES - len(cell))}"
                db.execute(f"update {TABLE} set title = ? {of}", (longer, *key))
                left -= ROW_BYTES - len(cell)
        for title, key in titles:
            db.execute(f"update {TABLE} set title = ? {of}", (title, *key))
        db.execute("commit")
    finally:
        if db.in_transaction:
            db.execute("rollback")
    return left < 0


def _divide(db: Connection, path: Path, leaf: FullLeaf) -> None:
    shown = _Shown()
    try:
        with closing(open_writer(path, vfs=shown.name)) as own:
            own.set_busy_timeout(0)
            own.execute("begin immediate")  # without a commit, it ends with the connection
            _divide_in(own, db, leaf, shown)
            own.execute("commit")
    finally:
        shown.unregister()


def _divide_in(own: Connection, db: Connection, leaf: FullLeaf, shown: _Shown) -> None:
    key = f"({', '.join(KEY)})"
    within = (
        f"select * from {TABLE} where {key} >= (?, ?) and {key} <= (?, ?) order by {', '.join(KEY)}"
    )
    ends = (*leaf.keys[0], *leaf.keys[-1])
    before = db.execute(within, ends).fetchall()
    _demand([row[: len(KEY)] for row in before] == list(leaf.keys))
    new = _new_leaf(own, before[: leaf.middle])
    shown.pages = {
        (number - 1) * leaf.page_bytes: page for number, page in leaf.divided(new).items()
    }
    change = f"update {TABLE} set lease_token = ~lease_token where {key} = (?, ?)"
    for each in (leaf.keys[leaf.middle], leaf.keys[-1]):
        for _ in range(2):
            own.execute(change, each)
    _demand(own.execute(within, ends).fetchall() == before)
    _demand(shown.seen == shown.pages.keys())  # else another program has just written one of them
    own.cache_flush()
    own.release_memory()
    shown.pages = {}
    _demand(own.execute(within, ends).fetchall() == before)


def _new_leaf(own: Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """A page with these rows that belongs to no table any more."""
    sql = str(own.execute("select sql from sqlite_schema where name = ?", (TABLE,)).get)
    own.execute(
        re.sub(rf"^(create table )\W?{TABLE}\b\W?", rf"\1{NEW_TABLE} ", sql, flags=re.IGNORECASE)
    )
    marks = ", ".join("?" * len(rows[0]))
    own.executemany(f"insert into {NEW_TABLE} values ({marks})", rows)
    found = own.execute("select rootpage from sqlite_schema where name = ?", (NEW_TABLE,)).get
    pages = own.execute("select count(*) from dbstat where name = ?", (NEW_TABLE,)).get
    _demand(pages == 1)
    own.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    own.execute("PRAGMA writable_schema = on")
    own.execute("delete from sqlite_schema where tbl_name = ?", (NEW_TABLE,))
    return int(str(found))


def _demand(is_so: bool) -> None:
    if not is_so:
        raise apsw.AbortError("a leaf could not be divided as planned; nothing changed")


class _Shown(apsw.VFS):
    """SQLite's files, with some pages of the database in place of those that are there."""

    def __init__(self) -> None:
        self.name = f"holdfast-division-{next(_numbers)}"
        self.pages: dict[int, bytes] = {}
        """By where they begin."""
        self.seen: set[int] = set()
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _ShownFile(self, name, flags)
        return super().xOpen(name, flags)


class _ShownFile(apsw.VFSFile):
    def __init__(
        self, shown: _Shown, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._shown = shown
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        page = self._shown.pages.get(offset)
        if page is None or len(page) != amount:
            return super().xRead(amount, offset)
        self._shown.seen.add(offset)
        return page


_numbers = count(1)
