"""What only this home can show of itself. `verify` runs it first, then looks at the sessions.

  key_astray       a key means a session that is deleted or does not exist
  claim_running    an idempotency key waits for a turn that has ended or does not exist
  row_astray       rows belong to a session or turn that does not exist
  derived_off      attributes, or the list of who reads whose items, are not what the session says

Everything goes by pages, each of which sees both sides of what it compares at one moment, so nothing has to be
looked at twice. Whether its files are sound is PostgreSQL's to say: `pg_amcheck` asks it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from holdfast.core.codec import Unreadable
from holdfast.core.conversation import settings_decoder
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.tables import Bound, Row, lineage_decoder, load, utf8
from holdfast.store.stray import judge_claim, judge_key, judge_owner, stray
from holdfast.store.verify import Finding, Progress, Report

queries = load("inspection.sql")

PAGE = 200

Judge = Callable[[Row], Iterator[Finding]]


async def inspect(engine: Engine) -> AsyncIterator[Report]:
    """Check what lies between the tables, in short reads."""
    for done, (query, judge) in enumerate(PAGES.items(), start=1):
        async for row in _rows(engine, query):
            for finding in judge(row):
                yield finding
        yield Progress(what="tables", done=done, of=len(PAGES))


async def _rows(engine: Engine, query: str) -> AsyncIterator[Row]:
    """All rows of a paged query; its first two columns are where the next page begins after."""
    tenant, after = "", ""

    async def read(db: Db) -> list[Row]:
        where: dict[str, Bound] = {"tenant": tenant, "after": after, "limit": PAGE}
        return await db.fetch(queries[query], where)

    while page := await engine.run(read):
        for row in page:
            yield row
        tenant, after = page[-1][0], page[-1][1]


def _judge_derived(row: Row) -> Iterator[Finding]:
    tenant, session_id, settings, lineage, names, values, listed, left_over = row

    def off(what: str) -> Finding:
        return stray("derived_off", session_id, what, tenant=tenant, session_id=session_id)

    decoded, past = settings_decoder.lenient(settings), lineage_decoder.lenient(lineage)
    # What cannot be read keeps the session from being read, which `verify` says by itself.
    if not isinstance(decoded, Unreadable):
        wanted = sorted((utf8(name), utf8(value)) for name, value in decoded.attributes)
        if wanted != list(zip(names, values, strict=True)):
            yield off("its attributes are not what its settings say")
    if not isinstance(past, Unreadable) and not {each.session_id for each in past} <= set(listed):
        yield off("a session that it reads its past from does not know that")
    if left_over:
        yield off("its bytes are said to be gone, and they are not")


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
