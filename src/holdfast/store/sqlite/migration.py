"""Migrations of a SQLite file: numbered files, forward only, each applied once.

`PRAGMA user_version` is the step of a database. All missing migrations are applied in one transaction
under the write turn, so a migration that fails leaves the old database as it was, and of several processes
that start together one migrates and the others find it done.
"""

from __future__ import annotations

from pathlib import Path

import apsw
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sql.dialects import SQLITE
from holdfast.store.sql.migrations import (
    SHARED,
    Migrated,
    Migration,
    failed,
    missing,
    read_migrations,
)
from holdfast.store.sqlite.connection import CHECKSUM_BYTES, CHECKSUMS

APPLICATION_ID = 0x484F4C44
"""'HOLD', in the file's header: how `file` and we tell our databases from others."""

APPLICATION_ID_WITH_CHECKSUMS = 0x484F4C43
"""'HOLC': the same, for a file whose pages have checksums. Versions without checksums do not open it."""


def load_migrations(*folders: Path) -> tuple[Migration, ...]:
    """The migrations, in order. Raises ValueError if a number is missing or taken twice."""
    return read_migrations(SQLITE, *(folders or (SHARED, Path(__file__).parent / "migrations")))


def newest_step() -> int:
    """The step that this version brings tables to."""
    return load_migrations()[-1].number


def migrate(db: Connection, migrations: tuple[Migration, ...]) -> Migrated:
    """Bring the tables to the newest step. Runs inside the writer's transaction, like all work.

    Raises StoreUnusable, and nothing has changed, for a database of another program, one that a newer
    version has written, and a migration that fails.
    """
    before = step_of(db)
    steps = missing(before, migrations)
    if before == 0:
        made = APPLICATION_ID_WITH_CHECKSUMS if has_checksums(db) else APPLICATION_ID
        db.execute(f"PRAGMA application_id = {made}")
    for migration in steps:
        try:
            db.execute(migration.sql)
        except apsw.SQLError as error:
            raise failed(migration, error) from error
        db.execute(f"PRAGMA user_version = {migration.number}")
    return Migrated(before=before, after=migrations[-1].number)


def step_of(db: Connection) -> int:
    """The step of this database's tables; 0 if there are none yet.

    Raises StoreUnusable if it is a database of another program.
    """
    step, owner, made = (
        db.execute(query).get
        for query in (
            "PRAGMA user_version",
            "PRAGMA application_id",
            "select count(*) from sqlite_schema",
        )
    )
    assert isinstance(step, int)
    ours = owner in (APPLICATION_ID, APPLICATION_ID_WITH_CHECKSUMS)
    empty = made == 0 and (owner == 0 or ours)
    if not (ours if step else empty):
        raise StoreUnusable(
            "this SQLite file is not a Holdfast store: it has tables of another program; name another file"
        )
    if owner == APPLICATION_ID_WITH_CHECKSUMS and not (CHECKSUMS and has_checksums(db)):
        raise StoreUnusable(
            "the pages of this store have checksums, which cannot be checked here: its first page is damaged, or this "
            "build of apsw has no `cksumvfs`; see `holdfast db verify --help`"
        )
    return step


def has_checksums(db: Connection) -> bool:
    """Whether every page of this file ends with a checksum."""
    return db.reserve_bytes("main", -1) == CHECKSUM_BYTES
