"""Pages are read in one pass, whatever is on them, and ordinary ones as a browser's parser would."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.web.page_text import PageParser, page_text, read_page


class Parsed(HTMLParser):
    """Tells a reader what the parser of the standard library finds."""

    def __init__(self, reader: PageParser) -> None:
        super().__init__(convert_charrefs=True)
        self._reader = reader

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._reader.start(tag, dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self._reader.end(tag)

    def handle_data(self, data: str) -> None:
        self._reader.data(data)


WORDS = st.text(alphabet="ab <>&'\"=/é\n-;#1", max_size=12)
TEXTS = WORDS.map(escape) | st.sampled_from(
    ["a < b", "&nbsp;", "&#65;&#x42;", "AT&T", "3 <4", "&lt"]
)
ATTRIBUTES = st.builds(
    lambda name, value, form: f" {name}{form.format(value)}",
    st.sampled_from(["href", "HREF", "class", "data-x"]),
    WORDS.map(escape),
    st.sampled_from(['="{}"', "='{}'", ' = "{}"', "=x", ""]),
)
ASIDES = st.sampled_from(
    [
        "<!-- a > b -- c -->",
        "<!doctype html>",
        "<?php x ?>",
        "<br>",
        "<br/>",
        "<svg />",
        "<script>if (a < b) { '</p>' }</script>",
        "<STYLE>p > a {}</STYLE >",
    ]
)
NAMES = st.sampled_from("p a A div h1 li ul pre td tr table b span head svg noscript".split())


def tagged(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.builds(
        lambda name, attributes, content, end: (
            f"<{name}{''.join(attributes)}>{content}" + end.format(name)
        ),
        NAMES,
        st.lists(ATTRIBUTES, max_size=3),
        inner,
        st.sampled_from(["</{}>", "</{} >", ""]),
    )
    return st.lists(element | inner, max_size=4).map("".join)


@given(st.recursive(TEXTS | ASIDES, tagged, max_leaves=12), st.booleans())
def test_ordinary_pages_are_read_as_by_the_standard_library(html: str, marks: bool) -> None:
    ours, theirs = PageParser(marks=marks), PageParser(marks=marks)
    read_page(html, ours)
    parser = Parsed(theirs)
    parser.feed(html)
    parser.close()
    assert ours.text() == theirs.text()


@given(st.text(alphabet="<>/!?-a='\"& \n#;svg", max_size=60), st.booleans())
def test_any_page_can_be_read(html: str, marks: bool) -> None:
    page_text(html, marks=marks)


HOSTILE = [
    "<a",
    "<a b='",
    '<a b="',
    "<a b=",
    "<a\n",
    "<!--",
    "<!-",
    "<![CDATA[",
    "</",
    "</a",
    "<?",
    "<script>",
    "<script></scrip",
    "&#",
    "&#9",
    "&a",
    " =",
    "\n",
]


@pytest.mark.parametrize("again", HOSTILE)
@pytest.mark.parametrize("first", ["", "<a ", "<svg>", "<script>", "&#", "<pre>"])
def test_no_page_takes_more_than_one_pass(again: str, first: str) -> None:
    """With the square of its length in steps, none of these would be read within a day."""
    page_text(first + again * (300_000 // len(again)), marks=True)


def test_what_is_hidden_is_closed_in_one_pass() -> None:
    shut = page_text(
        "<svg>" * 60_000 + "</head>" * 60_000 + "x" + "</svg>" * 60_000 + "y", marks=True
    )
    assert shut == "y"


def test_a_tag_that_is_not_closed_ends_the_page() -> None:
    assert page_text("<p>hello</p><a href='x>there</a>", marks=True) == "hello"
    assert page_text("<p>hello</p><!-- there", marks=True) == "hello"


def test_a_number_that_no_character_has_is_one_wrong_character() -> None:
    assert page_text(f"a&#{'9' * 100_000};b", marks=True) == "a\N{REPLACEMENT CHARACTER}b"
