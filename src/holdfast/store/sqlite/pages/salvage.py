"""The rows of a damaged SQLite file, read page by page into a new file, without indexes and without SQLite's own search.

    with salvaged(path, folder) as found: ...    # None if no page is damaged, or the pages have no checksums

1. A row counts if its page, and every page that it overflows to, has the checksum of its bytes.
2. The rows of a table are on the leaves of its tree, and those of a table without row numbers between them, too. The
   pages below a damaged page belong to no tree any more: they are of the damaged tree whose columns fit their rows.
   Unused pages hold rows that were deleted, so they are left alone; if it cannot be read which pages are unused, so are
   all pages without a tree.
3. Indexes are made anew, from the rows. The search index and the nodes are left out.
4. A key that names a session is also in an index, and is read from there if its own page is damaged.

Conversations of which rows are missing are in the new file, too: `verify` names them there. Where other rows may be
missing is told, since nothing else would tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.errors import StoreUnavailable
from holdfast.store.sql.tables import HORIZON, KEYS, NODES, TABLES
from holdfast.store.sqlite.connection import UNCHECKED, open_reader, open_writer
from holdfast.store.sqlite.faults import first_fault, translated
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.pages.records import Cells, Record
from holdfast.store.sqlite.pages.survey import BRANCHES, LEAVES, FilePages, damaged_pages

NUMBERED = (0x05, 0x0D)
"""The first byte of a page of a table whose rows have numbers, by SQLite's file format."""

KEYS_BY_SESSION = "session_key_by_session"
"""The index of keys: tenant, session and key."""

FILLED_ANEW = ("indexed_length", "indexed_rev")
"""Columns of sessions that say how far the search index goes, which is made anew."""


class Salvaged(Struct, frozen=True):
    """A file with the rows that could be read."""

    path: Path
    hit: frozenset[str] = frozenset()
    """The tables of which rows may be missing."""
    is_sound: bool = False
    """SQLite finds no fault in the source if it asks for no checksums, as after another program has written it."""


class Tree(Struct):
    """A table or an index of a file, and what was found of its pages."""

    name: str
    table: str | None
    """The table, if its rows are on this tree."""
    columns: tuple[tuple[str, str], ...]
    """Names and types of the table's columns."""
    is_numbered: bool
    """Its rows have numbers, so that only leaves hold rows."""
    pages: list[int]
    """Pages that can be read, leaves and branches."""
    is_cut: bool = False
    """A page between its root and its leaves cannot be read."""
    is_hit: bool = False
    """Some page of it cannot be read."""


@contextmanager
def salvaged(path: Path, folder: Path | None) -> Iterator[Salvaged | None]:
    """A new file in `folder` (or where temporary files are), for as long as this lasts, with the rows of the store at `path` that can be read; None if
    nothing has to be salvaged. Raises StoreUnavailable if other processes use the store."""
    with closing(open_writer(path)) as db:
        if not damaged_pages(db, after=0, count=_page_count(db))[0]:
            yield None
            return
        _empty_log(db, path)
        with TemporaryDirectory(prefix=".salvage-", dir=folder) as place:
            copy = Path(place) / path.name
            with closing(open_writer(copy)) as target:
                hit = _fill(target, FilePages(db), _trees(db), _page_count(db))
            yield Salvaged(copy, hit, is_sound=_is_sound_unchecked(path))


def _is_sound_unchecked(path: Path) -> bool:
    with closing(open_reader(path, vfs=UNCHECKED)) as db:
        return first_fault(db) is None


def _page_count(db: Connection) -> int:
    count = db.execute("PRAGMA page_count").get
    assert isinstance(count, int)
    return count


def _empty_log(db: Connection, path: Path) -> None:
    """Copy the log into the file, so that the file's pages are the store."""
    try:
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError as error:
        raise StoreUnavailable(
            f"other processes use {path}, which is damaged; end them, and copy again"
        ) from error
    except apsw.Error as error:
        raise translated(error) from error


