"""The tables' history: numbered files, forward only, each applied once.

`PRAGMA user_version` says how far a database has come. All that is missing is applied in one transaction
under the write turn, so a migration that fails leaves the old database as it was, and of several processes
that start together one migrates and the others find it done.
"""

from __future__ import annotations

from pathlib import Path

import apsw
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.dialects import SQLITE
from holdfast.store.migrations import SHARED, Migrated, Migration, failed, missing, read_migrations

APPLICATION_ID = 0x484F4C44
"""'HOLD', in the file's header: how `file` and we tell our databases from others."""


def load_migrations(*folders: Path) -> tuple[Migration, ...]:
    """The numbered files, in order. Raises ValueError if a number is missing or taken twice."""
    return read_migrations(SQLITE, *(folders or (SHARED, Path(__file__).parent / "migrations")))


def newest_step() -> int:
    """The step that this version brings tables to."""
    return load_migrations()[-1].number


def migrate(db: Connection, migrations: tuple[Migration, ...]) -> Migrated:
    """Bring the tables to the newest step. Runs inside the writer's transaction, like all work.

    Raises StoreUnusable, and nothing has changed, for somebody else's database, one that newer code
    has written, and a step that fails.
    """
    before = step_of(db)
    steps = missing(before, migrations)
    if before == 0:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for migration in steps:
        try:
            db.execute(migration.sql)
        except apsw.SQLError as error:
            raise failed(migration, error) from error
        db.execute(f"PRAGMA user_version = {migration.number}")
    return Migrated(before=before, after=migrations[-1].number)


def step_of(db: Connection) -> int:
    """How far the tables of this database have come; 0 if there are none yet.

    Raises StoreUnusable if it is somebody else's.
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
    ours = owner == APPLICATION_ID
    empty = made == 0 and owner in (0, APPLICATION_ID)
    if not (ours if step else empty):
        raise StoreUnusable(
            "this SQLite file is not a Holdfast store: it has somebody else's tables; name another file"
        )
    return step
