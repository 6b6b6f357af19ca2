"""Migrations of the tables, for both databases: numbered files, forward only, each applied once."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.codec import Value
from holdfast.errors import StoreUnusable
from holdfast.store.sql.dialects import SqlDialect


class Migration(Value):
    number: int
    name: str
    sql: str


class Migrated(Value):
    """The steps of a database before and after its migration; equal if there was nothing to do."""

    before: int
    after: int


SHARED = Path(__file__).parent / "migrations"
"""The migrations that all homes share."""


def read_migrations(dialect: SqlDialect, *folders: Path) -> tuple[Migration, ...]:
    """The migrations in these folders, in order. Raises ValueError if a number is missing or taken twice."""
    files = (each for folder in folders for each in folder.glob("*.sql"))
    found = sorted((_parsed(each, dialect) for each in files), key=lambda each: each.number)
    if [each.number for each in found] != list(range(1, len(found) + 1)):
        raise ValueError(
            f"migrations are not numbered 1 to {len(found)}: {[m.name for m in found]}"
        )
    return tuple(found)


def _parsed(file: Path, dialect: SqlDialect) -> Migration:
    number, _, name = file.name.removesuffix(".sql").partition("_")
    return Migration(
        number=int(number), name=name, sql=dialect.step(file.read_text(encoding="utf-8"))
    )


def missing(before: int, migrations: tuple[Migration, ...]) -> tuple[Migration, ...]:
    """The migrations that a database at this step lacks. Raises StoreUnusable if a newer version has written it."""
    newest = migrations[-1].number
    if before > newest:
        raise StoreUnusable(
            f"this database was written by a newer Holdfast (its tables are at step {before}, this "
            f"version knows {newest}); upgrade Holdfast, or restore the backup from before the upgrade"
        )
    return migrations[before:]


def failed(migration: Migration, error: Exception) -> StoreUnusable:
    """The error for a migration that failed; the caller rolls everything back."""
    return StoreUnusable(
        f"migration {migration.number} ({migration.name}) failed: {error}; "
        "the database is as it was before"
    )
