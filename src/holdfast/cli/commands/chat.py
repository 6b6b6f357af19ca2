"""`holdfast chat`: talk to an agent, in a terminal or through a pipe."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from holdfast.cli.options import ConversationPlace, where_options
from holdfast.cli.server_choice import reach
from holdfast.cli.standard_streams import input_lines
from holdfast.cli.talk.input_commands import (
    ChatCommand,
    EmptyInput,
    InvalidInput,
    MessageInput,
    parse,
)
from holdfast.cli.talk.input_lines import Lines
from holdfast.cli.talk.screens import PlainScreen, Screen, TerminalScreen, is_terminal
from holdfast.cli.talk.terminal_chat import ChatExit, TerminalChat
from holdfast.errors import ServerRefused, ServerUnreachable


@click.command(short_help="Talk to an agent.")
@click.argument("agent", required=False)
@click.option(
    "--session", "name", metavar="KEY|ID", help="Which conversation; a new one by default."
)
@where_options
def chat(agent: str | None, name: str | None, at: ConversationPlace) -> None:
    """Talk to AGENT: a source as `serve` takes it, or with --server the name of one of its agents.

    Without one it is the demo agent, which needs no key and no network.
    Ctrl-C stops an answer and keeps what was said; /help says what else there is.

    \b
    Examples:
      holdfast chat                                   the demo agent
      holdfast chat butler.yaml --session kitchen     your own, in a conversation with a name
      holdfast chat butler --server http://127.0.0.1:8484
      echo "What time is it?" | holdfast chat
    """
    screen: Screen = TerminalScreen() if is_terminal() else PlainScreen()
    with reach(agent, at) as reached:
        talking = TerminalChat(
            reached.client,
            screen,
            model=reached.model,
            name=name or new_name("chat"),
            new_name=lambda: new_name("chat"),
        )
        try:
            if is_terminal():
                _talk(talking, reached.where)
            else:
                _take(talking, input_lines())
        finally:
            screen.settle()
        if talking.has_spoken:
            screen.note(f"This conversation goes on with --session {talking.name}")


def new_name(kind: str) -> str:
    """A session key for a conversation without `--session`."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{kind}-{today}-{secrets.token_hex(3)}"


def _talk(chat: TerminalChat, where: str) -> None:
    """Read and handle lines from a person at a terminal, until the person leaves."""
    chat.screen.note(f"Holdfast, on {where}. /help says what there is, Ctrl-D leaves.")
    chat.greet()
    leaving = False
    with Lines(_history()) as lines:
        while True:
            try:
                typed = lines.read()
            except KeyboardInterrupt:
                if leaving:
                    return
                leaving = True
                chat.screen.note("Ctrl-C once more leaves.")
                continue
            leaving = False
            if typed is None or not _handle_patiently(chat, typed):
                return


def _handle_patiently(chat: TerminalChat, typed: str) -> bool:
    """Handle a line; if the server is gone, show that and go on, so that the person can try again. False to leave."""
    try:
        return _handle(chat, typed)
    except ServerUnreachable as error:
        chat.screen.trouble(str(error))
        return True
    except KeyboardInterrupt:  # the second one, while an answer came
        return False


def _take(chat: TerminalChat, lines: Iterator[str]) -> None:
    """Handle the lines of a pipe: each is a message or a command."""
    for line in lines:
        if not _handle(chat, line.removesuffix("\n")):
            return


def _handle(chat: TerminalChat, typed: str) -> bool:
    """Handle a line: a message or a command. False to leave."""
    try:
        match parse(typed):
            case MessageInput(text=text):
                chat.say(text)
            case ChatCommand() as command:
                chat.do(command)
            case InvalidInput(why=why):
                chat.screen.trouble(why)
            case EmptyInput():
                pass
    except ChatExit:
        return False
    except ServerRefused as refused:  # a command failed; the conversation goes on
        chat.screen.trouble(str(refused))
    return True


def _history() -> Path:
    """The file with the typed lines, in the user's XDG state folder."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "holdfast" / "history"
