"""Search over FTS5, as functions of a connection. `store/searching.py` says what is found.

1. The index knows which words occur in which chunk of a session, and nothing else: no order, no counts. It
   names chunks that may have what is looked for; whether they do is seen by reading their items. So an excerpt
   needs no second copy of the text, phrases need no positions, and hidden items need no change to the index.
2. A session is indexed up to `indexed_length`, its name as of `indexed_rev`. What lies beyond is looked
   through, always, and brought into the index by small steps outside the commits.
3. Each word is kept behind a tag of its tenant, so a tenant's words lie by themselves: looking for one passes
   over nobody else's, and takes no longer because of them.
4. A fork has chunks of its own items. Whoever finds a chunk of its past finds the fork by `session_past`.
5. Words of a deleted session go with its items: later, and when no live fork reads them. Its name goes at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from typing import cast

from apsw import Connection

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.items import item_decoder
from holdfast.ids import ItemId, SessionId, Tenant
from holdfast.store import listing, searching
from holdfast.store import tables as of
from holdfast.store.assemble import notes_of
from holdfast.store.base import Match, Query, Results, SessionFilter, SessionInfo
from holdfast.store.effort import Effort
from holdfast.store.indexing import NAME, Behind, Plan, Step, StepInTheMaking, Weighed, plan_of
from holdfast.store.listing import Within, before_in, page_upto
from holdfast.store.operations.sessions import annotations_of
from holdfast.store.rows import SessionRow
from holdfast.store.searching import Narrowed, Sought, Span, spans_to_read
from holdfast.store.sqlite import reading, tables
from holdfast.store.sqlite.chunks import drop_chunk
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.tables import Table, run

PAGE = 100
"""Rows in one query where nobody knows how many are needed."""

# ── looking ──────────────────────────────────────────────────────────────────────────────────


def search(
    db: Connection,
    tenant: Tenant,
    query: Query,
    *,
    where: SessionFilter,
    cursor: str | None,
    limit: int,
    effort: Effort,
) -> Results:
    """One page of what was found. One match more than asked for is looked for, to know whether there is."""
    effort.begin()
    before, within = listing.resumed(cursor)
    if not query.phrases:
        return Results(matches=(), cursor=None)
    look = Look(db, Sought(query), _narrowed(db, tenant, query), effort)
    ids = None if look.narrowed is None else _may_be_found(db, tenant, look.narrowed)
    listed = (
        _walk(db, tenant, where=where, cursor=cursor)
        if ids is None
        else reading.named(db, tenant, ids, where=where, before=before)
    )
    found: list[Match] = []
    for info in listed:
        match = look.match(info, within)
        if match is not None and len(found) == limit:
            return page_upto(found, found[-1].info)
        if match is not None:
            found.append(match)
        if look.left_at is not None or effort.is_spent:
            return page_upto(found, info, look.left_at)
    return Results(matches=tuple(found), cursor=None)


def _narrowed(db: Connection, tenant: Tenant, query: Query) -> Narrowed | None:
    """What the index says; None if that is too much to be of use."""
    most = limits.search_hits_max
    words = _match_expression(tenant, query)
    hits = _span_rows.all(db, "search_hits", tenant=tenant, words=words, limit=most + 1)
    unknown = _span_rows.all(db, "tenants_behind", tenant=tenant, limit=most + 1)
    if len(hits) > most or len(unknown) > most:
        return None
    return Narrowed(hits=hits, unknown=unknown)


def _may_be_found(db: Connection, tenant: Tenant, narrowed: Narrowed) -> set[SessionId] | None:
    """The sessions that have such chunks, or read them; None if they are too many to name them."""
    holders = narrowed.holders
    most = limits.search_hits_max
    named = encode(sorted(holders)).decode()
    forks = tables.texts(db, "forks_of", tenant=tenant, ids=named, limit=most + 1)
    ids = {*holders, *(SessionId(each) for (each,) in forks)}
    return None if len(ids) > most else ids


def _walk(
    db: Connection, tenant: Tenant, *, where: SessionFilter, cursor: str | None
) -> Iterator[SessionInfo]:
    """All that a list with this filter shows, from a cursor on."""
    while True:
        page = reading.page(db, tenant, where=where, cursor=cursor, limit=PAGE)
        yield from page.sessions
        if page.cursor is None:
            return
        cursor = page.cursor


class Look:
    """One page's look into sessions, and how much it has read."""

    def __init__(
        self, db: Connection, sought: Sought, narrowed: Narrowed | None, effort: Effort
    ) -> None:
        self.narrowed = narrowed
        self.left_at: int | None = None
        """The position down to which the last session was looked through, if not to its beginning."""
        self._db = db
        self._sought = sought
        self._effort = effort

    def match(self, info: SessionInfo, within: Within | None) -> Match | None:
        """What was looked for in this session, if it is there. `within`: see `listing.resumed`."""
        session = info.session
        before = before_in(session, within)
        if before is None:
            self._effort.spend()  # its name, so that sessions with nothing to read have an end, too
            named = self._sought.find(searching.name_of(session))
            if named:
                return Match(info=info, excerpt=named)
        spans = spans_to_read(session, self.narrowed, before=before)
        with closing(self._items(session.tenant, spans)) as items:
            return self._match(info, items)

    def _match(self, info: SessionInfo, items: Iterator[tuple[int, bytes]]) -> Match | None:
        hidden: frozenset[ItemId] | None = None
        for position, body in items:
            self._effort.spend(len(body))
            if self._sought.may_be_in(body):
                for hit in self._sought.hits([(position, item_decoder.lenient(body))]):
                    if hit is None:
                        if not self._effort.breathe():
                            self.left_at = position
                            return None
                        continue
                    hidden = self._hidden(info.session) if hidden is None else hidden
                    if hit.item not in hidden:
                        return hit.match(info)
            if self._effort.is_spent:
                self.left_at = position
                return None
        return None

    def _items(
        self, tenant: Tenant, spans: Iterable[Span]
    ) -> Generator[tuple[int, bytes], None, None]:
        """What may have it, the last first; one at a time, since each may be large."""
        for span in spans:
            cursor = self._db.execute(_MESSAGES, (tenant, span.session_id, span.start, span.end))
            with closing(cursor):
                yield from cast("Iterator[tuple[int, bytes]]", cursor)

    def _hidden(self, session: SessionRow) -> frozenset[ItemId]:
        if session.meta_rev == 0:
            return frozenset()
        past = searching.whole_of(session)
        rows = DRIVER.run(self._db, annotations_of(session.tenant, past))
        return notes_of(rows).hidden_from_people


