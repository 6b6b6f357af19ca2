"""What a step of the tables may do: servers from before it work on the same store until they are replaced.

`make torture-upgrade` shows it on a real database; here each step is held to what cannot get in their way.
"""

from __future__ import annotations

import re

import pytest

from holdfast.store.postgres.migration import load_migrations as of_postgres
from holdfast.store.sql.dialects import POSTGRES, SQLITE
from holdfast.store.sql.migrations import Migration
from holdfast.store.sqlite.migration import load_migrations as of_sqlite

HARMLESS = re.compile(
    r"create (virtual )?table |create index |insert into |alter table [\w.]+ add column (?!.*not null(?!.* default ))"
)
"""New tables, their first rows, and indexes; new columns that an older server may leave empty."""


@pytest.mark.parametrize(
    "migration",
    [*of_postgres()[1:], *of_sqlite()[1:]],
    ids=lambda each: f"{each.number}-{each.name}",
)
def test_an_older_server_can_go_on_after(migration: Migration) -> None:
    words = re.sub(r"--.*", "", migration.sql)
    for statement in filter(None, (" ".join(each.split()) for each in words.split(";"))):
        assert HARMLESS.match(statement), statement


def test_a_line_of_the_other_database_is_left_out() -> None:
    text = "create table @t (\n  name {words}\nsqlite| ) strict;\npostgres| );\n"
    assert SQLITE.step(text) == "create table t (\n  name text\n) strict;\n"
    assert POSTGRES.step(text) == "create table holdfast.t (\n  name bytea\n);\n"


def test_what_would_get_in_its_way_is_noticed() -> None:
    for statement in (
        "alter table turn add column continues text not null",
        "alter table turn drop column links",
        "alter table turn rename column links to retries",
        "create unique index one on turn (tenant)",
        "drop table turn",
        "update turn set state = 'unfinished'",
    ):
        assert not HARMLESS.match(statement)
