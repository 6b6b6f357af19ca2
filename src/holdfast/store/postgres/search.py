"""Search over tsvector and GIN, as work on the database. `store/searching.py` says what is found.

1. The index knows which words occur in which chunk of a session, and nothing else: no order, no counts. It names
   chunks that may have what is looked for; whether they do is seen by reading their items.
2. A session is indexed up to `indexed_length`, its name as of `indexed_rev`. What lies beyond is looked through,
   always, and brought into the index by small steps outside the commits.
3. Each word is kept behind a tag of its tenant, so looking for one passes over nobody else's.
4. A chunk with more words than a tsvector holds has one in their place that is in every question.
5. A fork has chunks of its own items. Whoever finds a chunk of its past finds the fork by `session_past`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from hashlib import sha256
from itertools import chain, islice

from holdfast import limits
from holdfast.core.items import item_decoder
from holdfast.ids import ItemId, SessionId, Tenant
from holdfast.store import listing, searching
from holdfast.store import tables as of
from holdfast.store.assemble import notes_of
from holdfast.store.base import Indexed, Match, Piece, Query, Results, SessionFilter, SessionInfo
from holdfast.store.effort import Effort
from holdfast.store.indexing import Behind, Step, StepInTheMaking, Weighed, plan_of
from holdfast.store.listing import Within, before_in, page_upto
from holdfast.store.operations.sessions import annotations_of
from holdfast.store.postgres import reading
from holdfast.store.postgres.driver import STEPS
from holdfast.store.postgres.engine import ONE_MOMENT, Db
from holdfast.store.postgres.tables import Row, Table
from holdfast.store.rows import SessionRow
from holdfast.store.searching import Narrowed, Sought, Span, spans_to_read

PAGE = 100
"""Rows in one query where nobody knows how many are needed."""

SPANS_AT_ONCE = 50
MESSAGES_AHEAD = 20
"""What is read ahead of some sessions: together as much as one page may read at all."""

ANYTHING = "~"
"""Stands for words that are too many to name. No word has it."""

VECTOR_BYTES_MAX = 900_000
"""A tsvector ends at a mebibyte, with some bytes of its own for every word."""
WORD_EXTRA_BYTES = 8

# ── looking ──────────────────────────────────────────────────────────────────────────────────


async def search(
    db: Db,
    tenant: Tenant,
    query: Query,
    *,
    where: SessionFilter,
    cursor: str | None,
    limit: int,
) -> Results:
    """One page of what was found. One match more than asked for is looked for, to know whether there is."""
    before, within = listing.resumed(cursor)
    if not query.phrases:
        return Results(matches=(), cursor=None)
    async with db.transaction(ONE_MOMENT):
        look = Look(db, Sought(query), await _narrowed(db, tenant, query), within)
        ids = None if look.narrowed is None else await _may_be_found(db, tenant, look.narrowed)
        listed = (
            _walk(db, tenant, where=where, cursor=cursor)
            if ids is None
            else reading.named(db, tenant, ids, where=where, before=before)
        )
        return await _page(look, listed, limit=limit)


async def _page(
    look: Look, listed: AsyncIterator[tuple[SessionInfo, ...]], *, limit: int
) -> Results:
    found: list[Match] = []
    async for some in listed:
        async for info, match in look.matches(some):
            if match is not None and len(found) == limit:
                return page_upto(found, found[-1].info)
            if match is not None:
                found.append(match)
            if look.left_at is not None or look.effort.is_spent:
                return page_upto(found, info, look.left_at)
    return Results(matches=tuple(found), cursor=None)


async def _narrowed(db: Db, tenant: Tenant, query: Query) -> Narrowed | None:
    """What the index says; None if that is too much to be of use."""
    most = limits.search_hits_max
    words = _asked(tenant, query)
    hits = await db.all(_spans, "search_hits", tenant=tenant, words=words, limit=most + 1)
    unknown = await db.all(_spans, "tenants_behind", tenant=tenant, limit=most + 1)
    if len(hits) > most or len(unknown) > most:
        return None
    return Narrowed(hits=hits, unknown=unknown)


async def _may_be_found(db: Db, tenant: Tenant, narrowed: Narrowed) -> set[SessionId] | None:
    """The sessions that have such chunks, or read them; None if they are too many to name them."""
    holders = narrowed.holders
    most = limits.search_hits_max
    forks = await db.rows("forks_of", tenant=tenant, ids=sorted(holders), limit=most + 1)
    ids = {*holders, *(SessionId(each) for (each,) in forks)}
    return None if len(ids) > most else ids


async def _walk(
    db: Db, tenant: Tenant, *, where: SessionFilter, cursor: str | None
) -> AsyncIterator[tuple[SessionInfo, ...]]:
    """All that a list with this filter shows, from a cursor on, some at a time."""
    while True:
        page = await reading.page_within(
            db, tenant, where=where, cursor=cursor, limit=reading.NAMED_AT_ONCE
        )
        yield page.sessions
        if page.cursor is None:
            return
        cursor = page.cursor


class Look:
    """One page's look into sessions, and how much it has read."""

    def __init__(
        self, db: Db, sought: Sought, narrowed: Narrowed | None, within: Within | None
    ) -> None:
        """`within`: see `listing.resumed`."""
        self.narrowed = narrowed
        self.left_at: int | None = None
        """The position down to which the last session was looked through, if not to its beginning."""
        self.effort = Effort()
        self.effort.begin()
        self._within = within
        self._db = db
        self._sought = sought

    async def matches(
        self, some: tuple[SessionInfo, ...]
    ) -> AsyncIterator[tuple[SessionInfo, Match | None]]:
        """What is sought in each of these sessions, one after the other, if it is there."""
        places = [before_in(each.session, self._within) for each in some]
        spans = [
            spans_to_read(each.session, self.narrowed, before=before)
            for each, before in zip(some, places, strict=True)
        ]
        ahead = Ahead(self._db, spans)
        for nth, info in enumerate(some):
            named: tuple[Piece, ...] = ()
            if places[nth] is None:
                self.effort.spend()  # its name, so that sessions with nothing to read have an end, too
                named = self._sought.find(searching.name_of(info.session))
            if named:
                yield info, Match(info=info, excerpt=named)
            else:
                yield info, await self._match(info, ahead, nth)

    async def _match(self, info: SessionInfo, ahead: Ahead, nth: int) -> Match | None:
        hidden: frozenset[ItemId] | None = None
        async with aclosing(ahead.rows(info.session.tenant, nth)) as rows:
            async for position, body in rows:
                self.effort.spend(len(body))
                if self._sought.may_be_in(body):
                    for hit in self._sought.hits([(position, item_decoder.lenient(body))]):
                        if hit is None:
                            await asyncio.sleep(
                                0
                            )  # others go first; a client that has gone ends it here
                            continue
                        hidden = await self._hidden(info.session) if hidden is None else hidden
                        if hit.item not in hidden:
                            return hit.match(info)
                if self.effort.is_spent:
                    self.left_at = position
                    return None
        return None

    async def _hidden(self, session: SessionRow) -> frozenset[ItemId]:
        if session.meta_rev == 0:
            return frozenset()
        past = searching.whole_of(session)
        rows = await STEPS.take(self._db, annotations_of(session.tenant, past))
        return notes_of(rows).hidden_from_people


