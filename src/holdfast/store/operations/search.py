"""Search, and the search index. `store/search/matches.py` defines what a query matches.

1. The index knows which words occur in which chunk of a session, and nothing else: no order, no counts. It names
   chunks that may match; the search reads their items to decide. So an excerpt needs no second copy of the text,
   phrases need no positions, and hidden items need no change to the index.
2. A session is indexed up to `indexed_length`, its name as of `indexed_rev`; a session whose row has gone past that is
   behind. The search always reads the items beyond, and small steps outside the commits bring them into the index.
3. Each word is stored behind a tag of its tenant, so each tenant's words lie together: a search never passes over
   another tenant's words, and takes no longer because of them.
4. A chunk with more words than PostgreSQL's index can hold has one substitute word, which every index query accepts.
5. A fork has chunks of its own items only. A search that finds a chunk of its past finds the fork by `session_past`.
6. Retention removes the words of a deleted session with its items, when no live fork reads them. Its name is removed
   at once.

Each home stores words in its own way: as rows of FTS5 beside the chunks, or as a tsvector in their table.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import item_decoder
from holdfast.errors import StoreDamaged
from holdfast.ids import ItemId, SessionId, Tenant
from holdfast.store.operations import lists
from holdfast.store.operations.lines import annotations_of
from holdfast.store.outcomes import Query, Results, SearchMatch, SessionFilter, SessionInfo
from holdfast.store.pages import LeftPlace, Place, Within, left_in, page_upto
from holdfast.store.rows import ChunkWords, IndexedRow, SessionRow, Words
from holdfast.store.search import matches
from holdfast.store.search.effort import Effort
from holdfast.store.search.folded_lines import (
    AFTER_ALL,
    FORKS,
    FoldedLines,
    folded_among,
    is_aside,
)
from holdfast.store.search.matches import Hit, ItemSpan, NarrowedSearch, ParsedQuery, spans_to_read
from holdfast.store.search.span_reader import SpanItem, SpanReader
from holdfast.store.search.words import Needed, words_in
from holdfast.store.snapshots import notes_of
from holdfast.store.sql.tables import CHUNK_WORDS, CHUNKS, INDEXED
from holdfast.store.steps import (
    AsRead,
    Change,
    Delete,
    Operation,
    Put,
    Question,
    ask,
    change,
    get,
    give_way,
    write,
)

PAGE = 100
"""Rows to read at once where the needed number is not known."""

# ── looking ──────────────────────────────────────────────────────────────────────────────────

HITS = Question("search_hits", ItemSpan)
UNKNOWN = Question("tenants_behind", ItemSpan)


def search(
    tenant: Tenant,
    query: Query,
    *,
    where: SessionFilter,
    before: Place,
    within: Within | None,
    limit: int,
    effort: Effort,
) -> Operation[Results]:
    """One page of matches. The search looks for one match more than `limit`, to know whether there is a next page."""
    effort.begin()
    if not query.phrases:
        return Results(matches=(), cursor=None)
    narrowed = yield from _narrowed(tenant, query)
    ids = None if narrowed is None else (yield from _may_be_found(tenant, narrowed))
    folded = FoldedLines(tenant, None)
    if ids is not None and not where.anonymous:
        try:
            members = yield from folded_among(tenant, ids)
            listed = yield from lists.listed_lines(tenant, {each.family for each in members})
        except StoreDamaged:
            narrowed = ids = None  # look everywhere: a list steps past what is damaged
        else:
            folded = FoldedLines(tenant, members)
            ids |= {each.id for each in listed}
    walk = lists.ListCursor(tenant, where=where, before=before, ids=ids)
    sought = ParsedQuery(query)
    found = yield from _found(walk, sought, narrowed, folded, within, limit=limit, effort=effort)
    return msgspec.structs.replace(found, damaged=tuple(walk.damaged)) if walk.damaged else found


def _found(
    walk: lists.ListCursor,
    sought: ParsedQuery,
    narrowed: NarrowedSearch | None,
    folded: FoldedLines,
    within: Within | None,
    *,
    limit: int,
    effort: Effort,
) -> Operation[Results]:
    found: list[SearchMatch] = []
    while not walk.at_end:
        some = yield from walk.next(lists.NAMED_AT_ONCE)
        lookup = SessionSearch(some, sought, narrowed, folded, within, effort)
        for info in some:
            try:
                match = yield from lookup.match(info)
            except StoreDamaged:
                walk.damaged.append(info.session.id)
                continue
            if match is not None and len(found) == limit:
                return page_upto(found, found[-1].info)
            if match is not None:
                found.append(match)
            if lookup.left is not None or effort.is_spent:
                return page_upto(found, info, lookup.left)
    return Results(matches=tuple(found), cursor=None)


def _narrowed(tenant: Tenant, query: Query) -> Operation[NarrowedSearch | None]:
    """The chunks that the index names; None if they are too many to be of use, or cannot be read."""
    most = limits.search_hits_max
    try:
        hits = yield from ask(HITS, tenant=tenant, words=_needed(tenant, query), limit=most + 1)
        unknown = yield from ask(UNKNOWN, tenant=tenant, limit=most + 1)
    except StoreDamaged:
        return None
    if len(hits) > most or len(unknown) > most:
        return None
    return NarrowedSearch(hits=hits, unknown=unknown)


def _may_be_found(tenant: Tenant, narrowed: NarrowedSearch) -> Operation[set[SessionId] | None]:
    """The sessions that have such chunks, and the forks that read them; None if they are too many to list, or cannot be read."""
    holders = narrowed.holders
    most = limits.search_hits_max
    try:
        forks = yield from ask(FORKS, tenant=tenant, ids=sorted(holders), limit=most + 1)
    except StoreDamaged:
        return None
    ids = {*holders, *(each.id for each in forks)}
    return None if len(ids) > most else ids


class SessionSearch:
    """Searches one session after the other, for one page; with each, the folded lines of the chat that it stands for."""

    def __init__(
        self,
        some: Iterable[SessionInfo],
        sought: ParsedQuery,
        narrowed: NarrowedSearch | None,
        folded: FoldedLines,
        within: Within | None,
        effort: Effort,
    ) -> None:
        """`within`: see `pages.resumed`."""
        self.left: LeftPlace | None = None
        """The place in the last session at which the page ends; None if that session was searched to its beginning."""
        self._sought = sought
        self._narrowed = narrowed
        self._folded = folded
        self._within = within
        self._effort = effort
        self._spans = {each.session.id: self._spans_of(each.session) for each in some}
        self._reader = SpanReader(span for spans in self._spans.values() for span in spans)

    def _spans_of(self, session: SessionRow, left: LeftPlace | None = None) -> tuple[ItemSpan, ...]:
        left = left or left_in(session, self._within)
        return spans_to_read(session, self._narrowed, before=left.before if left else None)

    def match(self, info: SessionInfo) -> Operation[SearchMatch | None]:
        """The match in this session, else in a folded line behind it, or None."""
        session = info.session
        left = left_in(session, self._within)
        if left is None or left.line is None:
            spans = self._spans[session.id]
            found = yield from self._in_line(info, session, spans, self._reader, left)
            if found is not None or self.left is not None:
                return found
            left = None
        return (yield from self._in_folded_lines(info, left))

    def _in_folded_lines(
        self, info: SessionInfo, left: LeftPlace | None
    ) -> Operation[SearchMatch | None]:
        before = f"{left.line}~" if left is not None else AFTER_ALL
        while some := (yield from self._folded.behind(info.session, before=before)):
            for line in some:
                here = left if left is not None and left.line == line.id else None
                spans = self._spans_of(line, here)
                found = yield from self._in_line(info, line, spans, SpanReader(spans), here)
                if found is not None and not (yield from is_aside(line, info.session)):
                    return found
                if self.left is not None:
                    return None
                if self._effort.is_spent:
                    self.left = LeftPlace(before=0, line=line.id)
                    return None
            before = some[-1].id
        return None

    def _in_line(
        self,
        info: SessionInfo,
        session: SessionRow,
        spans: Iterable[ItemSpan],
        reader: SpanReader,
        left: LeftPlace | None,
    ) -> Operation[SearchMatch | None]:
        """The match in these spans of one line, or None; also in its name, unless the search has begun with it before."""
        line = session.id if session.id != info.session.id else None
        if left is None:
            self._effort.spend()  # for its name, so that a page also ends after many sessions without items
            named = self._sought.find(matches.name_of(session))
            if named:
                return SearchMatch(info=info, excerpt=named, line=line)
        hidden: frozenset[ItemId] | None = None
        for span in spans:
            while span.start < span.end:
                tail = yield from reader.end_of(session.tenant, span)
                for message in tail.messages:
                    hit = yield from self._hit(message)
                    if hit is not None:
                        hidden = (yield from _hidden(session)) if hidden is None else hidden
                        if hit.item not in hidden:
                            return hit.match(info, line)
                    if self._ends_at(message.pos, line):
                        return None
                if not tail.messages:
                    self._effort.spend()
                    if self._ends_at(tail.start, line):
                        return None
                span = ItemSpan(session_id=span.session_id, start=span.start, end=tail.start)
        return None

    def _ends_at(self, position: int, line: SessionId | None) -> bool:
        """Whether the page ends here."""
        if self._effort.is_spent:
            self.left = LeftPlace(before=position, line=line)
        return self.left is not None

    def _hit(self, message: SpanItem) -> Operation[Hit | None]:
        self._effort.spend(len(message.body))
        if self._sought.may_be_in(message.body):
            item = item_decoder.lenient(message.body)
            for hit in self._sought.hits([(message.pos, item)]):
                if hit is not None:
                    return hit
                yield from give_way()
                if self._effort.given_up:
                    break
        return None


def _hidden(session: SessionRow) -> Operation[frozenset[ItemId]]:
    if session.meta_rev == 0:
        return frozenset()
    rows = yield from annotations_of(session.tenant, matches.whole_of(session))
    return notes_of(rows).hidden_from_people


# ── indexing ─────────────────────────────────────────────────────────────────────────────────

NAME = -1
"""The position of the chunk that holds the session's name."""


