"""What a query matches. Pure, and the same for every home: an index may only narrow down where to look.

People type words (`search/words.py` defines a word); all of them must be in the text, in any order. Words in quotes
must follow each other, and so must words that were typed without a space between: don't, 3.11, 東京. A star at the end
makes the last word a prefix: `osl*`. No other character has a meaning, so no query can be wrong.

Words of other forms (plurals, tenses) are other words, and there is no list of ignored words.
Points and vowel signs of Hebrew and Arabic are letters here: a query without them finds only words without them.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice, takewhile

from msgspec import Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Segment
from holdfast.core.items import AssistantMessage, StoredItem, UserMessage, text_of
from holdfast.ids import ItemId, SessionId
from holdfast.store.decisions import Stretch, stretches
from holdfast.store.outcomes import ExcerptPiece, Phrase, Query, SearchMatch, SessionInfo
from holdfast.store.rows import SessionRow
from holdfast.store.search.words import FoldedText, piece_ends, placed_words, words_in

# ── queries ──────────────────────────────────────────────────────────────────────────────────

_TYPED = re.compile(r'["“”„«»]([^"“”„«»]*)(?:["“”„«»]|$)(\*?)|([^\s"“”„«»]+)')


def parse_query(typed: str) -> Query:
    """The query in a typed text. Every text is a query; a text without a word finds nothing."""
    phrases: dict[Phrase, None] = {}
    for quoted, starred, bare in _TYPED.findall(typed):
        words = tuple(words_in(quoted or bare))
        if words:
            prefix = bool(starred) or bare.endswith("*")
            phrases[Phrase(words=words, prefix=prefix)] = None
    return Query(phrases=tuple(phrases))


def words_needed(query: Query) -> tuple[tuple[str, bool], ...]:
    """Each word that a text must have, and whether it is a prefix: the query for an index.

    The index may name too many texts: it need not know which word follows which.
    """
    needed = {
        (word, phrase.prefix and n == len(phrase.words))
        for phrase in query.phrases
        for n, word in enumerate(phrase.words, start=1)
    }
    return tuple(sorted(needed))


# ── finding ──────────────────────────────────────────────────────────────────────────────────


def name_of(session: SessionRow) -> str:
    """The name of a session in lists."""
    return session.title or session.opening


def text_seen(item: StoredItem) -> str:
    """The searchable text of this item, as people read it; empty if the item is no message of the user or the agent.

    The session's notes tell whether the item is hidden.
    """
    if isinstance(item, UserMessage | AssistantMessage) and not item.path:
        return text_of(item.content)[: limits.search_text_chars_max]
    return ""


class ParsedQuery:
    """A query, prepared for many texts. Most texts do not match, and checking them must cost nearly nothing."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self._words = tuple(word for word, _ in words_needed(query))
        self._beyond_ascii = not all(map(str.isascii, self._words))
        self._bytes = tuple(word.encode() for word in self._words)
        self._longest = max((len(each.words) for each in query.phrases), default=0)

    def may_be_in(self, body: bytes) -> bool:
        """Whether an item with these bytes is worth decoding.

        In JSON that is pure ASCII and escapes no letter, every word stands as it is, but for its case, and no word
        has other letters. Any other JSON must be decoded to know.
        """
        if not body.isascii() or b"\\u" in body:
            return True
        lowered = body.lower()
        return not self._beyond_ascii and all(word in lowered for word in self._bytes)

    def find(self, text: str) -> tuple[ExcerptPiece, ...]:
        """An excerpt of the text around the first hit; empty if the text does not match."""
        looking = self._look(text)
        while True:
            try:
                next(looking)
            except StopIteration as found:
                excerpt: tuple[ExcerptPiece, ...] = found.value
                return excerpt

    def hits(self, items: Iterable[tuple[int, StoredItem]]) -> Iterator[Hit | None]:
        """The items, given with their positions, that match, hidden ones included.

        It yields None after each piece of a long text, so that the caller can give way, or give up.
        """
        for position, item in items:
            if isinstance(item, UserMessage | AssistantMessage):
                excerpt = yield from self._look(text_seen(item))
                if excerpt:
                    yield Hit(position=position, item=item.id, excerpt=excerpt)

    def _look(self, text: str) -> Generator[None, None, tuple[ExcerptPiece, ...]]:
        """Search a text piece by piece. The cost grows with the text's length, and not with the phrase's."""
        pieces: list[_Piece] = []
        start, missing = 0, self._words
        for end in piece_ends(text, chars=PIECE_CHARS):
            folded = FoldedText(text[start:end])
            missing = tuple(filter(folded.lacks, missing))
            pieces.append(_Piece(folded=folded, start=start, end=end))
            start = end
            if len(pieces) > 1:
                yield
        if missing or not self._words:
            return ()
        first: tuple[int, int] | None = None
        sought = self.query.phrases
        before: tuple[str, ...] = ()
        begun = 0  # where the text of these words begins; a phrase may begin with any of them
        for piece in pieces:
            here = piece.folded.words()
            words = (*before, *here)
            joined = _joined(words)
            found = tuple(each for each in sought if _needle(each) in joined)
            if found and first is None:
                first = begun, piece.end
            sought = tuple(each for each in sought if each not in found)
            if not sought:
                assert first is not None
                return _excerpt(text, self.query, *first)
            if len(here) >= self._longest:
                begun = piece.start
            before = words[-self._longest :]
            if len(pieces) > 1:
                yield
        return ()


