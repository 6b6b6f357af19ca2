"""The loop of a chat at a terminal: lines, Ctrl-C, and when it is over. Nobody is at the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.cli.commands import chat as chatting
from holdfast.cli.talk.screens import PlainScreen
from holdfast.cli.talk.terminal_chat import TerminalChat
from holdfast.errors import ServerRefused, ServerUnreachable

CTRL_C = KeyboardInterrupt()
ONCE_MORE = "Ctrl-C once more leaves."


class Typed:
    """Lines that a test has typed: text, Ctrl-C, or None for Ctrl-D."""

    def __init__(self, *typed: str | KeyboardInterrupt | None) -> None:
        self._left: Iterator[str | KeyboardInterrupt | None] = iter(typed)

    def __call__(self, history: Path) -> Self:
        """Stands for the class: whoever makes lines gets these."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> str | None:
        typed = next(self._left)  # a loop that reads on after the end fails here
        if isinstance(typed, KeyboardInterrupt):
            raise typed
        return typed

    @property
    def rest(self) -> list[str | KeyboardInterrupt | None]:
        return list(self._left)


class Server:
    """Shows nothing, and fails as a test wants when something is said."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure

    def session(self, name: str) -> None:
        raise ServerRefused("no", status=403, reason="x")

    def ask(self, model: str, text: str, **_: object) -> None:
        assert self.failure is not None, f"nobody was to say {text!r}"
        raise self.failure


class Noting(PlainScreen):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trouble(self, text: str) -> None:
        self.notes.append(text)


def talk(
    monkeypatch: pytest.MonkeyPatch, typed: Typed, failure: BaseException | None = None
) -> list[str]:
    """What is noted, after the greeting."""
    client: Any = Server(failure)
    screen = Noting()
    monkeypatch.setattr(chatting, "Lines", typed)
    talking = TerminalChat(client, screen, model="demo", name="trip", new_name=lambda: "fresh")
    chatting._talk(talking, "here")
    greeting = ["Holdfast, on here. /help says what there is, Ctrl-D leaves.", "demo, in trip"]
    assert screen.notes[:2] == greeting
    return screen.notes[2:]


def test_two_ctrl_c_in_a_row_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typed(CTRL_C, CTRL_C, "never read")
    assert talk(monkeypatch, typed) == [ONCE_MORE]
    assert typed.rest == ["never read"]


@pytest.mark.parametrize("between", ["", "/nonsense"])
def test_a_line_between_them_begins_anew(monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    typed = Typed(CTRL_C, between, CTRL_C, CTRL_C, "never read")
    assert talk(monkeypatch, typed).count(ONCE_MORE) == 2
    assert typed.rest == ["never read"]


@pytest.mark.parametrize("last", [None, "/quit"])
def test_ctrl_d_and_quit_leave_at_once(monkeypatch: pytest.MonkeyPatch, last: str | None) -> None:
    typed = Typed(last, "never read")
    assert talk(monkeypatch, typed) == []
    assert typed.rest == ["never read"]


def test_a_second_ctrl_c_while_an_answer_comes_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typed("Hello?", "never read")
    assert talk(monkeypatch, typed, KeyboardInterrupt()) == []
    assert typed.rest == ["never read"]


def test_a_server_that_has_gone_is_said_and_the_chat_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = Typed("Hello?", None)
    (trouble,) = talk(monkeypatch, typed, ServerUnreachable("http://a", "gone"))
    assert "http://a" in trouble
