"""What a search means. Pure, and the same for every home: an index may only narrow down where to look.

1. A word is a run of letters, digits and the marks that go with them; everything else separates. In scripts
   that are written without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each letter is a word.
2. Words are compared without case, accents and ligatures: Straße is STRASSE, Tromsø is tromso, ﬁn is fin.
   Of a very long word, the beginning counts.
3. People type words; all of them have to be in the text, in any order. Words in quotes follow each other, and
   so do those that were typed without a space between: don't, 3.11, 東京. A star at the end makes the last
   word a beginning: `osl*`. Nothing else means anything, so nothing can be wrong.

Words of other forms (plurals, tenses) are other words, and there is no list of words that do not count.
Points and vowel signs of Hebrew and Arabic are letters here: who types none finds only words without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import category, normalize

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.conversation import Segment
from holdfast.core.items import AssistantMessage, StoredItem, UserMessage, text_of
from holdfast.ids import ItemId, SessionId
from holdfast.store.base import Phrase, Piece, Query
from holdfast.store.decisions import Stretch, stretches
from holdfast.store.rows import SessionRow

# ── words ────────────────────────────────────────────────────────────────────────────────────

_MARKS = "".join(chr(code) for code in range(0x300, 0x3100) if category(chr(code))[0] == "M")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_LETTER = r"[^\W_]"
_RUN = re.compile(
    rf"(?={_LETTER})[{_UNSPACED}][{_MARKS}]*|(?:(?![{_UNSPACED}]){_LETTER}|[{_MARKS}])+"
)
_ASCII_RUN = re.compile(r"[a-z0-9]+")
_ACCENTS = dict.fromkeys(range(0x300, 0x370))
"""The marks that Latin, Greek and Cyrillic letters are accented with. In other scripts marks are vowels."""
_NO_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ħ": "h", "ı": "i"}
)
"""Letters that look accented to most people and have no accent to take away."""


class Word(Value):
    """A folded word, and where it stands in the text as it was written."""

    text: str
    start: int
    end: int


def words_in(text: str) -> Iterator[str]:
    """The words of a text, folded, in order."""
    if text.isascii():
        for found in _ASCII_RUN.finditer(text.lower()):
            yield found[0][: limits.search_word_chars_max]
    else:
        for found in _RUN.finditer(text):
            yield from _folded(found[0])


def placed_words(text: str) -> Iterator[Word]:
    """The same words with their places."""
    pattern = _ASCII_RUN if text.isascii() else _RUN
    for found in pattern.finditer(text.lower() if text.isascii() else text):
        for word in _folded(found[0]):
            yield Word(text=word, start=found.start(), end=found.end())


def _folded(run: str) -> Iterator[str]:
    """A run as words: one, unless folding takes a letter apart (½, ㍿)."""
    if run.isascii():
        yield run.lower()[: limits.search_word_chars_max]
        return
    # Twice, since lower case can be composed differently from upper case.
    folded = normalize("NFKD", normalize("NFKD", run).casefold()).translate(_ACCENTS)
    for found in _RUN.finditer(normalize("NFC", folded).translate(_NO_DECOMPOSITION)):
        yield found[0][: limits.search_word_chars_max]


# ── queries ──────────────────────────────────────────────────────────────────────────────────

_TYPED = re.compile(r'["“”„«»]([^"“”„«»]*)(?:["“”„«»]|$)(\*?)|([^\s"“”„«»]+)')


def parse_query(typed: str) -> Query:
    """What somebody typed, as a value. Every text has a meaning; one without a word finds nothing."""
    phrases: dict[Phrase, None] = {}
    for quoted, starred, bare in _TYPED.findall(typed):
        words = tuple(words_in(quoted or bare))
        if words:
            prefix = bool(starred) or bare.endswith("*")
            phrases[Phrase(words=words, prefix=prefix)] = None
    return Query(phrases=tuple(phrases))


def words_needed(query: Query) -> tuple[tuple[str, bool], ...]:
    """Each word that a text must have, and whether a beginning will do: what an index can be asked.

    It can name more texts than there are: it need not know which word follows which.
    """
    needed = {
        (word, phrase.prefix and n == len(phrase.words))
        for phrase in query.phrases
        for n, word in enumerate(phrase.words, start=1)
    }
    return tuple(sorted(needed))


# ── finding ──────────────────────────────────────────────────────────────────────────────────


def name_of(session: SessionRow) -> str:
    """What lists call a session."""
    return session.title or session.opening


def text_seen(item: StoredItem) -> str:
    """What people read in this item, as far as it can be searched; empty for what is not a message of theirs.

    Whether somebody has hidden it is for its session's notes to say.
    """
    if isinstance(item, UserMessage | AssistantMessage) and not item.path:
        return text_of(item.content)
    return ""


def find(query: Query, text: str) -> tuple[Piece, ...]:
    """An excerpt of the text around what was looked for; empty if it is not there."""
    words = tuple(words_in(text))
    vocabulary = frozenset(words)
    if any(not prefix and word not in vocabulary for word, prefix in words_needed(query)):
        return ()  # nearly always, and for nearly nothing
    if not query.phrases or not all(_is_in(each, words) for each in query.phrases):
        return ()
    return _excerpt(text, query)


def find_latest(
    query: Query, items: Iterable[tuple[int, StoredItem]], *, hidden: frozenset[ItemId]
) -> tuple[int, ItemId, tuple[Piece, ...]] | None:
    """The first of these items, given from the last to the first, that people see and that has it all."""
    for position, item in items:
        if not isinstance(item, UserMessage | AssistantMessage) or item.id in hidden:
            continue
        excerpt = find(query, text_seen(item))
        if excerpt:
            return position, item.id, excerpt
    return None


def _is_in(phrase: Phrase, words: Sequence[str]) -> bool:
    return next(_places(phrase, words), None) is not None


def _places(phrase: Phrase, words: Sequence[str]) -> Iterator[int]:
    """The number of each word that the phrase begins with."""
    *before, wanted = phrase.words
    for at in range(len(words) - len(before)):
        last = words[at + len(before)]
        if last == wanted or (phrase.prefix and last.startswith(wanted)):
            if list(words[at : at + len(before)]) == before:
                yield at


# ── narrowing down ───────────────────────────────────────────────────────────────────────────


class Span(Value):
    """Some positions of the items that lie in one session: from `start` to before `end`."""

    session_id: SessionId
    start: int
    end: int


class Narrowed(Value):
    """What an index says about a query: which spans have the words, and what it does not know yet."""

    hits: tuple[Span, ...] = ()
    unknown: tuple[Span, ...] = ()
    """What was committed since. `end` is the session's length."""

    @property
    def holders(self) -> frozenset[SessionId]:
        """The sessions that have such spans. They, and the forks of them, may be found; no others."""
        return frozenset(each.session_id for each in (*self.hits, *self.unknown))