PIECE_CHARS = 8 * 1024
"""How much of a text is searched at once: about a millisecond's work."""


class _Piece(Struct, frozen=True):
    """A part of a text that cuts no word."""

    folded: FoldedText
    start: int
    end: int


class Hit(Value):
    """A message that matches the query."""

    position: int
    item: ItemId
    excerpt: tuple[ExcerptPiece, ...]

    def match(self, info: SessionInfo, line: SessionId | None) -> SearchMatch:
        """The hit as the match of its session; in another line of its chat, if one is given."""
        return SearchMatch(
            info=info, excerpt=self.excerpt, item=self.item, position=self.position, line=line
        )


def _joined(words: Iterable[str]) -> str:
    """Words joined by spaces, which no word contains: so Python's fast substring search finds phrases."""
    return f" {' '.join(words)} "


def _needle(phrase: Phrase) -> str:
    joined = _joined(phrase.words)
    return joined[:-1] if phrase.prefix else joined


def _places(phrase: Phrase, joined: str) -> Iterator[int]:
    """The number of each word that the phrase begins with."""
    needle, at, nth = _needle(phrase), 0, 0
    while (found := joined.find(needle, at)) >= 0:
        nth += joined.count(" ", at, found)
        yield nth
        at, nth = found + 1, nth + 1


# ── narrowing down ───────────────────────────────────────────────────────────────────────────


class ItemSpan(Value):
    """Some positions of the items that lie in one session: from `start` to before `end`."""

    session_id: SessionId
    start: int
    end: int


class NarrowedSearch:
    """The answer of an index to a query: the spans that have the words, and the spans that are not indexed yet."""

    def __init__(self, *, hits: Iterable[ItemSpan] = (), unknown: Iterable[ItemSpan] = ()) -> None:
        """`unknown` are the spans that are not indexed yet: each lasts to the end of its session."""
        self._spans: dict[SessionId, list[ItemSpan]] = {}
        for each in (*hits, *unknown):
            self._spans.setdefault(each.session_id, []).append(each)

    @property
    def holders(self) -> frozenset[SessionId]:
        """The sessions that have such spans. Only these sessions and their forks can match."""
        return frozenset(self._spans)

    def within(self, session_id: SessionId) -> Sequence[ItemSpan]:
        """The spans that lie in one session."""
        return self._spans.get(session_id, ())


