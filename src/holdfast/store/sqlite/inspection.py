"""Checks of a SQLite file that only SQLite itself can make. `verify` runs them first.

  schema_broken    a table or index of ours is missing, or is not what its migrations made
  schema_foreign   a table, index, view or trigger that is not ours
  log_cut          the end of the log was gone when the file was opened
  file_damaged     SQLite's own check of a table and its indexes fails, or a page has another checksum; what the page is
                   part of is said

SQLite checks one table at a time: no read lasts longer than its largest table's check, and the log can start over in
between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import apsw
from apsw import Connection

from holdfast.store.operations.inspection import stray
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.faults import described, is_damage
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.pages.log_length import lost_end
from holdfast.store.sqlite.pages.survey import damaged_pages
from holdfast.store.sqlite.pages.trees import PART_UNKNOWN, parts_of_file
from holdfast.store.verification.findings import USELESS_TO_GO_ON, Finding, Progress, Report


async def inspect(engine: SqliteEngine) -> AsyncIterator[Report]:
    """Check the file and its tables, in short reads."""
    broken = False
    for finding in await engine.read(schema_findings):
        yield finding
        broken |= finding.violation.code in USELESS_TO_GO_ON
    if broken:
        return
    if (lost := lost_end(engine.path)) is not None:
        yield stray("log_cut", "the log", lost)
    async for report in _pages(engine):
        yield report
    tables = await engine.read(_table_names)
    for done, name in enumerate(tables, start=1):
        for finding in await engine.read(partial(_integrity, table=name)):
            yield finding
        yield Progress(what="tables", done=done, of=len(tables))


async def _pages(engine: SqliteEngine) -> AsyncIterator[Report]:
    """Check every page of the file, also those that belong to no table."""
    found, done, more = list[int](), 0, True
    while more:
        damaged, more = await engine.read(partial(damaged_pages, after=done, count=PAGES))
        found += damaged
        done += PAGES
        yield Progress(what="pages", done=done, of=done)
    parts = await engine.read(partial(parts_of_file, wanted=frozenset(found))) if found else {}
    for number in found:
        what = f"it is not as it was written; it is {parts.get(number, PART_UNKNOWN)}"
        yield stray("file_damaged", f"page {number}", what)


PAGES = 1_000
"""How many pages are read at once: some milliseconds."""


def schema_findings(db: Connection) -> list[Finding]:
    """What of the schema is not as the migrations of this version made it."""
    wanted, found = _expected_schema(), _schema_of(db)
    broken = [
        stray("schema_broken", name, f"this {kind} is missing or was altered")
        for (kind, name), sql in wanted.items()
        if found.get((kind, name)) != sql
    ]
    foreign = [
        stray("schema_foreign", name, f"this {kind} is not Holdfast's")
        for kind, name in found.keys() - wanted.keys()
    ]
    return broken + foreign


_SCHEMA = r"""
select type, name, sql from sqlite_schema where name not like 'sqlite\_%' escape '\' order by type, name
"""
"""The file's schema, as it was made, without SQLite's own tables."""


def _schema_of(db: Connection) -> dict[tuple[str, str], object]:
    return {(str(kind), str(name)): sql for kind, name, sql in db.execute(_SCHEMA)}


def _expected_schema() -> dict[tuple[str, str], object]:
    """The schema that the migrations make of an empty database, in memory."""
    empty = Connection(":memory:")
    try:
        migrate(empty, load_migrations())
        return _schema_of(empty)
    finally:
        empty.close()


def _table_names(db: Connection) -> list[str]:
    made = [name for kind, name in _schema_of(db) if kind == "table"]
    return ["sqlite_schema", *made]  # for that name SQLite checks the unused pages, too


def _integrity(db: Connection, *, table: str) -> list[Finding]:
    quoted = table.replace('"', '""')
    try:
        said = [str(line) for (line,) in db.execute(f'PRAGMA integrity_check("{quoted}")')]
    except apsw.Error as error:
        if not is_damage(error):
            raise
        said = [
            f"the check of this table and its indexes has met a damaged page ({described(error)})"
        ]
    return [stray("file_damaged", table, line) for line in said if line != "ok"]