class UnindexedSession(Value):
    """A session that is not indexed up to its end. Its ids are not parsed, so that a damaged one does not delay the
    others."""

    tenant: str
    session_id: str
    state: str
    length: int
    rev: int
    indexed_length: int
    indexed_rev: int
    name: Words

    def is_still(self, now: IndexedRow) -> bool:
        """Whether the session was not indexed further, deleted or cleared since."""
        then = (self.state, self.indexed_length, self.indexed_rev)
        return not now.bytes_gone and then == (now.state, now.indexed_length, now.indexed_rev)


class SizedItem(Value):
    """An item and its size; without a body if the item cannot be searched."""

    pos: int
    size: int
    body: bytes | None


class IndexStep(Value):
    """The words of some items of one session, planned for the index."""

    behind: UnindexedSession
    upto: int
    """The position up to which the session is indexed afterwards."""
    words: str
    """The words of the items from `behind.indexed_length` on."""
    size: int


class IndexPlan(Value):
    steps: tuple[IndexStep, ...]
    more: bool


class IndexPlace(Value):
    """A session by its tenant and id, which are not parsed."""

    tenant: str
    id: str


BEHIND = Question(
    "sessions_behind",
    UnindexedSession,
    by="{indexed session_to_index}",
    which="(tenant, id) > (:after_tenant::text, :after_id::text) order by tenant, id limit :limit",
)
BEHIND_AMONG = Question("sessions_behind", UnindexedSession, by="", which=lists.AMONG)
WEIGHED = Question("items_after", SizedItem)


