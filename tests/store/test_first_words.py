"""The first words of a session, for lists."""

from __future__ import annotations

import pytest

from holdfast.core.items import Image, Item, Link, Text, UserMessage
from holdfast.ids import MessageId
from holdfast.store.first_words import TITLE_CHARS, opening_of
from tests.core.builders import call, inside, mint, said, user

LONG = "word " * 40


def picture() -> UserMessage:
    content = (Image(source=Link(url="https://example.org/cat.png")),)
    return UserMessage(id=mint(MessageId), content=content)


def told(*texts: str) -> UserMessage:
    return UserMessage(id=mint(MessageId), content=tuple(Text(text=each) for each in texts))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], ""),
        ([said("Hi")], ""),
        ([user("  When is\n the\ttrain?  ")], "When is the train?"),
        ([said("Hi"), user("Hello"), user("Again")], "Hello"),
        ([picture()], ""),
        ([picture(), user("   "), user("What is this?")], "What is this?"),
        ([user("A sub-agent's task", path=inside(call())), user("Hello")], "Hello"),
        ([user("x" * TITLE_CHARS)], "x" * TITLE_CHARS),
        ([told("<note>\nToday is Monday.\n</note>\n", "Hello")], "Hello"),
        ([told("<note>One</note>", "<b>Hello</b> you")], "<b>Hello</b> you"),
        ([told("<note>One</note>")], "<note>One</note>"),
    ],
)
def test_the_opening_is_the_first_thing_that_was_said(items: list[Item], expected: str) -> None:
    assert opening_of(items) == expected


@pytest.mark.parametrize("text", [LONG, "x" * 500, "x" * 55 + " " + "y" * 55, "x " + "y" * 500])
def test_a_long_one_is_cut_where_a_word_ends_if_there_is_one(text: str) -> None:
    opening = opening_of([user(text)])
    assert len(opening) <= TITLE_CHARS and opening.endswith("…")
    assert text.startswith(opening[:-1])
    if text == LONG:
        assert opening[:-1].split() == ["word"] * (len(opening) // 5)
