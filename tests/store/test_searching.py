"""What a word is, what a query means, and how an excerpt looks: all without a store."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.conversation import Segment
from holdfast.ids import SessionId, Tenant, Version
from holdfast.store.base import Phrase, Piece, Query
from holdfast.store.rows import SessionRow
from holdfast.store.searching import (
    EXCERPT_CHARS,
    Narrowed,
    Span,
    find,
    parse_query,
    placed_words,
    spans_to_read,
    words_in,
    words_needed,
)


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


# ── queries ──────────────────────────────────────────────────────────────────────────────────


def phrases(*words: str, prefix: bool = False) -> Phrase:
    return Phrase(words=words, prefix=prefix)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", []),
        ("?! -", []),
        ("Oslo", [phrases("oslo")]),
        ("to  Oslo", [phrases("to"), phrases("oslo")]),
        ("oslo OSLO", [phrases("oslo")]),
        ('"on Friday" oslo', [phrases("on", "friday"), phrases("oslo")]),
        ("“on Friday”", [phrases("on", "friday")]),
        ('"on Friday', [phrases("on", "friday")]),
        ('"" " "', []),
        ("osl*", [phrases("osl", prefix=True)]),
        ('"to osl"*', [phrases("to", "osl", prefix=True)]),
        ("*", []),
        ("don't", [phrases("don", "t")]),
        ("a-b*", [phrases("a", "b", prefix=True)]),
        ("a*b", [phrases("a", "b")]),
        ("東京", [phrases("東", "京")]),
        ("NOT a OR (b AND c)", [phrases(x) for x in ("not", "a", "or", "b", "and", "c")]),
        (
            "title:x NEAR(y, 2) ^z",
            [phrases("title", "x"), phrases("near", "y"), phrases("2"), phrases("z")],
        ),
        ('a"b"c', [phrases("a"), phrases("b"), phrases("c")]),
    ],
)
def test_queries(typed: str, expected: list[Phrase]) -> None:
    assert parse_query(typed) == Query(phrases=tuple(expected))


@given(st.text(max_size=80))
def test_every_text_is_a_query(typed: str) -> None:
    query = parse_query(typed)
    assert {word for word, _ in words_needed(query)} <= set(words_in(typed))


def test_an_index_is_asked_for_words_and_only_the_last_may_be_a_beginning() -> None:
    query = parse_query('"to osl"* osl to')
    assert words_needed(query) == (("osl", False), ("osl", True), ("to", False))


# ── finding ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "text", "found"),
    [
        ("oslo", "To Oslo!", True),
        ("oslo bergen", "To Oslo!", False),
        ("friday oslo", "To Oslo, on Friday", True),
        ('"on friday"', "To Oslo, on Friday", True),
        ('"friday on"', "To Oslo, on Friday", False),
        ("on-friday", "to oslo on friday", True),
        ("osl", "To Oslo!", False),
        ("osl*", "To Oslo!", True),
        ('"to osl"*', "From Oslo to Oslo", True),
        ("slo*", "To Oslo!", False),
        ("東京", "私は東京へ行く", True),
        ("京東", "私は東京へ行く", False),
        ("zurich", "nach Zürich", True),
        ("Zürich", "to zurich", True),
        ("", "To Oslo", False),
        ("oslo", "", False),
    ],
)
def test_finding(typed: str, text: str, found: bool) -> None:
    assert bool(find(parse_query(typed), text)) is found


def test_an_excerpt_marks_every_hit_and_changes_no_letter() -> None:
    assert find(parse_query('oslo "on friday"'), "To OSLO, on Friday. Oslo!") == (
        Piece(text="To "),
        Piece(text="OSLO", hit=True),
        Piece(text=", "),
        Piece(text="on Friday", hit=True),
        Piece(text=". "),
        Piece(text="Oslo", hit=True),
        Piece(text="!"),
    )


def test_an_excerpt_of_a_long_text_is_short_and_says_so() -> None:
    text = f"{'before ' * 100}Oslo{' after' * 100}"
    pieces = find(parse_query("oslo"), text)
    shown = "".join(piece.text for piece in pieces)
    assert shown.startswith("…before ") and shown.endswith(" after…")
    assert len(shown) <= EXCERPT_CHARS + 2
    assert [piece.text for piece in pieces if piece.hit] == ["Oslo"]


@given(
    st.text(alphabet="aAäb *\"'\n東\u0308", max_size=400), st.text(alphabet='aäb *"東', max_size=8)
)
def test_excerpts_are_made_of_the_text(text: str, typed: str) -> None:
    pieces = find(parse_query(typed), text)
    shown = "".join(piece.text for piece in pieces)
    if pieces:
        assert any(piece.hit for piece in pieces)
        assert all(piece.text for piece in pieces)
        assert shown.removeprefix("…").removesuffix("…") in text
        assert len(shown) <= 2 * EXCERPT_CHARS + 2


def test_a_hit_that_is_longer_than_an_excerpt_is_cut() -> None:
    [hit, rest] = find(parse_query("x" * 1000), "x" * 100_000)
    assert hit.hit and len(hit.text) == 2 * EXCERPT_CHARS
    assert rest == Piece(text="…")


# ── where to look ────────────────────────────────────────────────────────────────────────────

PARENT, CHILD = SessionId("conv_" + "0" * 26), SessionId("conv_" + "1" * 26)


def test_a_fork_is_looked_through_as_far_as_it_reads() -> None:
    past = Segment(session_id=PARENT, upto_pos=4, upto_version=Version(2), upto_rev=0)
    fork = SessionRow(tenant=Tenant("acme"), id=CHILD, head=Version(3), length=6, lineage=(past,))

    def span(of: SessionId, start: int, end: int) -> Span:
        return Span(session_id=of, start=start, end=end)

    assert spans_to_read(fork, None) == (span(CHILD, 4, 6), span(PARENT, 0, 4))
    assert spans_to_read(fork, Narrowed()) == ()
    narrowed = Narrowed(
        hits=(span(PARENT, 2, 9), span(PARENT, 4, 6), span(PARENT, -1, -1)),
        unknown=(span(CHILD, 5, 6),),
    )
    assert spans_to_read(fork, narrowed) == (span(CHILD, 5, 6), span(PARENT, 2, 4))
    assert narrowed.holders == {PARENT, CHILD}
