"""What is typed in a chat, as values."""

from __future__ import annotations

import pytest

from holdfast.cli.talk.input_commands import (
    HELP,
    ChatCommand,
    EmptyInput,
    InvalidInput,
    MessageInput,
    Typed,
    completions,
    is_unfinished,
    joined,
    parse,
)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("", EmptyInput()),
        ("  \t", EmptyInput()),
        ("Hello", MessageInput(text="Hello")),
        ("  two\nlines ", MessageInput(text="two\nlines")),
        ("//etc", MessageInput(text="/etc")),
        ("/quit", ChatCommand(name="quit")),
        ("/open  trip to", ChatCommand(name="open", rest="trip to")),
        ("/fork 3", ChatCommand(name="fork", rest="3")),
        ("/rewind", ChatCommand(name="rewind")),
    ],
)
def test_a_line_is_something_to_say_or_a_command(text: str, typed: Typed) -> None:
    assert parse(text) == typed


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("/rewnd", "did you mean /rewind?"),
        ("/xyzzy", "/help has them all"),
        ("/fork three", "/show has them"),
        ("/rewind ²", "/show has them"),
        ("/open", "/sessions has some"),
    ],
)
def test_a_command_that_cannot_be_meant_has_a_way_out(text: str, way_out: str) -> None:
    typed = parse(text)
    assert isinstance(typed, InvalidInput)
    assert way_out in typed.why


def test_a_line_goes_on_after_a_backslash_and_between_quotes() -> None:
    assert is_unfinished(["a\\"])
    assert not is_unfinished(["a\\", "b"])
    assert joined(["a\\", "b"]) == "a\nb"
    assert is_unfinished(['"""'])
    assert is_unfinished(['"""', "a", ""])
    assert not is_unfinished(['"""', "a", '"""'])
    assert joined(['"""', "a", "", "b", '"""']) == "a\n\nb"
    assert joined(['"""', "a"]) == "a", "as when the terminal is closed"


def test_commands_are_completed() -> None:
    assert list(completions("/re")) == ["/rewind", "/retry"]
    assert len(list(completions("/"))) == len(HELP)
