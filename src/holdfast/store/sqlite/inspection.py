"""What only SQLite can show of itself. `verify` runs it first, then looks at the sessions.

  schema_broken    a table or index of ours is missing, or is not what its migrations made
  schema_foreign   a table, index, view or trigger that is not ours
  file_damaged     SQLite's own check of a table and its indexes fails
  key_astray       a key means a session that is deleted or does not exist
  claim_running    an idempotency key waits for a turn that has ended or does not exist
  row_astray       rows belong to a session or turn that does not exist
  derived_off      attributes, or the list of who reads whose items, are not what the session says

SQLite checks one table at a time, and everything else goes by pages: no read lasts longer than its largest
table's check, and the log can start over in between. Each page sees both sides of what it compares at one
moment, so nothing has to be looked at twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import apsw
from apsw import Connection

from holdfast.core.codec import Decoder, Unreadable
from holdfast.core.conversation import settings_decoder
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.migrate import load_migrations, migrate
from holdfast.store.sqlite.tables import Column
from holdfast.store.stray import judge_claim, judge_key, judge_owner, stray
from holdfast.store.verify import USELESS_TO_GO_ON, Finding, Progress, Report

queries = load_queries(Path(__file__).parent / "sql" / "inspection.sql")

PAGE = 200

Row = tuple[Column, ...]
Judge = Callable[[Row], Iterator[Finding]]


async def inspect(engine: Engine) -> AsyncIterator[Report]:
    """Check the file, the tables and what lies between them, in short reads."""
    broken = False
    for finding in await engine.read(_schema):
        yield finding
        broken |= finding.violation.code in USELESS_TO_GO_ON
    if broken:
        return
    tables = await engine.read(_table_names)
    steps = len(tables) + len(PAGES)
    for done, name in enumerate(tables, start=1):
        for finding in await engine.read(partial(_integrity, table=name)):
            yield finding
        yield Progress(what="tables", done=done, of=steps)
    for done, (query, judge) in enumerate(PAGES.items(), start=len(tables) + 1):
        async for row in _rows(engine, query):
            for finding in judge(row):
                yield finding
        yield Progress(what="tables", done=done, of=steps)


async def _rows(engine: Engine, query: str) -> AsyncIterator[Row]:
    """All rows of a paged query; its first two columns are where the next page begins after."""
    tenant, after = "", ""
    while page := await engine.read(partial(_page, query=query, tenant=tenant, after=after)):
        for row in page:
            yield row
        tenant, after = str(page[-1][0]), str(page[-1][1])


def _page(db: Connection, *, query: str, tenant: str, after: str) -> list[Row]:
    where = {"tenant": tenant, "after": after, "limit": PAGE}
    return db.execute(queries[query], where).fetchall()


# ── the file and its tables ──────────────────────────────────────────────────────────────────


def _schema(db: Connection) -> list[Finding]:
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


def _schema_of(db: Connection) -> dict[tuple[str, str], Column]:
    return {(str(kind), str(name)): sql for kind, name, sql in db.execute(queries["schema"])}


def _expected_schema() -> dict[tuple[str, str], Column]:
    """What the migrations make of an empty database, in memory."""
    empty = Connection(":memory:")
    try:
        migrate(empty, load_migrations())
        return _schema_of(empty)
    finally:
        empty.close()


def _table_names(db: Connection) -> list[str]:
    made = [name for kind, name in _schema_of(db) if kind == "table"]
    return ["sqlite_schema", *made]  # with that name SQLite looks at the unused pages, too


def _integrity(db: Connection, *, table: str) -> list[Finding]:
    quoted = table.replace('"', '""')
    try:
        said = [str(line) for (line,) in db.execute(f'PRAGMA integrity_check("{quoted}")')]
    except apsw.CorruptError as error:
        # Caught here, so that it is a finding and does not stop the store.
        said = [str(error)]
    return [stray("file_damaged", table, line) for line in said if line != "ok"]


# ── what lies between them ───────────────────────────────────────────────────────────────────


_attributes: Decoder[tuple[tuple[str, str], ...]] = Decoder(tuple[tuple[str, str], ...])


def _judge_derived(row: Row) -> Iterator[Finding]:
    tenant, session_id, settings, attributes, unlisted, left_over = row
    whose = {"tenant": str(tenant), "session_id": str(session_id)}
    assert isinstance(settings, bytes)
    decoded = settings_decoder.lenient(settings)
    listed = _attributes.strict(str(attributes))
    # Settings that cannot be read keep the session from being read, which `verify` says by itself.
    if not isinstance(decoded, Unreadable) and tuple(sorted(decoded.attributes)) != listed:
        what = "its attributes are not what its settings say"
        yield stray("derived_off", str(session_id), what, **whose)
    if unlisted:
        what = "a session that it reads its past from does not know that"
        yield stray("derived_off", str(session_id), what, **whose)
    if left_over:
        what = "its bytes are said to be gone, and they are not"
        yield stray("derived_off", str(session_id), what, **whose)


PAGES: dict[str, Judge] = {
    "keys_page": judge_key,
    "claims_page": judge_claim,
    "derived_page": _judge_derived,
    "turn_owners": judge_owner("turns"),
    "item_owners": judge_owner("items"),
    "state_owners": judge_owner("state"),
    "annotation_owners": judge_owner("annotations"),
    "search_owners": judge_owner("indexed words"),
    "journal_owners": judge_owner("journal records"),
    "signal_owners": judge_owner("signals"),
}