def plan(*, bytes_max: int) -> Operation[IndexPlan]:
    """The next index steps: about `bytes_max` of items, of sessions that are behind.

    The texts are split into words here, so that `take` only writes them.
    """
    steps: list[IndexStep] = []
    left = bytes_max
    place = IndexPlace(tenant="", id="")
    more = True
    while more and left > 0 and len(steps) < PAGE:
        behind, place, more = yield from _behind(place)
        for each in behind:
            if left <= 0:
                more = True
                break
            try:
                steps.append((yield from _step(each, bytes_max=left)))
            except StoreDamaged:
                continue  # it stays behind, and does not delay the others
            left -= steps[-1].size
            more |= steps[-1].upto < steps[-1].behind.length
    return IndexPlan(steps=tuple(steps), more=more and bool(steps))


def _behind(after: IndexPlace) -> Operation[tuple[tuple[UnindexedSession, ...], IndexPlace, bool]]:
    """Some readable sessions that are behind, by tenant and id; the last place that was read, and whether there are
    more after it."""
    given = {"after_tenant": after.tenant, "after_id": after.id, "limit": PAGE}
    try:
        rows = yield from ask(BEHIND, **given)
    except StoreDamaged:
        pass
    else:
        last = IndexPlace(tenant=rows[-1].tenant, id=rows[-1].session_id) if rows else after
        return rows, last, len(rows) == PAGE
    readable = yield from lists.among_all(BEHIND_AMONG)
    later = [each for each in readable if (each.tenant, each.session_id) > (after.tenant, after.id)]
    some = tuple(sorted(later, key=lambda each: (each.tenant, each.session_id))[:PAGE])
    last = IndexPlace(tenant=some[-1].tenant, id=some[-1].session_id) if some else after
    return some, last, len(some) == PAGE