def whole_of(session: SessionRow) -> tuple[Stretch, ...]:
    """A session and its past, as the ranges to read from each session that holds some of it."""
    own = Segment(
        session_id=session.id,
        upto_pos=session.length,
        upto_version=session.head,
        upto_rev=session.meta_rev,
    )
    return stretches((*session.lineage, own))


def spans_to_read(session: SessionRow, narrowed: Narrowed | None) -> tuple[Span, ...]:
    """Where to look in this session and its past, the latest span first; everywhere if nothing is known."""
    found: list[Span] = []
    for stretch in whole_of(session):
        whole = Span(session_id=stretch.session_id, start=stretch.from_pos, end=stretch.upto_pos)
        wanted = (whole,) if narrowed is None else (*narrowed.hits, *narrowed.unknown)
        for each in wanted:
            start, end = max(each.start, whole.start), min(each.end, whole.end)
            if each.session_id == whole.session_id and start < end:
                found.append(Span(session_id=whole.session_id, start=start, end=end))
    return tuple(sorted(set(found), key=lambda each: each.end, reverse=True))


# ── excerpts ─────────────────────────────────────────────────────────────────────────────────

BEFORE_CHARS, EXCERPT_CHARS = 40, 160
"""How much is shown before the first hit, and in all."""


def _excerpt(text: str, query: Query) -> tuple[Piece, ...]:
    words = tuple(placed_words(text))
    folded = tuple(word.text for word in words)
    hits = sorted(
        (words[at].start, words[at + len(phrase.words) - 1].end)
        for phrase in query.phrases
        for at in _places(phrase, folded)
    )
    start, end = _window(text, *hits[0])
    pieces: list[Piece] = []
    at = start
    for first, last in _merged(hits):
        first, last = max(first, at), min(last, end)
        if first < last:
            pieces += (Piece(text=text[at:first]), Piece(text=text[first:last], hit=True))
            at = last
    pieces.append(Piece(text=text[at:end]))
    if start > 0:
        pieces[0] = Piece(text=f"…{pieces[0].text}")
    if end < len(text):
        pieces.append(Piece(text="…"))
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
