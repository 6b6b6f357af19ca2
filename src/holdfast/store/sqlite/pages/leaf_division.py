"""Full leaves of tables beside damaged ones, divided without their neighbours.

A row gets longer, such as a session's while a turn of it is open, or is put between others. Where its leaf is full,
SQLite divides the leaf, and first reads the leaves beside it, in case the rows fit there. If one of these is damaged,
sound sessions could take no turns.

Nothing of the neighbours is needed to divide a leaf in two, and to lead to the new page from the page above. If rows
have numbers, all rows stay on leaves, and the page above has the number of the last one; else a row goes up:

    above:  … [S] …          above:  … [N] c [S] …
    S:      a b c d e        N:      a b              S:      d e

1. A damaged page is neither read nor written: what lay there is told as damaged, as before.
2. SQLite writes all of it in one transaction: whole or not at all, whenever it ends.
3. N is a page that SQLite has made for a table, whose name is removed from the schema.
4. SQLite has no way to be given pages. But it writes in place to a value that goes on on another page. So it is shown a
   table, in place of the damaged page, whose values go on on N, on S, and on the page above.
5. Before the commit, all rows of the leaf are read as they were: once from memory, and once from what was written. The
   pages that were written are those three, and the damaged one is not among them.

A page above that has no room is divided by SQLite itself, if rows lie there: a row on it is made longer for a moment. Rows
with numbers do not, so that a leaf of theirs stays as it is below a full page, which leads to some 400 leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing
from itertools import count
from pathlib import Path
from struct import pack, unpack_from
from typing import Any

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.observe.events import warn
from holdfast.store.sqlite.connection import CHECKSUM_BYTES, open_writer
from holdfast.store.sqlite.faults import described
from holdfast.store.sqlite.pages.log_length import FRAME_HEADER_BYTES
from holdfast.store.sqlite.pages.records import (
    Bound,
    Cells,
    bound_after,
    page_before,
    page_of,
    room_beside,
)
from holdfast.store.sqlite.pages.survey import BRANCHES, LEAVES, SEARCH_TABLES, FilePages
from holdfast.store.sqlite.pages.trees import pages_of

APPENDED = frozenset(("annotation", "item", "memory", "state"))
"""Tables whose rows have numbers, come at the end and never get longer. For a row at the end, SQLite reads no neighbour."""

NEW_TABLE = "leaf_division"
"""The table that the new leaf is made for, and that is then shown in place of a damaged page, in one transaction."""

ROOM_BYTES = 2_000
"""A leaf with less room is divided: about half of a page, so that every row on it may be twice as long."""

ROW_BYTES = 950
"""A row of this size is on its page as a whole."""

TRIES = 3
"""How often room is made above one leaf: where rows take a quarter of a page, one more may not fit all the same."""


class DividedTable(Struct, frozen=True):
    """A table whose full leaves are divided."""

    name: str
    root: int
    key: tuple[str, ...]
    """What its rows are sorted by; empty if they have numbers."""
    loose: str | None
    """A text, or bytes, in no index, that can be made longer for a moment."""

    @property
    def is_numbered(self) -> bool:
        return not self.key

    @property
    def place(self) -> tuple[str, ...]:
        return self.key or ("rowid",)


class FullLeaf(Struct, frozen=True):
    """A leaf with little room beside a damaged one, and the page above it."""

    table: DividedTable
    page_bytes: int
    number: int
    damaged: int
    """A damaged page that SQLite would read."""
    cells: tuple[bytes, ...]
    keys: tuple[Bound, ...]
    above: int
    cells_above: tuple[bytes, ...]
    keys_above: tuple[Bound, ...]
    last_above: int
    place: int
    """Which of the pages below that one the leaf is."""
    middle: int
    """The first of its rows that is not on the new page."""

    def cell_above(self, new: int) -> bytes:
        if self.table.is_numbered:
            (row,) = self.keys[self.middle - 1]
            return bound_after(new, row)
        return pack(">I", new) + self.cells[self.middle]

    @property
    def room_above(self) -> int:
        """What is left there once the new leaf is led to."""
        cells = [*self.cells_above, self.cell_above(0)]
        return room_beside(cells, self.page_bytes, is_leaf=False)

    def divided(self, new: int) -> dict[int, bytes]:
        """The leaf, the `new` page and the one above, if the first rows are on the new page."""
        numbered, size = self.table.is_numbered, self.page_bytes
        up = self.cell_above(new)
        above = [*self.cells_above[: self.place], up, *self.cells_above[self.place :]]
        rest = self.cells[self.middle + (0 if numbered else 1) :]
        return {
            new: page_of(self.cells[: self.middle], size, is_numbered=numbered),
            self.number: page_of(rest, size, is_numbered=numbered),
            self.above: page_of(above, size, last=self.last_above, is_numbered=numbered),
        }


class LeafDivision:
    """Divides the full leaves beside damaged pages of tables, one step at a time."""

    def __init__(self, db: Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._damaged = dict[DividedTable, set[int]]()
        for table in divided_tables(db):
            found = pages_of(FilePages(db), table.root)
            damaged = {number for number, page in found if page is None}
            if damaged:
                self._damaged[table] = damaged
        self._tried = Counter[int]()
        """How often room was made above a leaf, or the leaf could not be divided."""

    def step(self) -> bool:
        """Divide a leaf, or make room above it; False if there is none left that can be divided. Call it while all of the
        log is copied into the file, and no other process of ours writes. Raises BusyError if another program writes."""
        return any(self._step(leaf) for leaf in self._full_leaves())

    def _full_leaves(self) -> Iterator[FullLeaf]:
        for table, damaged in self._damaged.items():
            yield from _full_leaves(self._db, table, damaged)

    def _step(self, leaf: FullLeaf) -> bool:
        if self._tried[leaf.number] == TRIES:
            return False
        self._tried[leaf.number] += 1
        why = "the page above it has no room"
        try:
            if leaf.room_above >= 0:
                _divide(self._db, self._path, leaf)
                warn("store.leaf_divided", table=leaf.table.name, page=leaf.number)
                return True
            if _make_room(self._db, leaf):
                return True
        except apsw.BusyError:
            raise
        except (apsw.Error, UnicodeError) as error:
            why = described(error)
        warn("store.leaf_not_divided", table=leaf.table.name, page=leaf.number, why=why)
        return False

    @property
    def is_needed(self) -> bool:
        return bool(self._damaged)


# ── which ────────────────────────────────────────────────────────────────────────────────────


def divided_tables(db: Connection) -> Iterator[DividedTable]:
    """All tables that turns write to, but those that are only appended to."""
    schema = (
        "select name, rootpage, sql like '%without rowid%' from sqlite_schema where type = 'table' "
        f"and rootpage > 0 and name not glob 'sqlite_*' and name not glob '{SEARCH_TABLES}'"
    )
    for name, root, is_keyed in db.execute(schema).fetchall():
        if name in APPENDED:
            continue
        columns = db.execute(
            "select name, type, pk from pragma_table_info(?) order by pk", (name,)
        ).fetchall()
        indexed = db.execute(
            "select distinct x.name from pragma_index_list(?) i, pragma_index_info(i.name) x",
            (name,),
        ).fetchall()
        yield DividedTable(
            name=str(name),
            root=int(str(root)),
            key=tuple(f'"{each}"' for each, _, pk in columns if pk) if is_keyed else (),
            loose=next(
                (
                    f'"{each}"'
                    for each, kind, _ in columns
                    if kind in ("TEXT", "BLOB") and (each,) not in indexed
                ),
                None,
            ),
        )


def _full_leaves(db: Connection, table: DividedTable, damaged: Set[int]) -> Iterator[FullLeaf]:
    """The leaves with little room that SQLite cannot divide, as far as they can be divided at all."""
    pages = FilePages(db)
    cells = Cells(pages)
    level, seen = [table.root], set[int]()
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
                hit = not damaged.isdisjoint(read_with(children, place))
                if hit and child not in damaged:
                    found = _full_leaf(pages, cells, table, number, place, damaged)
                    if found is not None:
                        yield found
        level = below


def read_with(children: Sequence[int], place: int) -> Sequence[int]:
    """The pages that SQLite reads to divide one of those below a page: three, also at both ends."""
    first = max(0, min(place - 1, len(children) - 3))
    return children[first : first + 3]


def _full_leaf(
    pages: FilePages,
    cells: Cells,
    table: DividedTable,
    above: int,
    place: int,
    damaged: Set[int],
) -> FullLeaf | None:
    page_above = pages.read(above) or b""
    *children, last = pages.children(page_above, above)
    number = [*children, last][place]
    page, is_numbered = pages.read(number), table.is_numbered
    if not page or page[0] not in LEAVES:
        return None
    own, keys = cells.whole(page, is_numbered), _keys(cells, number, table)
    middle = _middle(own, 0 if is_numbered else 1)
    # Most rows that get longer are on the last leaf, and SQLite reads two leaves before that one.
    is_full = room_beside(own, pages.page_bytes) < ROOM_BYTES or (is_numbered and number == last)
    if not is_full or middle is None or not all(keys):
        return None
    bounds = cells.bounds(above, is_numbered)
    return FullLeaf(
        table=table,
        page_bytes=pages.page_bytes,
        number=number,
        damaged=next(each for each in read_with([*children, last], place) if each in damaged),
        cells=tuple(own),
        keys=keys,
        above=above,
        cells_above=tuple(cells.whole(page_above, is_numbered)),
        # SQLite finds a row on a page above by way of the leaf before it.
        keys_above=tuple(
            () if child in damaged else (bound or ())[: len(table.place)]
            for bound, child in zip(bounds, children, strict=True)
        ),
        last_above=last,
        place=place,
        middle=middle,
    )


def _keys(cells: Cells, number: int, table: DividedTable) -> tuple[Bound, ...]:
    """The keys of the rows on a page; empty for a row that goes on on a damaged page."""
    return tuple(
        () if record is None else tuple(record[: len(table.key)]) if table.key else (row,)
        for row, record in cells.rows(number, table.is_numbered)
    )


def _middle(cells: Sequence[bytes], up: int) -> int | None:
    """The first cell after the new page, or the one that goes up, such that the two parts are about as large as each
    other; None if it cannot be."""
    sizes = [len(each) for each in cells]
    places = range(1, len(cells) - up)
    return min(places, key=lambda n: abs(sum(sizes[:n]) - sum(sizes[n + up :])), default=None)


# ── how ──────────────────────────────────────────────────────────────────────────────────────


def _make_room(db: Connection, leaf: FullLeaf) -> bool:
    """Have SQLite divide the page above a leaf: rows on it are made so long that they do not fit, and again as they were.
    No leaf is read for it."""
    table, loose = leaf.table, leaf.table.loose
    if table.is_numbered or loose is None:
        return False
    of = f"where {' and '.join(f'{each} = ?' for each in table.key)}"
    left = room_beside(leaf.cells_above, leaf.page_bytes, is_leaf=False)
    were = list[tuple[Any, Bound]]()
    db.execute("PRAGMA ignore_check_constraints = on")
    db.execute("begin immediate")
    try:
        for cell, key in zip(leaf.cells_above, leaf.keys_above, strict=True):
            if left >= 0 and key and len(cell) < ROW_BYTES:
                was: Any = db.execute(f"select {loose} from {table.name} {of}", key).get
                were.append((was, key))
                more = ROW_BYTES - len(cell)
                longer = was + bytes(more) if isinstance(was, bytes) else (was or "") + " " * more
                db.execute(f"update {table.name} set {loose} = ? {of}", (longer, *key))
                left -= more
        for was, key in were:
            db.execute(f"update {table.name} set {loose} = ? {of}", (was, *key))
        db.execute("commit")
    finally:
        if db.in_transaction:
            db.execute("rollback")
        db.execute("PRAGMA ignore_check_constraints = off")
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
    before = _rows(db, leaf)
    _demand([row[: len(leaf.table.place)] for row in before[0]] == list(leaf.keys))
    new = _new_leaf(own, leaf)
    pages = leaf.divided(new)
    there = {number: page for number, page in pages.items() if number != new}
    lent, start = page_before({new, *pages}, leaf.page_bytes)
    shown.pages = {
        (number - 1) * leaf.page_bytes: page
        for number, page in {**there, leaf.damaged: lent}.items()
    }
    # SQLite knows the new page as a leaf, and would not take it for a part of a value.
    _forget_pages(own)
    _write(own, pages, start)
    own.execute("PRAGMA writable_schema = on")
    own.execute("delete from sqlite_schema where name = ?", (NEW_TABLE,))
    _demand(_rows(own, leaf) == before)
    _demand(shown.seen == shown.pages.keys())  # else another program has just written one of them
    _forget_pages(own)
    shown.pages = {}
    _demand(_rows(own, leaf) == before)
    _demand(leaf.damaged not in shown.written and shown.written >= pages.keys())


def _rows(db: Connection, leaf: FullLeaf) -> tuple[list[tuple[Any, ...]], ...]:
    """All rows between the first and the last of a leaf, from both ends. The limit keeps SQLite from going on to the
    page after the last row."""
    table, place = leaf.table, leaf.table.place
    by_table = "not indexed" if table.is_numbered else f"indexed by sqlite_autoindex_{table.name}_1"
    key, marks = ", ".join(place), ", ".join("?" * len(place))
    sql = (
        f"select {key}, * from {table.name} {by_table} "
        f"where ({key}) >= ({marks}) and ({key}) <= ({marks}) order by "
    )
    bounds = (*leaf.keys[0], *leaf.keys[-1], len(leaf.keys))
    orders = (key, ", ".join(f"{each} desc" for each in place))
    return tuple(db.execute(f"{sql} {order} limit ?", bounds).fetchall() for order in orders)


def _new_leaf(own: Connection, leaf: FullLeaf) -> int:
    """An empty page that belongs to no table any more. Its table is the one to be shown."""
    shape = "(page blob)" if leaf.table.is_numbered else "(page primary key) without rowid"
    own.execute(f"create table {NEW_TABLE} {shape}")
    found = own.execute("select rootpage from sqlite_schema where name = ?", (NEW_TABLE,)).get
    own.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    own.execute("PRAGMA writable_schema = on")
    own.execute(
        f"update sqlite_schema set rootpage = ?, sql = 'create table {NEW_TABLE} (page blob)' where name = ?",
        (leaf.damaged, NEW_TABLE),
    )
    own.execute("PRAGMA writable_schema = reset")
    return int(str(found))


def _write(own: Connection, pages: Mapping[int, bytes], start: int) -> None:
    """Write pages but for their first four bytes, which are as they are there."""
    for number, page in pages.items():
        _demand(page[1:4] == bytes(3))
        with own.blob_open("main", NEW_TABLE, "page", number, True) as value:
            value.seek(start)
            value.write(page[4:-CHECKSUM_BYTES])


def _forget_pages(own: Connection) -> None:
    """Have all that was written be in the log, and be read from there."""
    own.cache_flush()
    own.release_memory()


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
        self.written: set[int] = set()
        """The numbers of the pages that are in the log."""
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & (apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL):
            return _ShownFile(self, name, flags)
        return super().xOpen(name, flags)


class _ShownFile(apsw.VFSFile):
    def __init__(
        self, shown: _Shown, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._shown = shown
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        page = None if self._is_log else self._shown.pages.get(offset)
        if page is None or len(page) != amount:
            return super().xRead(amount, offset)
        self._shown.seen.add(offset)
        return page

    def xWrite(self, data: Any, offset: int) -> None:
        if self._is_log and len(data) == FRAME_HEADER_BYTES:
            (number,) = unpack_from(">I", data)
            self._shown.written.add(number)
        super().xWrite(data, offset)


_numbers = count(1)
