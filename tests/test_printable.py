"""What reaches a terminal or a log shows itself, and does nothing else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x1b[31mred\x9b0m\x7f\x00", "\\x1b[31mred\\x9b0m\\x7f\\x00"),
        ("one\u2028two\u2029three\x85four", "one\\u2028two\\u2029three\\x85four"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("\u2066hidden\u2069", "\\u2066hidden\\u2069"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_does_something_is_written_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "naïve café ß", "Ελληνικά", "русский", "עברית\u200f!", "العربية", "हिन्दी क्\u200dष", "ไทย", "日本語", "한국어",
        "فارسی می\u200cخواهم", "👩\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "👍🏽", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "e\u0301", "C:\\new\\table",
    ],
)  # fmt: skip
def test_letters_of_every_script_and_emoji_stay_themselves(text: str) -> None:
    assert printable(text) == printable_lines(text) == text


@given(st.text())
def test_whatever_is_said_is_one_line_that_can_be_written(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(each) in ("Cc", "Zl", "Zp", "Cs") for each in shown)
    assert not any(unicodedata.bidirectional(each) in OVERRIDES for each in shown)
    assert printable(shown) == shown


OVERRIDES = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text())
def test_a_block_keeps_its_lines_and_nothing_else(text: str) -> None:
    shown = printable_lines(text)
    assert shown.count("\n") == text.count("\n")
    assert printable(shown.replace("\n", "").replace("\t", "")) == shown.replace("\n", "").replace("\t", "")  # fmt: skip
