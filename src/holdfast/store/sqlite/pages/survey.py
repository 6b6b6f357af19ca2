"""Whether the pages of a file can be read at which everything meets.

A table or an index is a tree of pages. A *leaf* holds rows of a few conversations; its damage is theirs. All others are
shared: the first page, the schema, roots and the pages between root and leaf, the last leaf of each tree, which whatever
is new goes to, and the list of unused pages. They are about one in a hundred, so that a survey takes milliseconds.
The trees of the search index are not: no turn writes there, and a search does without them.

What is read is the file as it is on disk, which need not be one state of the store: check-points are made meanwhile. So
nothing is judged here but checksums, and a page that leads nowhere is passed over. A file without checksums cannot be
surveyed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from struct import iter_unpack, unpack_from

import apsw
from apsw import Connection

from holdfast.store.sqlite.faults import described, is_damage
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


CUT_PAUSE_S = 0.1
"""How long a check-point may take for the pages that make a file longer, once it has written the first page."""

SEARCH_TABLES = "search_*"
"""The names of the tables of the search index."""

UNREADABLE = "the schema cannot be read"
"""How the reason begins if nothing can be read from the file."""


class _Damaged(Exception):
    """A shared page is."""


def survey(db: Connection, *, writing: bool = False) -> str | None:
    """The first shared page that is damaged, in words; None if there is none.

    `writing`: a write has met damage that cannot be repaired, which is why it is looked for; without checksums, it may be
    anywhere. Until then, the last leaf of an index may be repaired, and is not counted.
    """
    try:
        if not has_checksums(db):
            return "a write has met damage, in a file without checksums" if writing else None
        pages = FilePages(db)
        for name, root, is_index in (("sqlite_schema", 1, False), *_trees(db)):
            pages.walk(name, root, last=writing or not is_index)
        if pages.unused() is None:
            return "a page of the list of unused pages is not as it was written"
    except _Damaged as damaged:
        return str(damaged)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return f"{UNREADABLE} ({described(error)})"
    return None


def damaged_pages(db: Connection, *, after: int, count: int) -> tuple[list[int], bool]:
    """Which of the pages after this one have another checksum than their bytes, and whether there are more after these."""
    if not has_checksums(db):
        return [], False
    pages, damaged = FilePages(db), list[int]()
    for number in range(after + 1, after + count + 1):
        page = pages.read(number)
        if page is None:
            damaged.append(number)
        elif not page:
            return damaged, False
    return damaged, True


def _trees(db: Connection) -> list[tuple[str, int, bool]]:
    """The trees that turns are written into, with their roots, and which of them are indexes."""
    schema = (
        "select name, rootpage, type = 'index' from sqlite_schema "
        f"where rootpage > 0 and tbl_name not glob '{SEARCH_TABLES}'"
    )
    return [
        (str(name), int(str(root)), bool(is_index))
        for name, root, is_index in db.execute(schema).fetchall()
    ]


class FilePages:
    """The pages of a file as it is on disk, without its log."""

    def __init__(self, db: Connection) -> None:
        size = db.execute("PRAGMA page_size").get
        assert isinstance(size, int)
        self.page_bytes = size
        self._db = db
        self._seen: set[int] = set()

    def walk(self, tree: str, root: int, *, last: bool) -> None:
        """Read every page of a tree but its leaves; of these the last if wanted, and a root that is one. Raises _Damaged."""
        level = [root]
        while level:
            below: list[int] = []
            for number in level:
                if number not in self._seen:
                    self._seen.add(number)
                    below += self.children(self._demand(tree, number), number)
            if last and below:
                self._demand(tree, below[-1])
            # All leaves are equally deep, so that one page of a level tells what all are.
            told = next(filter(None, map(self.read, reversed(below))), b"")
            level = below if told and told[0] in BRANCHES else []

    def is_cut(self) -> bool:
        """Whether the file ends before the last of the pages that its first page counts."""
        for _ in range(READS):
            count = self.count()
            if not count or self.read(count) != b"":
                return False
            time.sleep(CUT_PAUSE_S)
        return True

    def count(self) -> int:
        """How many pages the first page counts; nought if it cannot be read."""
        first = self.read(1)
        return int(unpack_from(">I", first, 28)[0]) if first else 0

    def unused(self) -> set[int] | None:
        """The pages that are not used, and may hold what was deleted; None if their list cannot be read."""
        first = self.read(1)
        unused: set[int] = set()
        (number,) = unpack_from(">I", first, 32) if first else (0,)
        while number and number not in unused:
            page = self.read(number)
            if page is None:
                return None
            unused.add(number)
            number, count = unpack_from(">II", page) if page else (0, 0)
            listed = page[8 : 8 + 4 * count]
            unused.update(each for (each,) in iter_unpack(">I", listed[: len(listed) // 4 * 4]))
        return unused

    @staticmethod
    def children(page: bytes, number: int) -> Iterator[int]:
        """The pages below one, the last one last; none if it is a leaf."""
        at = HEADER_BYTES if number == 1 else 0
        if not page or page[at] not in BRANCHES:
            return
        (count,) = unpack_from(">H", page, at + 3)
        start = at + BRANCH_BYTES
        pointers = page[start : start + 2 * count]
        for (cell,) in iter_unpack(">H", pointers[: len(pointers) // 2 * 2]):
            if cell + 4 <= len(page):
                yield unpack_from(">I", page, cell)[0]
        yield unpack_from(">I", page, at + 8)[0]

    def below(self, level: Iterable[tuple[int, bytes | None]], seen: set[int]) -> list[int]:
        """The pages below those of a level of a tree. A page that came to lie in another one's place may lead back to pages
        above it, so that none is `seen` twice."""
        found = list[int]()
        for number, page in level:
            if page and number not in seen and (children := list(self.children(page, number))):
                seen.add(number)
                found += children
        return found

    def _demand(self, tree: str, number: int) -> bytes:
        page = self.read(number)
        if page is None:
            raise _Damaged(f"page {number} of {tree} is not as it was written")
        return page

    def read(self, number: int) -> bytes | None:
        """A page; empty if it is only in the log yet, None if it is not as it was written."""
        for _ in range(READS):
            try:
                whole, page = self._db.read(
                    "main", 0, (number - 1) * self.page_bytes, self.page_bytes
                )
            except apsw.Error as error:
                if not is_damage(error):
                    raise
            else:
                return page if whole else b""
        return None
