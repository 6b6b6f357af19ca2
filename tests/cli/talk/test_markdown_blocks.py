"""What of a growing Markdown text can be shown for good."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.talk.markdown_blocks import split_done


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("", ""),
        ("A para", ""),
        ("A para\n\n", ""),
        ("A para\n\nB", "A para\n\n"),
        ("- a\n\n  more of a\n", ""),
        ("- a\n\n  more\n\nB", "- a\n\n  more\n\n"),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nB", "```\na\n\nb\n```\n\n"),
        ("~~~\n```\n\nb\n", ""),
        ("````\n```\n\nb\n", ""),
        ("a\nb\nc", ""),
    ],
)
def test_blocks_are_done_when_nothing_can_change_them(text: str, done: str) -> None:
    assert split_done(text) == (done, text[len(done) :])


@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```", "- ", "  ", "~~~", "# "]), max_size=40))
def test_what_was_done_stays_done_however_the_text_grows(pieces: list[str]) -> None:
    """Shown for good: text that comes later must not take it back."""
    text, shown, rest = "", "", ""
    for piece in pieces:
        text += piece
        done, rest = split_done(rest + piece)
        shown += done
        assert shown + rest == text
