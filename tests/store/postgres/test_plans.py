"""How PostgreSQL finds its rows, with enough of them that it matters, and statistics to choose by.

The planner chooses freely. A table that is large must not be read from end to end by any query that a request, a
watcher or the clean-up waits for; a small one may be, since that is the best way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from holdfast.store.operations.search import _needed
from holdfast.store.postgres.compiler import SCHEMA, Compiler, cast
from holdfast.store.postgres.queries import PostgresQuery, compiled
from holdfast.store.search.matches import parse_query
from holdfast.store.sql.dialects import POSTGRES
from holdfast.store.sql.statements import finding, looking
from tests.postgres import shared_database
from tests.store.crowd import TENANT, crowd, fill_postgres, key_of, own_word
from tests.store.plans import FINDERS, LOOKS, questions, writes
from tests.store.postgres.filling import fill_index

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SESSIONS, TURNS = 2_000, 12_000


def _queries() -> dict[str, PostgresQuery]:
    looks = {
        f"look: {name}": looking(each, schema=SCHEMA, now="{now}", stamped=True)
        for name, each in LOOKS.items()
    }
    finders = {
        f"find: {name}": finding(
            each, bool(each.over), bool(each.over), True, schema=SCHEMA, cast=cast, stamped=True
        )
        for name, each in FINDERS.items()
    }
    made = {name: compiled("read", sql) for name, sql in (looks | finders).items()}
    asked = {name: compiled("ask", sql) for name, sql in questions(POSTGRES).items()}
    return asked | made


queries = _queries()
WRITES = writes()
LARGE = {"session", "session_key", "turn", "item", "search_chunk", "idempotency", "journal"}

WALKS = {
    "counts": "counts everything",
    "stray_blobs": "looks for blobs of sessions that never were",
}
"""Queries that may go through a large table, and why."""


class Crowded:
    """A database with many sessions, and the ids of one of them. One connection asks for all plans."""

    def __init__(self, db: asyncpg.Connection[asyncpg.Record]) -> None:
        self._db = db
        self.values: dict[str, Any] = {}

    async def prepare(self) -> None:
        """Make what else is needed in a filled database."""
        await self._db.execute(CLAIMS)
        await self._db.execute("vacuum analyze")
        await self._db.execute(GENERIC)
        found = await self._db.fetchrow(ONE)
        assert found is not None
        self.values = {name: found[name] for name in ("session_id", "turn_id")}

    async def plan(self, query: PostgresQuery, *, generic: bool = False) -> list[dict[str, Any]]:
        """The steps of a query's plan, flat: for these values, or for any (what a prepared statement may come to)."""
        if generic:
            said = await self._db.fetchval("select pg_temp.generic($1)", query.sql)
        else:
            statement = await self._db.prepare(query.sql)
            kinds = [each.name for each in statement.get_parameters()]
            arguments = [
                self.value(name, kind) for name, kind in zip(query.names, kinds, strict=True)
            ]
            said = await self._db.fetchval(f"explain (format json) {query.sql}", *arguments)
        return list(_steps(json.loads(said)[0]["Plan"]))

    def value(self, name: str, kind: str) -> Any:
        """Something that a parameter of this name could be: it leads to one row, where it can."""
        known: Mapping[str, Any] = {
            "tenant": TENANT,
            "id": self.values["session_id"],
            "session_id": self.values["session_id"],
            "turn_id": self.values["turn_id"],
            "key": key_of(7),
            "claim": "claim-7",
            "limit": 21,
            "before": "turn_z",
            "before_ms": 10**15,
            "before_id": "z",
            "words": POSTGRES.index.asked(_needed(TENANT, parse_query(own_word(7)))),
            "ids": [self.values["session_id"]],
            "spans_0": [self.values["session_id"]],
            "spans_1": [0],
            "spans_2": [100],
            "turn_ids": [self.values["turn_id"]],
            "tenants": [TENANT],
        }
        if name in known:
            found = known[name]
            return [found] if kind.endswith("[]") and not isinstance(found, list) else found
        if kind.endswith("[]"):
            return []
        if name in OPTIONAL:
            return None
        return {"int8": 1, "bytea": b"x", "bool": False}.get(kind, "x")


