"""Whether the pages of a file can be read at which everything meets.

A table or an index is a tree of pages. A *leaf* holds rows of a few conversations; its damage is theirs. All others are
shared: the first page, the schema, roots and the pages between root and leaf, the last leaf of each tree, which whatever
is new goes to, and the list of unused pages. They are about one in a hundred, so that a survey takes milliseconds.

What is read is the file as it is on disk, which need not be one state of the store: check-points are made meanwhile. So
nothing is judged here but checksums, and a page that leads nowhere is passed over. A file without checksums cannot be
surveyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack, unpack_from

import apsw
from apsw import Connection

from holdfast.store.sqlite.faults import is_damage
from holdfast.store.sqlite.migration import has_checksums

LEAVES = (0x0A, 0x0D)
BRANCHES = (0x02, 0x05)
"""The first byte of a page of a tree, by SQLite's file format."""

HEADER_BYTES = 100
"""What the first page begins with, before its part of a tree."""
BRANCH_BYTES = 12
"""The header of a page between root and leaf."""
READS = 3
"""A page that is being written just now may look damaged, once."""


class _Damaged(Exception):
    """A shared page is."""


def survey(db: Connection, *, writing: bool = False) -> str | None:
    """The first shared page that is damaged, in words; None if there is none.

    `writing`: a write has met damage, which is why it is looked for; without checksums, it may be anywhere.
    """
    try:
        if not has_checksums(db):
            return "a write has met damage, in a file without checksums" if writing else None
        page_bytes, roots = _trees(db)
        pages = _Pages(db, page_bytes)
        for name, root in (("sqlite_schema", 1), *roots):
            pages.walk(name, root)
        pages.walk_unused()
    except _Damaged as damaged:
        return str(damaged)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return f"the schema cannot be read ({error})"
    return None


def damaged_pages(db: Connection, *, after: int, count: int) -> tuple[list[int], bool]:
    """Which of the pages after this one have another checksum than their bytes, and whether there are more after these."""
    if not has_checksums(db):
        return [], False
    size = db.execute("PRAGMA page_size").get
    assert isinstance(size, int)
    pages, damaged = _Pages(db, size), list[int]()
    for number in range(after + 1, after + count + 1):
        try:
            if not pages.read("the file", number):
                return damaged, False
        except _Damaged:
            damaged.append(number)
    return damaged, True


def _trees(db: Connection) -> tuple[int, list[tuple[str, int]]]:
    page_bytes = db.execute("PRAGMA page_size").get
    assert isinstance(page_bytes, int)
    found = db.execute("select name, rootpage from sqlite_schema where rootpage > 0").fetchall()
    return page_bytes, [(str(name), int(str(root))) for name, root in found]


class _Pages:
    """The pages of one file."""

    def __init__(self, db: Connection, page_bytes: int) -> None:
        self._db = db
        self._bytes = page_bytes
        self._seen: set[int] = set()

    def walk(self, tree: str, root: int) -> None:
        """Read every page of a tree but its leaves; of these the last, and a root that is one."""
        level = [root]
        while level:
            below: list[int] = []
            for number in level:
                below += self._children(tree, number)
            # All leaves are equally deep, so that the last of a level tells what it is.
            last = self.read(tree, below[-1]) if below else b""
            level = [] if last[:1] in (b"", *(bytes([each]) for each in LEAVES)) else below

    def walk_unused(self) -> None:
        """Read the list of unused pages, and not these: nothing is in them."""
        first = self.read("the file", 1)
        (number,) = unpack_from(">I", first, 32) if first else (0,)
        while number and number not in self._seen:
            page = self.read("the list of unused pages", number)
            self._seen.add(number)
            (number,) = unpack_from(">I", page) if page else (0,)

    def _children(self, tree: str, number: int) -> Iterator[int]:
        """The pages below one, the last one last."""
        if number in self._seen:
            return
        self._seen.add(number)
        page, at = self.read(tree, number), HEADER_BYTES if number == 1 else 0
        if not page or page[at] not in BRANCHES:
            return
        (count,) = unpack_from(">H", page, at + 3)
        start = at + BRANCH_BYTES
        pointers = page[start : start + 2 * count]
        for (cell,) in iter_unpack(">H", pointers[: len(pointers) // 2 * 2]):
            if cell + 4 <= len(page):
                yield unpack_from(">I", page, cell)[0]
        yield unpack_from(">I", page, at + 8)[0]

    def read(self, tree: str, number: int) -> bytes:
        """A page of the file; empty if it is only in the log yet."""
        for attempt in range(1, READS + 1):
            try:
                whole, page = self._db.read("main", 0, (number - 1) * self._bytes, self._bytes)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                if attempt == READS:
                    raise _Damaged(f"page {number} of {tree} is not as it was written") from error
            else:
                return page if whole else b""
        raise AssertionError("the last attempt has ended it")
