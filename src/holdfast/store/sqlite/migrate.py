"""The tables' history: numbered files, forward only, each applied once.

`PRAGMA user_version` says how far a database has come. All that is missing is applied in one transaction
under the write turn, so a migration that fails leaves the old database as it was, and of several processes
that start together one migrates and the others find it done.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

import apsw
from apsw import Connection

from holdfast.core.codec import Value
from holdfast.errors import StoreUnusable

APPLICATION_ID = 0x484F4C44
"""'HOLD', in the file's header: how `file` and we tell our databases from others."""


class Migration(Value):
    number: int
    name: str
    sql: str


class Migrated(Value):
    """From which step to which a database was brought; equal if there was nothing to do."""

    before: int
    after: int


def load_migrations(folder: Traversable | None = None) -> tuple[Migration, ...]:
    """The numbered files, in order. Raises ValueError if a number is missing or taken twice."""
    folder = folder or files("holdfast.store.sqlite") / "migrations"
    found = sorted(
        (_parsed(each) for each in folder.iterdir() if each.name.endswith(".sql")),
        key=lambda each: each.number,
    )
    if [each.number for each in found] != list(range(1, len(found) + 1)):
        raise ValueError(
            f"migrations are not numbered 1 to {len(found)}: {[m.name for m in found]}"
        )
    return tuple(found)


def newest_step() -> int:
    """The step that this version brings tables to."""
    return load_migrations()[-1].number


def _parsed(file: Traversable) -> Migration:
    number, _, name = file.name.removesuffix(".sql").partition("_")
    return Migration(number=int(number), name=name, sql=file.read_text(encoding="utf-8"))


def migrate(db: Connection, migrations: tuple[Migration, ...]) -> Migrated:
    """Bring the tables to the newest step. Runs inside the writer's transaction, like all work.

    Raises StoreUnusable, and nothing has changed, for somebody else's database, one that newer code
    has written, and a step that fails.
    """
    before = step_of(db)
    newest = migrations[-1].number
    if before > newest:
        raise StoreUnusable(
            f"this database was written by a newer Holdfast (its tables are at step {before}, this "
            f"version knows {newest}); upgrade Holdfast, or restore the backup from before the upgrade"
        )
    if before == 0:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for migration in migrations[before:]:
        try:
            db.execute(migration.sql)
        except apsw.SQLError as error:
            raise StoreUnusable(
                f"migration {migration.number} ({migration.name}) failed: {error}; "
                "the database is as it was before"
            ) from error
        db.execute(f"PRAGMA user_version = {migration.number}")
    return Migrated(before=before, after=newest)


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
