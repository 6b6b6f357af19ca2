"""A SQLite file that another program has written or check-pointed, taken over into a new file.

    with taken_over(path, folder) as copy: ...

Another SQLite does not write our checksums: they are made by `cksumvfs` when a page is written into the database, and
the pages in the log have none. So a program that writes, and one that only reads after a server was killed, leaves
pages without a right checksum, and nothing tells these from damaged ones.

1. The pages are read as they are, by SQLite, and the file stays as it was; so does its log.
2. The new file passes SQLite's own check and has our schema, so that `verify` can prove the rest of it; else there is none.
3. What the rows say is for the caller to verify. A checksum on a page of the new file proves nothing of the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite.backup import copy_pages
from holdfast.store.sqlite.connection import UNCHECKED, open_reader, open_writer, unusable
from holdfast.store.sqlite.faults import first_fault
from holdfast.store.sqlite.inspection import schema_findings
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.pages.file_length import check_whole
from holdfast.store.verification.findings import USELESS_TO_GO_ON


@contextmanager
def taken_over(path: Path, folder: Path | None) -> Iterator[Path]:
    """A new file in `folder`, or where temporary files are, for as long as this lasts: with the pages of the store at
    `path`, whatever their checksums are. Raises StoreUnusable if the file was cut, is no sound SQLite database or does
    not have our tables."""
    with TemporaryDirectory(prefix=".takeover-", dir=folder) as place:
        copy = Path(place) / path.name
        try:
            with closing(open_reader(path, vfs=UNCHECKED)) as reader:
                check_whole(reader, path)
                copy_pages(reader, copy, lambda done, of: None)
            with closing(open_writer(copy)) as db:
                _demand_sound(db, path)
        except apsw.Error as error:
            raise unusable(path, error) from error
        yield copy


def _demand_sound(db: Connection, path: Path) -> None:
    said = first_fault(db)
    if said is not None:
        raise StoreUnusable(
            f"{path} is no sound SQLite database, whatever its checksums are ({said}); copy it without --ignore-checksums, "
            "which leaves out what lies on pages without a right checksum, or restore a backup: see `holdfast db verify --help`"
        )
    with db:
        migrate(db, load_migrations())
    for finding in schema_findings(db):
        if finding.violation.code in USELESS_TO_GO_ON:
            raise StoreUnusable(
                f"another program has changed the tables of {path}, so that it cannot be proved ({finding}); restore a "
                "backup: see `holdfast db verify --help`"
            )
