"""The tables' history: forward only, all of it or none of it, by one process at a time."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StoreUnusable
from holdfast.store.sql.migrations import Migrated, Migration
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.migration import (
    APPLICATION_ID,
    load_migrations,
    migrate,
    newest_step,
    step_of,
)
from tests.store.sqlite.opened import opened
from tests.store.sqlite.store_child import start

ONE = Migration(number=1, name="notes", sql="create table note (text text) strict;")
TWO = Migration(
    number=2, name="dates", sql="alter table note add column at integer; create table day (n);"
)
BAD = Migration(number=3, name="oops", sql="create table week (n); insert into nowhere values (1);")


@pytest.fixture
def db(path: Path) -> Connection:
    return Connection(str(path))


def everything(db: Connection) -> list[object]:
    """All that a database says, its header's numbers included."""
    schema = db.execute("select type, name, sql from sqlite_schema order by name").fetchall()
    tables = [name for kind, name, _ in schema if kind == "table"]
    rows = [db.execute(f'select * from "{name}"').fetchall() for name in tables]
    header = [db.execute(f"PRAGMA {name}").get for name in ("user_version", "application_id")]
    return [schema, rows, header]


def test_a_fresh_database_gets_all_steps(db: Connection) -> None:
    assert migrate(db, (ONE, TWO)) == Migrated(before=0, after=2)
    assert step_of(db) == 2
    assert db.execute("PRAGMA application_id").get == APPLICATION_ID
    db.execute("insert into note (text, at) values ('a', 1)")


def test_a_database_gets_only_what_it_lacks(db: Connection) -> None:
    migrate(db, (ONE,))
    db.execute("insert into note values ('kept')")
    assert migrate(db, (ONE, TWO)) == Migrated(before=1, after=2)
    assert db.execute("select text, at from note").fetchall() == [("kept", None)]


def test_migrating_again_changes_nothing(db: Connection) -> None:
    migrate(db, (ONE, TWO))
    before = everything(db)
    assert migrate(db, (ONE, TWO)) == Migrated(before=2, after=2)
    assert everything(db) == before


def test_a_newer_database_is_refused_with_the_way_out(db: Connection) -> None:
    migrate(db, (ONE, TWO))
    before = everything(db)
    with pytest.raises(StoreUnusable, match=r"newer Holdfast \(.*step 2.*knows 1\); upgrade"):
        migrate(db, (ONE,))
    assert everything(db) == before


async def test_a_step_that_fails_leaves_the_database_as_it_was(path: Path) -> None:
    async with opened(path) as engine:
        await engine.write(partial(migrate, migrations=(ONE,)))
        await engine.write(lambda db: db.execute("insert into note values ('kept')").fetchall())
        before = await engine.read(everything)
        with pytest.raises(StoreUnusable, match=r"migration 3 \(oops\) failed: no such table"):
            await engine.write(partial(migrate, migrations=(ONE, TWO, BAD)))
        assert await engine.read(everything) == before
        assert await engine.write(partial(migrate, migrations=(ONE, TWO))) == Migrated(
            before=1, after=2
        )


@pytest.mark.parametrize(
    "sql",
    [
        "create table photo (x)",
        "create table photo (x); PRAGMA user_version = 1",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 1",
    ],
)
def test_somebody_elses_database_is_refused(sql: str, db: Connection) -> None:
    db.execute(sql)
    before = everything(db)
    with pytest.raises(StoreUnusable, match="not a Holdfast store"):
        migrate(db, (ONE,))
    assert everything(db) == before


@pytest.mark.parametrize(
    "names", [("0001_a.sql", "0003_b.sql"), ("0001_a.sql", "0001_b.sql"), ("0002_a.sql",)]
)
def test_numbers_follow_each_other(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("select 1;")
    with pytest.raises(ValueError, match="not numbered 1 to"):
        load_migrations(tmp_path)


def test_our_own_steps_are_numbered_and_say_what_they_do() -> None:
    found = load_migrations()
    assert newest_step() == len(found)
    assert all(each.name and each.sql.startswith("--") for each in found)


async def test_opening_migrates_and_says_so(path: Path) -> None:
    for before in (0, newest_step()):
        store = await SqliteStore.open(path)
        assert store.migrated == Migrated(before=before, after=newest_step())
        await store.close()


async def test_opening_refuses_a_newer_database(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(StoreUnusable, match="newer Holdfast"):
        await SqliteStore.open(path)


def test_of_processes_that_start_together_one_migrates(path: Path) -> None:
    children = [start("migrate", path) for _ in range(3)]
    assert [_line(child) for child in children] == ["ready"] * 3
    told = [child.communicate("\n")[0] for child in children]
    newest = newest_step()
    assert sorted(told) == [f"0 {newest}\n"] + [f"{newest} {newest}\n"] * 2
    assert [child.returncode for child in children] == [0] * 3


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()
