"""What a query means, and how an excerpt looks: all without a store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.history.conversation import Segment
from holdfast.core.items import UserMessage, plain_text
from holdfast.ids import MessageId, SessionId, Tenant, Version
from holdfast.store.outcomes import ExcerptPiece, Phrase, Query
from holdfast.store.rows import SessionRow
from holdfast.store.search import matches
from holdfast.store.search.matches import (
    EXCERPT_CHARS,
    ItemSpan,
    NarrowedSearch,
    ParsedQuery,
    parse_query,
    spans_to_read,
    words_needed,
)
from holdfast.store.search.words import words_in

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
    assert bool(ParsedQuery(parse_query(typed)).find(text)) is found


def test_an_excerpt_marks_every_hit_and_changes_no_letter() -> None:
    assert ParsedQuery(parse_query('oslo "on friday"')).find("To OSLO, on Friday. Oslo!") == (
        ExcerptPiece(text="To "),
        ExcerptPiece(text="OSLO", hit=True),
        ExcerptPiece(text=", "),
        ExcerptPiece(text="on Friday", hit=True),
        ExcerptPiece(text=". "),
        ExcerptPiece(text="Oslo", hit=True),
        ExcerptPiece(text="!"),
    )


def test_an_excerpt_of_a_long_text_is_short_and_says_so() -> None:
    text = f"{'before ' * 100}Oslo{' after' * 100}"
    pieces = ParsedQuery(parse_query("oslo")).find(text)
    shown = "".join(piece.text for piece in pieces)
    assert shown.startswith("…before ") and shown.endswith(" after…")
    assert len(shown) <= EXCERPT_CHARS + 2
    assert [piece.text for piece in pieces if piece.hit] == ["Oslo"]


@given(
    st.text(alphabet="aAäb *\"'\n東\u0308", max_size=400), st.text(alphabet='aäb *"東', max_size=8)
)
def test_excerpts_are_made_of_the_text(text: str, typed: str) -> None:
    pieces = ParsedQuery(parse_query(typed)).find(text)
    shown = "".join(piece.text for piece in pieces)
    if pieces:
        assert any(piece.hit for piece in pieces)
        assert all(piece.text for piece in pieces)
        assert shown.removeprefix("…").removesuffix("…") in text
        assert len(shown) <= 2 * EXCERPT_CHARS + 2


def test_a_hit_that_is_longer_than_an_excerpt_is_cut() -> None:
    [hit, rest] = ParsedQuery(parse_query("x" * 1000)).find("x" * 100_000)
    assert hit.hit and len(hit.text) == 2 * EXCERPT_CHARS
    assert rest == ExcerptPiece(text="…")


ENCODERS = (encode, lambda item: json.dumps(json.loads(encode(item))).encode())
"""Ours, and one that escapes every letter which is not ASCII, as a file that was imported may have it."""


@given(
    st.text(
        st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('aAbß ü\n\\"u00')),
        max_size=30,
    ),
    st.text(alphabet='aAbußü *"', max_size=8),
    st.sampled_from(ENCODERS),
)
@example("Zürich", "zurich", ENCODERS[1])
@example("\x00 Oslo", "oslo", ENCODERS[0])
@example("a\\u0041", "u0041", ENCODERS[0])
def test_an_item_that_has_it_is_worth_decoding(
    text: str, typed: str, encoder: Callable[[UserMessage], bytes]
) -> None:
    said = UserMessage(id=MessageId("msg_" + "0" * 26), content=plain_text(text))
    for each in (typed, text):
        sought = ParsedQuery(parse_query(each))
        assert sought.may_be_in(encoder(said)) or not sought.find(text)


def test_an_item_without_its_words_is_not_worth_decoding() -> None:
    said = encode(UserMessage(id=MessageId("msg_" + "0" * 26), content=plain_text("To Oslo")))
    assert ParsedQuery(parse_query("OSLO to")).may_be_in(said)
    assert not ParsedQuery(parse_query("oslo bergen")).may_be_in(said)
    assert not ParsedQuery(parse_query("東京")).may_be_in(said)


# ── where to look ────────────────────────────────────────────────────────────────────────────

PARENT, CHILD = SessionId("conv_" + "0" * 26), SessionId("conv_" + "1" * 26)


def test_a_fork_is_looked_through_as_far_as_it_reads() -> None:
    past = Segment(session_id=PARENT, upto_pos=4, upto_version=Version(2), upto_rev=0)
    fork = SessionRow(tenant=Tenant("acme"), id=CHILD, head=Version(3), length=6, lineage=(past,))

    def span(of: SessionId, start: int, end: int) -> ItemSpan:
        return ItemSpan(session_id=of, start=start, end=end)

    assert spans_to_read(fork, None) == (span(CHILD, 4, 6), span(PARENT, 0, 4))
    assert spans_to_read(fork, NarrowedSearch()) == ()
    narrowed = NarrowedSearch(
        hits=(span(PARENT, 2, 9), span(PARENT, 4, 6), span(PARENT, -1, -1)),
        unknown=(span(CHILD, 5, 6),),
    )
    assert spans_to_read(fork, narrowed) == (span(CHILD, 5, 6), span(PARENT, 2, 4))
    assert narrowed.holders == {PARENT, CHILD}


# ── what it costs ────────────────────────────────────────────────────────────────────────────


def cost(text: str, typed: str) -> float:
    """The least time of a few that this takes a processor."""
    sought = ParsedQuery(parse_query(typed))

    def once() -> float:
        began = time.thread_time()
        sought.find(text)
        return time.thread_time() - began

    return min(once() for _ in range(3))


@pytest.mark.parametrize("last", ["", " b"])
def test_a_long_phrase_costs_no_more_than_a_short_one(last: str) -> None:
    """A phrase of 190 words over a message of 4 MB took a processor 18 seconds."""
    text = "b " + "a " * 150_000
    assert cost(text, f'"{"a " * 189}{last}"') < 5 * cost(text, '"a a b a"')


@given(
    words=st.lists(st.sampled_from(["a", "b", "ab", "é", "東", "ש\u05b8"]), max_size=60),
    phrase=st.lists(
        st.sampled_from(["a", "b", "ab", "e", "東", "ש\u05b8"]), min_size=1, max_size=5
    ),
    starred=st.booleans(),
)
def test_a_long_text_is_searched_like_a_short_one(
    words: list[str], phrase: list[str], starred: bool
) -> None:
    """Long texts are cut into pieces, and a phrase may lie across a cut."""
    text, sought = (
        " ".join(words),
        ParsedQuery(parse_query(f'"{" ".join(phrase)}"{"*" if starred else ""}')),
    )
    whole = sought.find(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matches, "PIECE_CHARS", 4)
        in_pieces = sought.find(text)
    assert in_pieces == whole


def test_of_a_very_long_message_the_beginning_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends between messages, so that each of them has to be over soon."""
    monkeypatch.setattr(limits, "search_text_chars_max", 50)
    said = UserMessage(
        id=MessageId("msg_" + "0" * 26), content=plain_text("To Oslo " + "x" * 50 + " Bergen")
    )
    found = [list(ParsedQuery(parse_query(each)).hits([(0, said)])) for each in ("oslo", "bergen")]
    assert [len(each) for each in found] == [1, 0]