class Ahead:
    """The messages of some sessions. The ends of their spans are read together when the first is asked for."""

    def __init__(self, db: Db, spans: Sequence[Sequence[Span]]) -> None:
        self._db = db
        self._spans = spans
        self._ends: dict[Span, list[Row]] | None = None

    async def rows(self, tenant: Tenant, nth: int) -> AsyncGenerator[Row, None]:
        """Positions and bodies of one session's messages, the latest span first, the last message first."""
        for span in self._spans[nth]:
            if self._ends is None:
                self._ends = await self._read_ends(tenant, self._spans[nth:])
            rows = self._ends.get(span)
            at_end = rows is not None and len(rows) < MESSAGES_AHEAD
            if rows is None:
                rows = await self._before(tenant, span, span.end)
            while rows:
                for row in rows:
                    yield row
                if at_end:
                    break
                rows = await self._before(tenant, span, rows[-1][0])

    async def _read_ends(
        self, tenant: Tenant, spans: Iterable[Iterable[Span]]
    ) -> dict[Span, list[Row]]:
        """The ends of the first spans: as many as come before so many bytes."""
        wanted = list(islice(dict.fromkeys(chain.from_iterable(spans)), SPANS_AT_ONCE))
        rows = await self._db.rows(
            "messages_at_ends",
            tenant=tenant,
            session_ids=[each.session_id for each in wanted],
            starts=[each.start for each in wanted],
            ends=[each.end for each in wanted],
            limit=MESSAGES_AHEAD,
            bytes=limits.search_bytes_max,
        )
        if sum(len(body) for _, _, body in rows) >= limits.search_bytes_max:
            last = rows[-1][0]  # of this one there may be more, and of later ones nothing is known
            rows, wanted = [row for row in rows if row[0] < last], wanted[: last - 1]
        found: dict[Span, list[Row]] = {each: [] for each in wanted}
        for nth, position, body in rows:
            found[wanted[nth - 1]].append((position, body))
        return found

    async def _before(self, tenant: Tenant, span: Span, end: int) -> list[Row]:
        return await self._db.rows(
            "messages_in",
            tenant=tenant,
            session_id=span.session_id,
            start=span.start,
            end=end,
            limit=PAGE,
            bytes=limits.search_bytes_max,
        )


