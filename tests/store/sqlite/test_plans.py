"""How SQLite finds its rows. A tenant may be the only one and hold everything, so its name alone selects nothing.

Without statistics SQLite believes that any equality leaves ten rows, and may prefer the primary key's first column,
the tenant, to an index that leads to the very row. Where it does, the query says which index it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import apsw
import pytest

from holdfast.store.operations.inspection import OWNERS, PROVEN
from holdfast.store.sql.dialects import SQLITE
from holdfast.store.sql.statements import finding, looking
from holdfast.store.sql.tables import TURN_CLAIMS
from holdfast.store.sqlite.connection import open_writer
from holdfast.store.sqlite.driver import _KEPT_BY_KEY, _update, _without_indexes
from holdfast.store.sqlite.migration import load_migrations, migrate
from tests.store.plans import FINDERS, LOOKS, questions

queries: dict[str, str] = {
    **questions(SQLITE),
    **{f"look: {name}": looking(each) for name, each in LOOKS.items()},
    **{
        f"find: {name}": finding(each, bool(each.over), bool(each.over), True)
        for name, each in FINDERS.items()
    },
    "settle": _update(TURN_CLAIMS, "state", "expires_ms")[0],
}

WALKS = {
    "counts": "counts everything",
    "held turns": "walks the index of open turns, which are few",
    "open_turns": "looks at every turn, around a damaged session alone",
    "playing_turns": "walks the index of open turns, which are few",
    "discarded_turns": "walks the ends that it was given",
    "asking_turns": "walks the sessions that it was given",
    "unfinished_turns": "walks the sessions that it was given",
    "turn_holders": "walks the index of open turns, which are few",
    "queued_turns": "walks the index of turns that wait, which are bounded",
    "clearable_sessions": "walks the index of deleted sessions that are to be cleared",
    "stale_nodes": "there are as many nodes as boots in a day",
    "stale_signals": "walks the signals, of which there are never many",
    "stray_blobs": "walks an index; blobs of sessions that never were have nothing to be found by",
    "search_hits": "walks what FTS5 has found",
    "chunk_with": "walks what FTS5 has found",
    "forks_of": "walks the sessions that it was given",
    "folded_among": "walks the sessions that it was given",
    "listed_lines": "walks the families that it was given",
    "listed_sessions": "walks the attributes that it was given",
    "named_places": "walks the sessions that it was given",
    "named_sessions": "walks the sessions that it was given",
    "behind_among": "walks the sessions that it was given",
    "lines_among": "walks the sessions that it was given",
    "to_clear_among": "walks the sessions that it was given",
    "family_turns": "walks the digests that it was given",
    "keys_of": "walks the sessions that it was given",
    "messages_in": "walks the stretches that it was given",
    "due_blobs": "walks a session and its forks",
    "clearable_rows": "walks some items of one session",
    "pasts_between": "walks the sessions that it was given",
    "sessions_page": "walks a page",
    **{f"owners of {kind}": "walks a page" for kind in OWNERS},
    **{f"first {table.name}": "walks a page" for table in PROVEN},
    "find: every_node": "there are as many nodes as boots in a day",
    "find: every_seal_key": "there are as many as were made by hand, and one",
}
"""Queries that may go through a table or index from its start, and why."""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    connection = open_writer(tmp_path_factory.mktemp("plans") / "holdfast.db")
    migrate(connection, load_migrations())
    yield connection
    connection.close()


A_WALK = re.compile(r"SCAN (?!CONSTANT|\(subquery-|looked|found|weighed)")
"""A subquery's own steps say how its rows are found, and a look begins with a row of nothing (`looked`)."""


def bindings_for(sql: str, value: str) -> dict[str, str] | tuple[str, ...]:
    return dict.fromkeys(re.findall(r":(\w+)", sql), value) or (value,) * sql.count("?")


def plan_of(db: apsw.Connection, sql: str) -> list[str]:
    found = db.execute(f"explain query plan {sql}", bindings_for(sql, "1"))
    return [str(row[3]) for row in found]


ALL_FORKS = "sessions_with_past"
"""Goes through a tenant's forks, for lists of a store whose session table is damaged."""


def test_no_query_goes_through_all_that_a_tenant_has(db: apsw.Connection) -> None:
    through = {
        name: step
        for name in queries.keys() - {ALL_FORKS}
        for step in plan_of(db, queries[name])
        if step.endswith("(tenant=?)")
    }
    assert through == {}


def test_no_query_goes_through_a_table_but_those_with_a_reason(db: apsw.Connection) -> None:
    walking = {
        name for name in queries if any(A_WALK.match(step) for step in plan_of(db, queries[name]))
    }
    assert walking == set(WALKS)


BY_SEARCH = re.compile(r"search_(word|chunk)")
"""The search index is no way around itself: a search does without it."""


def test_every_query_can_do_without_indexes(db: apsw.Connection) -> None:
    """A read that meets a damaged index goes by the tables: by their row numbers, or by the key that they are kept by."""
    own = {f"sqlite_autoindex_{table}_1" for table in _KEPT_BY_KEY}
    used = {
        name: index
        for name in queries.keys() - {"settle"}
        if not BY_SEARCH.search(queries[name])
        for step in plan_of(db, _without_indexes(queries[name]))
        for index in re.findall(r"(?<!TABLE )(?<!AUTOMATIC COVERING )INDEX (\w+)", step)
        if index not in own
    }
    assert used == {}


def test_what_is_said_to_turns_is_pruned_without_a_walk_through_the_turns(
    db: apsw.Connection,
) -> None:
    assert not any(step.startswith("SCAN t") for step in plan_of(db, queries["stale_signals"]))


def test_no_query_is_prepared_anew_for_other_values(db: apsw.Connection) -> None:
    """Preparing costs several times what most queries do; but for `counts`, which asks for the size of the file."""
    asked: list[int] = []

    def allow(action: int, *_: str | None) -> int:
        """Is asked while a statement is prepared, and at no other time."""
        asked.append(action)
        return apsw.SQLITE_OK

    selects = {name: sql for name, sql in queries.items() if sql[0] == "s" and name != "counts"}
    db.authorizer = allow
    try:
        for name, sql in selects.items():
            db.execute(sql, bindings_for(sql, "1")).fetchall()
            assert asked, name
            asked.clear()
            for value in ("2", "3"):
                db.execute(sql, bindings_for(sql, value)).fetchall()
            assert asked == [], name
    finally:
        db.authorizer = None
