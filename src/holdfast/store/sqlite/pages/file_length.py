"""Whether a SQLite file was cut: whether pages that it counts are neither in the file nor in its log.

SQLite reads a page behind the end of its file as noughts, and does not notice where a long value goes on on such a page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import unpack

from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite.pages.log_length import FRAME_HEADER_BYTES, LOG_HEADER_BYTES, SALT
from holdfast.store.sqlite.pages.survey import FilePages


def check_whole(db: Connection, path: Path) -> None:
    """Raises StoreUnusable if the file of this connection was cut. A crash in a check-point leaves a file that is shorter
    than it says, too; then the missing pages are in the log."""
    pages = FilePages(db)
    if not pages.is_cut():
        return
    there = path.stat().st_size // pages.page_bytes
    missing = set(range(there + 1, pages.count() + 1))
    if missing.difference(_logged(path.with_name(path.name + "-wal"), pages.page_bytes)):
        raise StoreUnusable(
            f"{path} was cut: it has {there} of {pages.count()} pages; move it away with all files of its name, and "
            "restore a backup: see `holdfast db verify --help`"
        )


def _logged(log: Path, page_bytes: int) -> Iterator[int]:
    """The numbers of the pages in a log, up to the first page that is left of the time before the log started over; none
    if there is no log."""
    if not log.exists():
        return
    with log.open("rb") as file:
        salt = file.read(LOG_HEADER_BYTES)[SALT]
        while len(header := file.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            number, written = unpack(">I4x8s8x", header)
            if written != salt:
                return
            yield number
            file.seek(page_bytes, os.SEEK_CUR)
