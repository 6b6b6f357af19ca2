"""A history as plain text: who said what, in order, and nothing too long."""

from __future__ import annotations

import pytest

from holdfast.core.items import (
    Audio,
    File,
    ForeignContent,
    ForeignItem,
    HandOff,
    Image,
    Item,
    Link,
    Part,
    Refusal,
    SystemMessage,
    Text,
    UserMessage,
)
from holdfast.core.transcript import ENTRY_CHARS_MAX, ends, entry_of, portions, transcript
from holdfast.ids import MessageId, NoteId
from tests.core.builders import call, mint, note, result, said, summary, thought, user

HERE = Link(url="https://example.org/x")


def test_a_transcript_says_who_said_what() -> None:
    used = call("look", arguments='{"where": "Oslo"}')
    items: list[Item] = [
        SystemMessage(id=mint(MessageId), content=(Text(text="Be brief"),)),
        summary("They met."),
        user("Hi"),
        thought("Hmm"),
        said("Hello"),
        used,
        result(used, "Cold"),
        HandOff(id=mint(NoteId), from_agent="clerk", to_agent="pilot"),
        note(),
        ForeignItem(id=mint(NoteId), original=ForeignContent(kind="seen", json="{}")),
        ForeignItem(
            id=mint(NoteId),
            original=ForeignContent(kind="search", json="{}", text="Searched: Oslo"),
        ),
    ]
    assert list(transcript(items)) == [
        "Instructions: Be brief",
        "Summary of everything before: They met.",
        "User: Hi",
        "Assistant: Hello",
        'Assistant used look with {"where": "Oslo"}',
        "Result (ok): Cold",
        "clerk handed the conversation over to pilot.",
        "The assistant was interrupted: cancelled",
        "Searched: Oslo",
    ]


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (Refusal(text="No."), "No."),
        (Image(source=HERE), "[a picture]"),
        (Audio(source=HERE), "[a recording]"),
        (Audio(source=HERE, transcript="Hello"), "[a recording: Hello]"),
        (File(source=HERE), "[a file]"),
        (File(source=HERE, name="a.pdf"), "[the file a.pdf]"),
    ],
)
def test_what_is_not_text_is_named(part: Part, shown: str) -> None:
    message = UserMessage(id=mint(MessageId), content=(Text(text="See"), part))
    assert entry_of(message) == f"User: See {shown}"


def test_a_long_entry_is_shown_by_its_ends() -> None:
    (entry,) = transcript([user("a" * 20_000)])
    assert len(entry) < ENTRY_CHARS_MAX + 100
    assert ends("abcdef", 4) == "ab\n[… 2 characters left out …]\nef"
    assert ends("abc", 0) == "\n[… 3 characters left out …]\n"


def test_portions_hold_what_fits_and_lose_nothing() -> None:
    entries = [str(n) * 10 for n in range(10)]
    parts = list(portions(entries, bytes_max=40))
    assert all(len(each) <= 40 for each in parts)
    assert "\n\n".join(parts).split("\n\n") == entries
    assert list(portions(["x" * 99], bytes_max=10)) == ["x" * 99]
    assert list(portions([], bytes_max=10)) == []