def _fill(
    target: Connection, pages: FilePages, trees: dict[int, Tree], count: int
) -> frozenset[str]:
    """Write the rows of all tables into a new database; returns the tables of which rows may be missing."""
    target.execute("PRAGMA synchronous = OFF; BEGIN")  # no server ever opens it
    migrate(target, load_migrations())
    cells = Cells(pages)
    for root, tree in trees.items():
        _walk(pages, root, tree)
    _adopt_strays(pages, trees.values(), cells, count)
    for tree in trees.values():
        if tree.table:
            names = [name for name, _ in tree.columns]
            for record in _records(tree, cells):
                _insert(target, tree.table, dict(zip(names, record, strict=False)))
    hit = {tree.name for tree in trees.values() if tree.is_hit}
    if KEYS.name in hit:
        (index,) = (tree for tree in trees.values() if tree.name == KEYS_BY_SESSION)
        for tenant, session_id, key in _records(index, cells):
            named = {"tenant": tenant, "key": key, "session_id": session_id, "generation": 1}
            _insert(target, KEYS.name, named)
        hit -= set() if index.is_hit else {KEYS.name}
    target.execute("COMMIT")
    return frozenset(hit & TABLES.keys())


def _records(tree: Tree, cells: Cells) -> Iterator[Record]:
    for page in tree.pages:
        for record in cells.records(page, tree.is_numbered):
            if record is None:
                tree.is_hit = True
            elif _fits(tree, record):
                yield record


def _insert(target: Connection, table: str, row: dict[str, Any]) -> None:
    own = {name: value for name, value in row.items() if name not in FILLED_ANEW}
    named = ", ".join(f'"{name}"' for name in own)
    marks = ", ".join("?" * len(own))
    sql = f"insert or ignore into {table} ({named}) values ({marks})"
    target.execute(sql, tuple(own.values()))


# ── trees ────────────────────────────────────────────────────────────────────────────────────


def _trees(db: Connection) -> dict[int, Tree]:
    """Every tree of a file, by its root."""
    trees = {1: Tree("sqlite_schema", None, (), True, [])}
    wanted = TABLES.keys() - {NODES.name, HORIZON.name}
    schema = "select type, name, rootpage, sql from sqlite_schema where rootpage > 0"
    for kind, name, root, sql in db.execute(schema).fetchall():
        table = str(name) if kind == "table" and name in wanted else None
        found = db.execute(f"PRAGMA table_info({table})").fetchall() if table else []
        columns = tuple((str(each[1]), str(each[2]).lower()) for each in found)
        is_numbered = kind == "table" and "without rowid" not in str(sql)
        trees[int(str(root))] = Tree(str(name), table, columns, is_numbered, [])
    return trees


def _walk(pages: FilePages, root: int, tree: Tree) -> None:
    """Find the readable pages of a tree, level by level: all its leaves are equally deep."""
    level, seen = [root], set[int]()
    while level:
        read = [(number, page) for number in level if (page := pages.read(number))]
        below = pages.below(read, seen)
        tree.is_hit |= len(read) < len(level)
        tree.is_cut |= len(read) < len(level) and (bool(below) or not read)
        tree.pages += (number for number, _ in read)
        level = below


def _adopt_strays(pages: FilePages, trees: Collection[Tree], cells: Cells, count: int) -> None:
    """Give each page without a tree to the cut tree that its rows fit, if there is one and no other."""
    cut, unused = [tree for tree in trees if tree.is_cut], pages.unused()
    if not cut or unused is None:
        return
    taken = unused.union(*(tree.pages for tree in trees))
    for number in range(1, count + 1):
        page = pages.read(number) if number not in taken else None
        if not page or page[0] not in (*BRANCHES, *LEAVES):
            continue
        is_numbered = page[0] in NUMBERED
        first = next(cells.records(number, is_numbered), None)
        fitting = [each for each in cut if each.is_numbered == is_numbered and _fits(each, first)]
        if len(fitting) == 1:
            fitting[0].pages.append(number)


_TYPES: dict[str, type] = {"text": str, "integer": int, "blob": bytes}


def _fits(tree: Tree, record: Record | None) -> bool:
    """Whether a record may be a row of a table. An index is of no table, and every record fits it."""
    if record is None or not tree.table:
        return record is not None
    return 2 <= len(record) <= len(tree.columns) and all(
        value is None or isinstance(value, _TYPES[kind])
        for value, (_, kind) in zip(record, tree.columns, strict=False)
    )
