"""What a word is, without a store."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.store.search import words as module
from holdfast.store.search.words import FoldedText, placed_words, words_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n…!?", []),
        ("To Oslo, on Friday.", ["to", "oslo", "on", "friday"]),
        ("snake_case and kebab-case", ["snake", "case", "and", "kebab", "case"]),
        ("don't", ["don", "t"]),
        ("Python 3.11", ["python", "3", "11"]),
        ("Zürich ZÜRICH Zu\u0308rich", ["zurich"] * 3),
        ("Straße STRASSE", ["strasse"] * 2),
        ("Tromsø Łódź Ærø", ["tromso", "lodz", "aero"]),
        ("ﬁn ＦＵＬＬ", ["fin", "full"]),
        ("½", ["1", "2"]),
        ("Ёлка ёлка елка", ["елка"] * 3),
        ("ΌΣΟΣ όσος", ["οσοσ"] * 2),
        ("İstanbul ISTANBUL", ["istanbul"] * 2),
        ("東京へ行く", ["東", "京", "へ", "行", "く"]),
        ("ガ か", ["ガ", "か"]),
        ("한국어 한국", ["한국어", "한국"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("a🎉b", ["a", "b"]),
        ("x" * 200, ["x" * limits.search_word_chars_max]),
        ("é" * 200, ["e" * limits.search_word_chars_max]),
        ("a\x00b \ud800", ["a", "b"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert list(words_in(text)) == words


@given(st.text(max_size=60))
@example("ŉ ǰ ΐ ﬃ Å ㍿ ⑽ ʼn")
@example("\u0345\u0399 ͺ ᾳ")
def test_folding_again_changes_nothing(text: str) -> None:
    """So a query that was copied from what a home keeps finds the same."""
    once = list(words_in(text))
    assert list(words_in(" ".join(once))) == once


@given(st.text(max_size=60))
def test_words_with_places_are_the_same_words(text: str) -> None:
    placed = list(placed_words(text))
    assert [word.text for word in placed] == list(words_in(text))
    assert all(0 <= word.start < word.end <= len(text) for word in placed)
    assert [word.start for word in placed] == sorted(word.start for word in placed)


@given(st.text(max_size=60))
def test_no_word_has_anything_in_it_that_a_database_could_take_for_more(text: str) -> None:
    for word in words_in(text):
        assert word and not set(word) & set(" \"'*():^+-{}\\\x00&|!<>%_")


DEPENDING = "\u0301\u0308\u0345\u05b4\u0652\u093c\u094d\u0e31\u1100\u1161\u11a8\u3099ㅏㅎﾀﾞゞ"
"""Marks and parts of letters, which join what stands before them, and some that only look so."""


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(DEPENDING + "aÜß½東が한ﬁ℃ ")), max_size=12)
)
@example("Ü½b東\u0308c")
@example("ﾀﾞ タ\u3099 ㅎㅏ 학")
def test_folding_letter_by_letter_is_folding_run_by_run(text: str) -> None:
    """Text that is not ASCII is folded by a table of letters, as long as that comes to the same."""
    assert words_in(f"{text}é") == [word.text for word in placed_words(f"{text}é")]


@given(st.text(max_size=60))
def test_no_word_is_said_to_be_lacking_that_is_there(text: str) -> None:
    folded = FoldedText(text)
    assert not any(map(folded.lacks, folded.words()))


def test_what_a_letter_folds_to_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in scripts that few people use: a text of a million such letters took seconds of a processor."""
    asked: list[str] = []
    plain = module._folded_alone

    def folded_alone(letter: str) -> str:
        asked.append(letter)
        return plain(letter)

    monkeypatch.setattr(module, "_letters", module._Letters())
    monkeypatch.setattr(module, "_folded_alone", folded_alone)
    gothic, hidden, smile = "\U00010330\U00010331", "\U000e0041", "\U0001f600"
    assert words_in(f"{gothic} " * 100 + (hidden + smile) * 100) == [gothic] * 100
    assert asked == [*gothic, " "]
