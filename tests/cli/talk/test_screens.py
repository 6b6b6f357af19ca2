"""What people and pipes see."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast.cli.talk.screens import ARGUMENTS_CHARS_MAX, PlainScreen, TerminalScreen
from holdfast.client.events import ToolUse
from holdfast.printable import printable_lines

CALL = ToolUse(id="fc_1", name="pay", arguments='{"kr": 5, "to": "Bo"}', agent="clerk")


def terminal() -> tuple[TerminalScreen, io.StringIO]:
    out = io.StringIO()
    return TerminalScreen(Console(file=out, width=60, force_terminal=False)), out


def test_an_answer_is_markdown_and_shown_once() -> None:
    screen, out = terminal()
    for piece in ("# Ti", "tle\n\nWords **and**", " more.\n\n- one\n- two"):
        screen.say(piece)
    screen.settle()
    shown = out.getvalue()
    assert shown.count("Title") == shown.count("Words and more.") == 1
    assert "**" not in shown and "• one" in shown


def test_what_is_said_cannot_drive_the_terminal() -> None:
    """A tool's output, or a title, could otherwise write over what stands above it."""
    shown = printable_lines("a\x1b[2Jb\x07\x9b1mc\r\nd\te")
    assert shown == "a\\x1b[2Jb\\x07\\x9b1mc\nd\te"
    screen, out = terminal()
    screen.say("safe\x1b]0;title\x07")
    screen.tool(ToolUse(id="f", name="x\x1b[2J", arguments='{"a":"\x1b[2J"}'))
    screen.note("\x1b[2J")
    screen.trouble("\x1b[2J")
    screen.table(("a",), [("\x1b[2J",)])
    screen.settle()
    assert "\x1b" not in out.getvalue()


def test_tools_are_told_as_they_happen() -> None:
    screen, out = terminal()
    screen.tool(CALL)
    screen.tool(CALL, "ok")
    screen.tool(CALL, "denied")
    screen.settle()
    assert '⚙ pay kr: 5, to: "Bo"' in out.getvalue()
    assert "denied" in out.getvalue()


def test_long_arguments_are_shown_by_their_ends() -> None:
    screen, out = terminal()
    screen.tool(ToolUse(id="f", name="write", arguments='{"text":"%s"}' % ("x" * 5000)))
    screen.settle()
    assert len(out.getvalue()) < 3 * ARGUMENTS_CHARS_MAX


def test_a_pipe_has_answers_on_stdout_and_nobody_to_ask(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = PlainScreen()
    screen.say("Half ")
    screen.tool(CALL)
    screen.tool(CALL, "ok")
    screen.say("an answer.")
    screen.settle()
    screen.settle()
    assert screen.decide([CALL]) is None
    told = capsys.readouterr()
    assert told.out == "Half \nan answer.\n"
    assert "pay" in told.err
