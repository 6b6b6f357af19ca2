"""Records on the pages of a SQLite file, by SQLite's file format: read from any tree, and written to a page of an index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from struct import pack, unpack_from
from typing import Any, TypeAlias

from holdfast.store.sqlite.connection import CHECKSUM_BYTES
from holdfast.store.sqlite.pages.survey import BRANCH_BYTES, LEAVES, FilePages

LEAF_BYTES = 8
"""The header of a leaf."""

INDEX_LEAF = 0x0A
"""The first byte of a leaf of an index."""
INDEX_BRANCH = 0x02
"""The first byte of a page above leaves of an index."""
TABLE_LEAF = 0x0D
TABLE_BRANCH = 0x05
"""The same of a table whose rows have numbers."""

RECORD_HEADER_BYTES = 3
"""What a record of one long value begins with."""

Record: TypeAlias = list[Any]
Bound: TypeAlias = tuple[Any, ...]


class Cells:
    """Reads the records on pages, by SQLite's file format."""

    def __init__(self, pages: FilePages) -> None:
        self._pages = pages
        self._usable = pages.page_bytes - CHECKSUM_BYTES

    def records(self, number: int, is_numbered: bool) -> Iterator[Record | None]:
        """The records on a page; None for one that goes on on a damaged page."""
        return (record for _, record in self.rows(number, is_numbered))

    def rows(self, number: int, is_numbered: bool) -> Iterator[tuple[int, Record | None]]:
        """The records on a page, each with the number of its row, or with nought if rows have none."""
        page = self._pages.read(number)
        assert page is not None
        is_leaf = page[0] in LEAVES
        if is_numbered and not is_leaf:
            return
        (count,) = unpack_from(">H", page, 3)
        start = LEAF_BYTES if is_leaf else BRANCH_BYTES
        for (cell,) in (unpack_from(">H", page, start + 2 * n) for n in range(count)):
            size, at = _varint(page, cell if is_leaf else cell + 4)
            row, at = _varint(page, at) if is_numbered else (0, at)
            payload = self._payload(page, at, size, is_numbered)
            yield row, None if payload is None else _record(payload)

    def bounds(self, number: int, is_numbered: bool) -> list[Bound | None]:
        """What is between each two pages below a branch: an entry, or the number of the last row before. None for an entry
        that goes on on a damaged page."""
        if not is_numbered:
            found = (each for _, each in self.rows(number, is_numbered))
            return [None if each is None else tuple(each) for each in found]
        page = self._pages.read(number)
        assert page is not None
        (count,) = unpack_from(">H", page, 3)
        places = unpack_from(f">{count}H", page, BRANCH_BYTES)
        return [(_varint(page, place + 4)[0],) for place in places]

    def whole(self, page: bytes, is_numbered: bool) -> list[bytes]:
        """The cells of a page, each with all of its bytes that are on the page."""
        is_leaf = page[0] in LEAVES
        (count,) = unpack_from(">H", page, 3)
        places = unpack_from(f">{count}H", page, LEAF_BYTES if is_leaf else BRANCH_BYTES)
        cells = list[bytes]()
        for place in places:
            size, at = _varint(page, place if is_leaf else place + 4)
            if is_numbered and is_leaf:
                _, at = _varint(page, at)
            if is_leaf or not is_numbered:
                here = self._bytes_here(size, is_numbered=is_numbered)
                at += here + (4 if here < size else 0)
            cells.append(page[place:at])
        return cells

    def _bytes_here(self, size: int, *, is_numbered: bool) -> int:
        """How many bytes of a record of this size are on its own page; the others are on overflow pages."""
        usable = self._usable
        most = usable - 35 if is_numbered else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        return here if here <= most else least

    def _payload(self, page: bytes, at: int, size: int, is_numbered: bool) -> bytes | None:
        """A record's bytes, and those on its overflow pages; None if one of these cannot be read."""
        usable = self._usable
        here = self._bytes_here(size, is_numbered=is_numbered)
        parts = [page[at : at + here]]
        if here == size:
            return parts[0]
        (following,) = unpack_from(">I", page, at + here)
        left = size - here
        while left > 0:
            more = self._pages.read(following) if following else None
            if not more:
                return None
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            (following,) = unpack_from(">I", more)
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for n in range(8):
        byte = data[at + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    return value << 8 | data[at + 8], at + 9


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The serial type of an integer, and its bytes."""


def _record(payload: bytes) -> Record:
    end, at = _varint(payload, 0)
    kinds = list[int]()
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: Record = []
    for kind in kinds:
        size = _INTEGERS.get(kind, (kind - 12) // 2 if kind >= 12 else 0)
        cell, end = payload[end : end + size], end + size
        if kind in _INTEGERS:
            values.append(int.from_bytes(cell, signed=True))
        elif kind >= 12:
            values.append(cell.decode(errors="replace") if kind % 2 else cell)
        else:
            values.append({8: 0, 9: 1}.get(kind))  # no table of ours has a real number
    return values


# ── writing ──────────────────────────────────────────────────────────────────────────────────


def index_leaf(entries: Sequence[Record], page_bytes: int) -> bytes | None:
    """A leaf of an index with these entries, in this order, without its checksum; None if they are not the entries of
    one leaf: there are none or too many, or one of them is so long that it goes on on another page."""
    usable = page_bytes - CHECKSUM_BYTES
    most = (usable - 12) * 64 // 255 - 23
    payloads = [_payload_of(each) for each in entries]
    cells = [_varint_of(len(each)) + each for each in payloads]
    if not cells or max(map(len, payloads)) > most or room_beside(cells, page_bytes) < 0:
        return None
    return page_of(cells, page_bytes)


def room_beside(cells: Sequence[bytes], page_bytes: int, *, is_leaf: bool = True) -> int:
    """How many bytes are free on a page with these cells."""
    usable = page_bytes - CHECKSUM_BYTES - (LEAF_BYTES if is_leaf else BRANCH_BYTES)
    return usable - sum(len(each) + 2 for each in cells)


def page_of(
    cells: Sequence[bytes], page_bytes: int, *, last: int | None = None, is_numbered: bool = False
) -> bytes:
    """A leaf with these cells, in this order, without its checksum; or, with the `last` page below it, a page above
    leaves. `is_numbered`: it is of a table whose rows have numbers."""
    usable, is_leaf = page_bytes - CHECKSUM_BYTES, last is None
    places, at = list[int](), usable
    for cell in cells:
        at -= len(cell)
        places.append(at)
    leaf, branch = (TABLE_LEAF, TABLE_BRANCH) if is_numbered else (INDEX_LEAF, INDEX_BRANCH)
    header = pack(">BHHHB", leaf if is_leaf else branch, 0, len(cells), at, 0)
    header += b"" if last is None else pack(">I", last)
    pointers = pack(f">{len(places)}H", *places)
    room = bytes(room_beside(cells, page_bytes, is_leaf=is_leaf))
    content = b"".join(reversed(cells))
    return header + pointers + room + content + bytes(CHECKSUM_BYTES)


def bound_after(page: int, row: int) -> bytes:
    """What leads to a page from the one above it, if rows have numbers and the last there has this one."""
    return pack(">I", page) + _varint_of(row)


def page_before(pages: Collection[int], page_bytes: int) -> tuple[bytes, int]:
    """A leaf of a table with one row for each of these pages, numbered like it, whose only value goes on there; and at
    which of the value's bytes the page begins."""
    usable = page_bytes - CHECKSUM_BYTES
    here = (
        usable - 12
    ) * 32 // 255 - 23  # all that is left takes one page, but for its first four bytes
    payload = _payload_of([bytes(here + usable - 4 - RECORD_HEADER_BYTES)])
    assert len(payload) == here + usable - 4
    size = _varint_of(len(payload))
    cells = [size + _varint_of(each) + payload[:here] + pack(">I", each) for each in sorted(pages)]
    return page_of(cells, page_bytes, is_numbered=True), here - RECORD_HEADER_BYTES


def _payload_of(record: Record) -> bytes:
    kinds, cells = zip(*map(_cell_of, record), strict=True)
    header = b"".join(map(_varint_of, kinds))
    size = len(header) + 1
    # The size of the header counts itself; beyond 127 it takes two bytes.
    return _varint_of(size if size < 0x80 else size + 1) + header + b"".join(cells)


def _cell_of(value: object) -> tuple[int, bytes]:
    """The serial type of a value, and its bytes."""
    match value:
        case None:
            return 0, b""
        case 0 | 1:
            return 8 + int(value), b""
        case int():
            kind, size = next(
                (kind, size)
                for kind, size in _INTEGERS.items()
                if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1
            )
            return kind, value.to_bytes(size, signed=True)
        case str():
            text = value.encode()
            return 13 + 2 * len(text), text
        case bytes():
            return 12 + 2 * len(value), value
        case _:
            raise AssertionError(value)  # no table of ours has a real number


def _varint_of(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