OPTIONAL = {
    "agent",
    "key_first",
    "active_from_ms",
    "active_before_ms",
    "busy",
    "now_ms",
    "replaced",
}

GENERIC = """
create function pg_temp.generic(query text) returns json language plpgsql as $$
declare plan json;
begin
  execute 'explain (format json, generic_plan) ' || query into plan;
  return plan;
end $$
"""

CLAIMS = """
insert into holdfast.idempotency (tenant, key, request_hash, turn_id, state, expires_ms)
select tenant, 'claim-' || row_number() over (), ''::bytea, turn_id, 'done', 9000000000000 from holdfast.turn;
insert into holdfast.journal (tenant, turn_id, n, token, records)
select tenant, turn_id, 0, 0, ''::bytea from holdfast.turn;
"""

ONE = """
select s.id as session_id, t.turn_id from holdfast.session s
  join holdfast.turn t on t.tenant = s.tenant and t.session_id = s.id limit 1
"""


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _steps(each)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowded() -> AsyncIterator[Crowded]:
    url = await asyncio.to_thread(shared_database)
    await fill_postgres(url, crowd(sessions=SESSIONS, turns=TURNS))
    await fill_index(url)
    db = await asyncpg.connect(url, statement_cache_size=0)
    try:
        made = Crowded(db)
        await made.prepare()
        yield made
    finally:
        await db.close()


@pytest.mark.parametrize("generic", [False, True], ids=["values", "any values"])
async def test_no_query_reads_a_large_table_from_end_to_end(
    crowded: Crowded, generic: bool
) -> None:
    walked = {
        name: step["Relation Name"]
        for name in queries.keys() - WALKS.keys()
        for step in await crowded.plan(queries[name], generic=generic)
        if step["Node Type"] == "Seq Scan" and step["Relation Name"] in LARGE
    }
    assert walked == {}


@pytest.mark.parametrize("waits", [False, True], ids=["together", "alone"])
async def test_no_write_reads_a_large_table_from_end_to_end(crowded: Crowded, waits: bool) -> None:
    """As it is prepared, for any values."""
    walked = {
        name: step["Relation Name"]
        for name, writing in WRITES.items()
        for step in await crowded.plan(
            Compiler().statement([writing], waits=waits)[0], generic=True
        )
        if step["Node Type"] == "Seq Scan" and step["Relation Name"] in LARGE
    }
    assert walked == {}


async def test_words_are_found_by_their_index(crowded: Crowded) -> None:
    steps = await crowded.plan(queries["search_hits"])
    assert "search_chunk_words" in {step.get("Index Name") for step in steps}


async def test_a_list_is_read_in_its_order(crowded: Crowded) -> None:
    """A page costs a page, however many sessions there are: nothing is sorted."""
    steps = await crowded.plan(queries["listed_sessions"])
    assert "session_listed" in {step.get("Index Name") for step in steps}
    assert "Sort" not in {step["Node Type"] for step in steps}


@pytest.mark.parametrize("generic", [False, True], ids=["values", "any values"])
@pytest.mark.parametrize("name", ["sessions_behind", "tenants_behind"])
async def test_what_is_not_indexed_yet_is_found_by_an_index(
    crowded: Crowded, name: str, generic: bool
) -> None:
    """Every search asks for it, and mostly there is nothing. The planner believes that all sessions are behind."""
    steps = await crowded.plan(queries[name], generic=generic)
    assert "session_to_index" in {step.get("Index Name") for step in steps}


@pytest.mark.parametrize("generic", [False, True], ids=["values", "any values"])
async def test_keys_with_one_beginning_are_found_side_by_side(
    crowded: Crowded, generic: bool
) -> None:
    """By their sessions they would be found as well, after a look at every key that there is."""
    steps = await crowded.plan(queries["keyed_sessions"], generic=generic)
    assert {step.get("Index Name") for step in steps} <= {None, "session_key_pkey"}