def _step(behind: UnindexedSession, *, bytes_max: int) -> Operation[IndexStep]:
    """The next index step of a session: at least one item, at most about `bytes_max`."""
    own = {"tenant": behind.tenant, "session_id": behind.session_id}
    words: set[str] = set()
    size, upto, at_end = 0, behind.indexed_length, False
    while not at_end:
        rows = yield from ask(WEIGHED, start=upto, limit=PAGE, **own)
        for row in rows:
            if size and size + row.size > bytes_max:
                return IndexStep(
                    behind=behind, upto=upto, words=_lexemes(behind.tenant, words), size=size
                )
            size, upto = size + row.size, row.pos + 1
            if row.body is not None:
                words.update(words_in(matches.text_seen(item_decoder.lenient(row.body))))
        at_end = len(rows) < PAGE
    return IndexStep(
        behind=behind, upto=behind.length, words=_lexemes(behind.tenant, words), size=size
    )


def take(plan: IndexPlan) -> Operation[None]:
    """Write the planned steps that still apply: if several nodes plan the same step, one of them writes it."""
    for step in plan.steps:
        was = step.behind
        now = yield from get(INDEXED, was.tenant, was.session_id)
        if now is None or not was.is_still(now):
            continue  # what is left to do will be found again
        name = _lexemes(was.tenant, words_in(was.name))
        yield from write(
            _chunk(was, start=NAME, end=NAME, words=name),
            # The items of a deleted session may be gone by now; their words are then removed with the rest of it.
            _chunk(was, start=was.indexed_length, end=step.upto, words=step.words),
            change(INDEXED, now, indexed_length=step.upto, indexed_rev=was.rev),
            as_read=(AsRead(INDEXED, now, INDEXED.names[len(INDEXED.key) :]),),
        )


def _chunk(of: UnindexedSession, *, start: int, end: int, words: str) -> Change:
    """The change that replaces the chunk at `start`; without words, it only removes it."""
    if not words:
        return Delete(CHUNKS, (of.tenant, of.session_id, start))
    row = ChunkWords(
        tenant=of.tenant, session_id=of.session_id, from_pos=start, upto_pos=end, words=words
    )
    return Put(CHUNK_WORDS, (row,))


# ── checking ─────────────────────────────────────────────────────────────────────────────────

WORDS_AT_ONCE = 200


class IndexedUpto(Value):
    """How far a session is indexed, and how long it is."""

    length: int
    rev: int
    indexed_length: int
    indexed_rev: int
    name: Words


