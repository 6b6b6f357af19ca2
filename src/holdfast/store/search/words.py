"""Words: what counts as one, and how two are compared. Pure, and the same for every home.

1. A word is a run of letters, digits and the marks that go with them; everything else separates. In scripts
   that are written without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each letter is a word.
2. Words are compared without case, accents and ligatures: Straße is STRASSE, Tromsø is tromso, ﬁn is fin.
   Of a very long word, the beginning counts.

`placed_words` applies Unicode's rules to each run of letters. Most letters fold to the same in any context, and a text
of such letters is folded with one table look-up for each (`FoldedText`): ten to forty times as fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from unicodedata import category, normalize

from holdfast import limits
from holdfast.core.codec import Value

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_LETTER = r"[^\W_]"
_ASCII_RUN = re.compile(r"[a-z0-9]+")
_ACCENTS = dict.fromkeys(range(0x300, 0x370))
"""The marks that Latin, Greek and Cyrillic letters are accented with. In other scripts marks are vowels."""
_NO_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ħ": "h", "ı": "i"}
)
"""Letters that look accented to most people, but have no accent that Unicode could remove."""


class Word(Value):
    """A folded word, and its place in the original text."""

    text: str
    start: int
    end: int


class Needed(Value):
    """A query for the search index: texts that have all of these words."""

    words: tuple[tuple[str, bool], ...]
    """Each word, and whether it is a prefix."""
    anything: str
    """The substitute word of a chunk with too many words; such a chunk may have any word."""


class FoldedText:
    """A text with folded words: lists them, and quickly rejects most words that it does not have."""

    def __init__(self, text: str) -> None:
        self._ascii = text.isascii()
        self._text = text.lower() if self._ascii else _by_table(text)

    def lacks(self, word: str) -> bool:
        """Whether certainly no word here begins with `word`. False proves nothing: the letters may be inside a word."""
        return word not in self._text

    def words(self) -> list[str]:
        """All words, in order."""
        found = _ASCII_RUN.findall(self._text) if self._ascii else self._text.split(" ")
        longest = limits.search_word_chars_max
        return [word[:longest] for word in found if word]


_ASCII_BOUNDARY = re.compile(r"[^a-zA-Z0-9]")


@cache
def _boundary() -> re.Pattern[str]:
    """Where no word continues: at ASCII that is no letter, and between letters that are words of their own."""
    return re.compile(
        rf"[^\w\u0080-\U0010ffff]|_|(?<=[{_UNSPACED}])(?=[{_UNSPACED}])(?![{_marks()}])"
    )


def piece_ends(text: str, *, chars: int) -> Iterator[int]:
    """Where to cut a text without cutting a word: after about `chars` characters each, and at its end."""
    start, boundary = 0, _ASCII_BOUNDARY if text.isascii() else _boundary()
    while len(text) - start > 2 * chars:
        found = boundary.search(text, start + chars)
        if found is None:
            break
        start = found.start()
        yield start
    yield len(text)


def words_in(text: str) -> list[str]:
    """The words of a text, folded, in order."""
    return FoldedText(text).words()


def placed_words(text: str) -> Iterator[Word]:
    """The same words with their places."""
    pattern = _ASCII_RUN if text.isascii() else _run()
    for found in pattern.finditer(text.lower() if text.isascii() else text):
        for word in _words_of(found[0]):
            start, end = found.start(), found.end()
            yield Word(text=word[: limits.search_word_chars_max], start=start, end=end)


def _marks() -> str:
    return "".join(chr(code) for code in range(0x300, 0x3100) if category(chr(code))[0] == "M")


@cache
def _run() -> re.Pattern[str]:
    """Matches a run of letters, digits and marks. Compiled on first use: it takes longer than all other patterns."""
    marks = _marks()
    return re.compile(
        rf"(?={_LETTER})[{_UNSPACED}][{marks}]*|(?:(?![{_UNSPACED}]){_LETTER}|[{marks}])+"
    )


def _words_of(run: str) -> list[str]:
    """The words of a run: one, unless folding splits a letter (½, ㍿)."""
    return _run().findall(_fold(run))


def _fold(run: str) -> str:
    if run.isascii():
        return run.lower()
    # Twice, since lower case can be composed differently from upper case.
    folded = normalize("NFKD", normalize("NFKD", run).casefold()).translate(_ACCENTS)
    return normalize("NFC", folded).translate(_NO_DECOMPOSITION)


# ── letter by letter ─────────────────────────────────────────────────────────────────────────

_DEPENDS = "\uffff"
"""Marks a letter whose folding depends on its neighbours. No character of a text folds to this one."""


_PLANE = 0xFFFF


class _Letters(dict[int, str]):
    """The folded form of each single character, computed when first met; separators become spaces."""

    def __missing__(self, code: int) -> str:
        if code > _PLANE and not _run().match(chr(code)):
            return " "  # not stored: it is quickly computed, and there are a million of them
        self[code] = folded = _folded_alone(chr(code))
        return folded


def _folded_alone(letter: str) -> str:
    if not _run().match(letter):
        return " "
    folded = _fold(letter)
    if not folded and ord(letter) in _ACCENTS:
        return ""
    if any(map(_may_join, (letter, *folded))):
        return _DEPENDS
    words = _words_of(letter)
    if re.match(f"[{_UNSPACED}]", letter):
        return f" {' '.join(words)} "
    if re.search(f"[{_UNSPACED}]", folded):
        return _DEPENDS
    return re.sub(r"[\W_]", " ", folded)


def _may_join(letter: str) -> bool:
    """Whether this can merge with the character before it: marks, and the parts of Korean syllables."""
    return category(letter)[0] == "M" or "\u1100" <= letter <= "\u11ff"


_letters = _Letters()


def _by_table(text: str) -> str:
    folded = text.translate(_letters)
    if _DEPENDS in folded:
        return " ".join(word for run in _run().findall(text) for word in _words_of(run))
    return folded