# ── indexing ─────────────────────────────────────────────────────────────────────────────────


async def index(db: Db, *, bytes_max: int) -> Indexed:
    """Bring some sessions that are behind forward, each by a statement of its own."""
    behind = await db.all(_behind, "sessions_behind", limit=PAGE + 1)
    steps: list[Step] = []
    left = bytes_max
    for each in behind[:PAGE]:
        if left <= 0:
            break
        steps.append(await _step(db, each, bytes_max=left))
        left -= steps[-1].size
        await _put(db, steps[-1])
    plan = plan_of(steps, found=len(behind))
    return Indexed(sessions=len(plan.steps), more=plan.more)


async def _step(db: Db, behind: Behind, *, bytes_max: int) -> Step:
    making = StepInTheMaking(behind, bytes_max=bytes_max)
    start = behind.indexed_length
    while rows := await db.all(
        _weighed,
        "items_after",
        tenant=behind.tenant,
        session_id=behind.session_id,
        start=start,
        limit=PAGE,
    ):
        if not all(map(making.take, rows)):
            return making.step(at_end=False)
        start = rows[-1].pos + 1
    return making.step(at_end=True)


async def _put(db: Db, step: Step) -> None:
    """Write a step; nothing if somebody else was here: what is left to do will be found again."""
    was = step.behind
    await db.write(
        "put_step",
        tenant=was.tenant,
        id=was.session_id,
        state=was.state,
        from_pos=was.indexed_length,
        was_rev=was.indexed_rev,
        upto=step.upto,
        rev=was.rev,
        name=_lexemes(was.tenant, step.name),
        words=_lexemes(was.tenant, step.words),
    )


_spans = Table(of.Table("span", Span))
_behind = Table(of.Table("behind", Behind))
_weighed = Table(of.Table("weighed", Weighed))

# ── what PostgreSQL is given ─────────────────────────────────────────────────────────────────


def _tag(tenant: str) -> str:
    """What a tenant's words begin with. Two tenants that share one share nothing but time."""
    return sha256(tenant.encode()).hexdigest()[:12]


def _lexemes(tenant: str, words: frozenset[str]) -> list[str]:
    """The words of a chunk, as they are kept."""
    tag = _tag(tenant)
    made = [tag + word for word in sorted(words)]
    size = sum(len(each.encode()) + WORD_EXTRA_BYTES for each in made)
    return made if size <= VECTOR_BYTES_MAX else [tag + ANYTHING]


def _asked(tenant: Tenant, query: Query) -> str:
    """The question as a tsquery. A word has neither quotes nor backslashes, so inside quotes it is a word."""
    tag = _tag(tenant)
    needed = " & ".join(
        f"'{tag}{word}'{':*' if prefix else ''}" for word, prefix in searching.words_needed(query)
    )
    return f"({needed}) | '{tag}{ANYTHING}'"