# ── indexing ─────────────────────────────────────────────────────────────────────────────────


def plan_step(db: Connection, *, bytes_max: int) -> Plan:
    """What to index next: about so many bytes of items, of sessions that are behind."""
    behind = _behind_rows.all(db, "sessions_behind", limit=PAGE + 1)
    steps: list[Step] = []
    left = bytes_max
    for each in behind[:PAGE]:
        if left <= 0:
            break
        steps.append(_step(db, each, bytes_max=left))
        left -= steps[-1].size
    return plan_of(steps, found=len(behind))


def _step(db: Connection, behind: Behind, *, bytes_max: int) -> Step:
    making = StepInTheMaking(behind, bytes_max=bytes_max)
    at_end = all(making.take(row) for row in _own_items(db, behind))
    return making.step(at_end=at_end)


def _own_items(db: Connection, behind: Behind) -> Iterator[Weighed]:
    start = behind.indexed_length
    while rows := _weighed_rows.all(
        db,
        "items_after",
        tenant=behind.tenant,
        session_id=behind.session_id,
        start=start,
        limit=PAGE,
    ):
        yield from rows
        start = rows[-1].pos + 1


def take_step(db: Connection, plan: Plan) -> None:
    """Write what was planned, as far as it is still true."""
    for step in plan.steps:
        was = step.behind
        now = _behind_rows.one(db, "behind", tenant=was.tenant, id=was.session_id)
        if not was.is_still(now):
            continue  # somebody else was here; what is left to do will be found again
        _put(db, was, start=NAME, end=NAME, words=step.name)
        if was.state == "live" or _has_items(db, step):
            _put(db, was, start=was.indexed_length, end=step.upto, words=step.words)
        run(
            db,
            "mark_indexed",
            tenant=was.tenant,
            id=was.session_id,
            length=step.upto,
            rev=was.rev,
        )


def _has_items(db: Connection, step: Step) -> bool:
    """Whether a deleted session still has the items of this step. What retention removes is not indexed."""
    was = step.behind
    found = tables.scalar(
        db, "has_items", tenant=was.tenant, session_id=was.session_id, start=was.indexed_length
    )
    return bool(found)


def _put(db: Connection, of: Behind, *, start: int, end: int, words: frozenset[str]) -> None:
    """Write a chunk; one that begins there already goes."""
    own = {"tenant": of.tenant, "session_id": of.session_id}
    drop_chunk(db, tables.scalar(db, "chunk_at", start=start, **own))
    if words:
        made = tables.scalar(db, "insert_chunk", start=start, end=end, **own)
        tag = _tag(of.tenant)
        run(db, "insert_words", id=made, words=" ".join(tag + word for word in sorted(words)))


_MESSAGES = tables.ordered("messages_in", "tenant", "session_id", "start", "end")
_span_rows = Table(of.Table("span", Span))
_behind_rows = Table(of.Table("behind", Behind))
_weighed_rows = Table(of.Table("weighed", Weighed))

# ── what FTS5 is given ───────────────────────────────────────────────────────────────────────


def _tag(tenant: str) -> str:
    """What a tenant's words begin with. Two tenants that share one share nothing but time."""
    return sha256(tenant.encode()).hexdigest()[:12]


def _match_expression(tenant: Tenant, query: Query) -> str:
    """What FTS5 is asked for. A word has no quotes in it, so inside quotes it is nothing but a word."""
    tag = _tag(tenant)
    return " AND ".join(
        f'"{tag}{word}"{" *" if prefix else ""}' for word, prefix in searching.words_needed(query)
    )
