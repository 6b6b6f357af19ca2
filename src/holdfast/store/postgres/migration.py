"""The tables' history, in PostgreSQL: in the schema `holdfast`, one transaction, one process at a time.

`holdfast.migration` says how far a database has come. All that is missing is applied in one transaction under an
advisory lock that ends with it, so a migration that fails leaves the old database as it was, and of several
processes that start together one migrates and the others find it done.
"""

from __future__ import annotations

from pathlib import Path

from asyncpg import PostgresError

from holdfast.errors import StoreUnusable
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.faults import fault_of
from holdfast.store.postgres.queries import PostgresQuery
from holdfast.store.sql.dialects import POSTGRES
from holdfast.store.sql.migrations import (
    SHARED,
    Migrated,
    Migration,
    failed,
    missing,
    read_migrations,
)

LOCK = 0x484F4C44
"""'HOLD': what processes of ours that migrate wait for."""

_STANDING = PostgresQuery(
    name="standing",
    # From the tables themselves: what `to_regclass` knows may be older than the lock that we waited for.
    sql=(
        "select exists (select from pg_namespace where nspname = 'holdfast'), "
        "exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'holdfast' and c.relname = 'migration'), "
        "current_setting('synchronous_commit')"
    ),
    names=(),
)
_STEP = PostgresQuery(
    name="step", sql="select coalesce(max(number), 0) from holdfast.migration", names=()
)
_BOOK = """
create schema holdfast;
create table holdfast.migration (number bigint primary key, name text not null, at timestamptz not null default now());
"""
_APPLIED = PostgresQuery(
    name="applied",
    sql="insert into holdfast.migration (number, name) values ($1, $2)",
    names=("number", "name"),
)


def load_migrations() -> tuple[Migration, ...]:
    return read_migrations(POSTGRES, SHARED, Path(__file__).parent / "migrations")


async def step_of(db: Db) -> int:
    """How far the tables of this database have come; 0 if there are none yet. Raises StoreUnusable."""
    ((has_schema, has_book, sync),) = await db.fetch(_STANDING, {})
    if sync == "off":
        raise StoreUnusable(
            "this database acknowledges commits before they are on disk (synchronous_commit = off), and we "
            "must not; run: alter database … set synchronous_commit = on"
        )
    if not has_schema:
        return 0
    if not has_book:
        raise StoreUnusable(
            "this database has a schema `holdfast` that is not Holdfast's; name another database"
        )
    ((step,),) = await db.fetch(_STEP, {})
    return int(step)


async def migrate(db: Db, migrations: tuple[Migration, ...]) -> Migrated:
    """Bring the tables to the newest step.

    Raises StoreUnusable, and nothing has changed, for a schema that is not ours, a database that newer code has
    written, and a step that fails.
    """
    before = await step_of(db)
    if not missing(before, migrations):
        return Migrated(before=before, after=before)
    async with db.transaction():
        await db.script(f"select pg_advisory_xact_lock({LOCK})")
        before = await step_of(db)
        if before == 0:
            await db.script(_BOOK)
        for migration in missing(before, migrations):
            await _apply(db, migration)
    return Migrated(before=before, after=migrations[-1].number)


async def _apply(db: Db, migration: Migration) -> None:
    try:
        await db.script(migration.sql)
        await db.fetch(_APPLIED, {"number": migration.number, "name": migration.name})
    except PostgresError as error:
        if fault_of(error) is not None:
            raise
        raise failed(migration, error) from error