INDEXED_UPTO = Question("indexed_upto", IndexedUpto)
CHUNKS_OF = Question("chunks_of", ItemSpan)
CHUNK_WITH = Question("chunk_with", ItemSpan)


def index_flaw(tenant: Tenant, session_id: SessionId) -> Operation[str | None]:
    """What is wrong with a session's part of the index; None if nothing is, or if the session is deleted.

    Extra words in the index do no harm: a search reads the text before it reports a match.
    """
    own = {"tenant": tenant, "session_id": session_id}
    found = yield from ask(INDEXED_UPTO, **own)
    if not found:
        return None
    session = found[0]
    if session.indexed_length > session.length or session.indexed_rev > session.rev:
        return "it is said to be indexed beyond its end"
    chunks = yield from ask(CHUNKS_OF, **own)
    words: dict[ItemSpan, set[str]] = {}
    if (session.indexed_length, session.indexed_rev) == (session.length, session.rev):
        name = ItemSpan(session_id=session_id, start=NAME, end=NAME)
        words[name] = {*words_in(session.name)}
    upto = 0
    for chunk in chunks:
        if chunk.start == NAME:
            continue
        between = yield from _words_between(tenant, session_id, upto, chunk.start)
        if between or not upto <= chunk.start < chunk.end <= session.indexed_length:
            return f"its words from position {upto} on are not in the index"
        words[chunk] = yield from _words_between(tenant, session_id, chunk.start, chunk.end)
        upto = chunk.end
    if (yield from _words_between(tenant, session_id, upto, session.indexed_length)):
        return f"its words from position {upto} on are not in the index"
    for chunk, wanted in words.items():
        if wanted and not (yield from _has_words(tenant, chunk, wanted)):
            place = "of its name" if chunk.start == NAME else f"from position {chunk.start} on"
            return f"words {place} are not in the index"
    return None


def _words_between(
    tenant: Tenant, session_id: SessionId, start: int, end: int
) -> Operation[set[str]]:
    words: set[str] = set()
    while start < end:
        rows = yield from ask(
            WEIGHED, tenant=tenant, session_id=session_id, start=start, limit=PAGE
        )
        for row in rows:
            if row.pos < end and row.body is not None:
                words.update(words_in(matches.text_seen(item_decoder.lenient(row.body))))
        start = rows[-1].pos + 1 if len(rows) == PAGE else end
    return words


def _has_words(tenant: Tenant, chunk: ItemSpan, words: set[str]) -> Operation[bool]:
    lexemes = _lexemes(tenant, words).split(" ")
    for first in range(0, len(lexemes), WORDS_AT_ONCE):
        some = tuple((each, False) for each in lexemes[first : first + WORDS_AT_ONCE])
        found = yield from ask(
            CHUNK_WITH,
            tenant=tenant,
            session_id=chunk.session_id,
            start=chunk.start,
            words=Needed(words=some, anything=_tag(tenant) + ANYTHING),
        )
        if found != (chunk,):
            return False
    return True


# ── words ────────────────────────────────────────────────────────────────────────────────────

ANYTHING = "~"
"""The substitute word of a chunk with too many words. No real word contains it."""

WORDS_BYTES_MAX = 900_000
"""A tsvector holds at most one mebibyte, and adds some bytes to every word."""
WORD_EXTRA_BYTES = 8


def _tag(tenant: str) -> str:
    """The prefix of a tenant's words. If two tenants have the same tag, their searches only take longer."""
    return sha256(tenant.encode()).hexdigest()[:12]


def _lexemes(tenant: str, words: Iterable[str]) -> str:
    """The words of a chunk, as the index stores them."""
    tag = _tag(tenant)
    made = [tag + word for word in sorted(set(words))]
    size = sum(len(each.encode()) + WORD_EXTRA_BYTES for each in made)
    return " ".join(made) if size <= WORDS_BYTES_MAX else tag + ANYTHING


def _needed(tenant: Tenant, query: Query) -> Needed:
    tag = _tag(tenant)
    words = tuple((tag + word, prefix) for word, prefix in matches.words_needed(query))
    return Needed(words=words, anything=tag + ANYTHING)