def whole_of(session: SessionRow) -> tuple[Stretch, ...]:
    """The whole history of a session, as the stretches to read from each session that holds a part of it."""
    own = Segment(
        session_id=session.id,
        upto_pos=session.length,
        upto_version=session.head,
        upto_rev=session.meta_rev,
    )
    return stretches((*session.lineage, own))


def spans_to_read(
    session: SessionRow, narrowed: NarrowedSearch | None, *, before: int | None = None
) -> tuple[ItemSpan, ...]:
    """The spans to search in this session and its past, the latest first; all of them if there is no index answer.

    `before` is the position that an earlier page has reached.
    """
    found: list[ItemSpan] = []
    for stretch in whole_of(session):
        whole = ItemSpan(
            session_id=stretch.session_id, start=stretch.from_pos, end=stretch.upto_pos
        )
        wanted = (whole,) if narrowed is None else narrowed.within(whole.session_id)
        for each in wanted:
            start, end = max(each.start, whole.start), min(each.end, whole.end)
            end = end if before is None else min(end, before)
            if start < end:
                found.append(ItemSpan(session_id=whole.session_id, start=start, end=end))
    return tuple(sorted(set(found), key=lambda each: each.end, reverse=True))


# ── excerpts ─────────────────────────────────────────────────────────────────────────────────

BEFORE_CHARS, EXCERPT_CHARS = 40, 160
"""How many characters an excerpt shows before the first hit, and in all."""


def _excerpt(text: str, query: Query, begun: int, ended: int) -> tuple[ExcerptPiece, ...]:
    """The excerpt of a text whose first hit is between these places."""
    near = next(piece_ends(text[ended:], chars=2 * EXCERPT_CHARS))
    words = tuple(placed_words(text[begun : ended + near]))
    joined = _joined(word.text for word in words)

    def hits_of(phrase: Phrase) -> Iterator[tuple[int, int]]:
        for at in _places(phrase, joined):
            yield begun + words[at].start, begun + words[at + len(phrase.words) - 1].end

    start, end = _window(
        text, *min(each for of in query.phrases for each in islice(hits_of(of), 1))
    )
    hits = sorted(
        hit
        for phrase in query.phrases
        for hit in takewhile(lambda each: each[0] < end, hits_of(phrase))
    )
    pieces: list[ExcerptPiece] = []
    at = start
    for first, last in _merged(hits):
        first, last = max(first, at), min(last, end)
        if first < last:
            pieces += (
                ExcerptPiece(text=text[at:first]),
                ExcerptPiece(text=text[first:last], hit=True),
            )
            at = last
    pieces.append(ExcerptPiece(text=text[at:end]))
    if start > 0:
        pieces[0] = ExcerptPiece(text=f"…{pieces[0].text}")
    if end < len(text):
        pieces.append(ExcerptPiece(text="…"))
    return tuple(piece for piece in pieces if piece.text)


def _window(text: str, first: int, last: int) -> tuple[int, int]:
    """Where the excerpt begins and ends: at white space if there is some near by."""
    start = max(0, first - BEFORE_CHARS)
    if start > 0:
        space = next((at for at in range(start, first) if text[at].isspace()), None)
        start = start if space is None else space + 1
    end = min(len(text), max(last, start + EXCERPT_CHARS))
    if end < len(text):
        back = max(last, end - BEFORE_CHARS)
        end = next((at for at in range(end, back, -1) if text[at].isspace()), end)
    return start, min(end, start + 2 * EXCERPT_CHARS)


def _merged(hits: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Hits that touch or overlap are one."""
    current: tuple[int, int] | None = None
    for first, last in hits:
        if current is not None and first <= current[1]:
            current = current[0], max(current[1], last)
            continue
        if current is not None:
            yield current
        current = first, last
    if current is not None:
        yield current
