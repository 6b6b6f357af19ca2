"""The trees of a SQLite file: its indexes, what its pages are part of, the leaves of a tree that are damaged, and the
order of entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from apsw import Connection
from msgspec import Struct

from holdfast.store.sqlite.pages.records import Bound, Cells, Record
from holdfast.store.sqlite.pages.survey import BRANCHES, HEADER_BYTES, LEAVES, FilePages

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


_INDEXES = """
select i.name, i.rootpage, i.tbl_name, t.rootpage, coalesce(i.sql, ''), t.sql like '%without rowid%'
from sqlite_schema i join sqlite_schema t on t.type = 'table' and t.name = i.tbl_name where i.type = 'index'
"""


def indexes(db: Connection) -> Iterator[Index]:
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


PART_UNKNOWN = "a part of a long value, or lies below another damaged page"


def parts_of_file(db: Connection, wanted: frozenset[int]) -> dict[int, str]:
    """What these pages of a file are, in words for an operator, as far as other pages lead to them. No leaf is read but
    one of each tree."""
    pages = FilePages(db)
    parts = dict.fromkeys(wanted & (pages.unused() or set()), "unused")
    trees = db.execute(
        "select type, name, tbl_name, rootpage from sqlite_schema where rootpage > 0"
    ).fetchall()
    for kind, name, table, root in (("table", "sqlite_schema", "", 1), *trees):
        tree = f"the index {name}, of the table {table}" if kind == "index" else f"the table {name}"
        top = level = [int(str(root))]
        seen = set[int]()
        while level:
            told = next(filter(None, map(pages.read, reversed(level))), b"")
            told = told[HEADER_BYTES:] if level == [1] else told
            is_above = bool(told) and told[0] in BRANCHES  # all leaves are equally deep
            place = (
                "the root" if level is top else "between root and leaves" if is_above else "a leaf"
            )
            parts |= dict.fromkeys(wanted.intersection(level), f"{place} of {tree}")
            above = [(number, pages.read(number)) for number in level] if is_above else []
            level = pages.below(above, seen)
    return parts


def damaged_leaves(pages: FilePages, root: int, *, is_numbered: bool = False) -> list[Leaf] | None:
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


def pages_of(pages: FilePages, root: int) -> Iterator[tuple[int, bytes | None]]:
    """The pages of a tree, but those below damaged ones; a damaged page is None."""
    level, seen = [root], set[int]()
    while level:
        read = [(number, pages.read(number)) for number in level]
        yield from read
        level = pages.below(read, seen)


def is_between(leaf: Leaf, entry: Record) -> bool:
    order = order_of(entry)
    return (leaf.above is None or order_of(leaf.above) < order) and (
        leaf.below is None or order < order_of(leaf.below)
    )


def order_of(entry: Iterable[object]) -> list[tuple[int, Any]]:
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
