"""The output of a chat: on a terminal with a person in front of it, or into a pipe."""

from __future__ import annotations

import json
import sys
import termios
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.display import seen
from holdfast.cli.talk.markdown_blocks import split_done
from holdfast.client.events import ToolUse
from holdfast.core.transcript import ends
from holdfast.printable import printable_lines
from holdfast.wire.api import objects as api

ARGUMENTS_CHARS_MAX = 300
"""The shown part of a tool call's arguments; of longer ones both ends are shown."""


class Screen(Protocol):
    """The output of a chat. Answers come in pieces, everything else at once."""

    def wait(self) -> None:
        """Show that the chat waits for an answer."""
        ...

    def say(self, text: str) -> None:
        """Show more of an answer."""
        ...

    def settle(self) -> None:
        """The answer pauses or ends: show its text for good."""
        ...

    def tool(self, call: ToolUse, outcome: str | None = None) -> None:
        """Show that a tool has started; with an outcome, that it has ended."""
        ...

    def note(self, text: str) -> None:
        """Show a remark about the conversation."""
        ...

    def trouble(self, text: str) -> None:
        """Show an error, and the way out."""
        ...

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None: ...

    def decide(self, calls: Sequence[ToolUse]) -> dict[str, api.Decision] | None:
        """Ask the person about waiting calls; None if the person does not decide now."""
        ...


class PlainScreen:
    """For pipes: answers on stdout, everything else on stderr. It cannot ask a person."""

    def __init__(self) -> None:
        self._said = False

    def wait(self) -> None:
        pass

    def say(self, text: str) -> None:
        self._said = True
        output.give(seen(text), nl=False)

    def settle(self) -> None:
        if self._said:
            output.say()
            self._said = False

    def tool(self, call: ToolUse, outcome: str | None = None) -> None:
        if outcome is None:
            self.settle()
        words = f"{call.name} {_short(call.arguments)}" if outcome is None else outcome
        self.note(f"{'uses' if outcome is None else call.name}: {words}")

    def note(self, text: str) -> None:
        output.say_lines(text, err=True)

    def trouble(self, text: str) -> None:
        self.settle()
        self.note(f"holdfast: {text}")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        for row in rows:
            output.say_row(row)

    def decide(self, calls: Sequence[ToolUse]) -> dict[str, api.Decision] | None:
        return None


class TerminalScreen:
    """For people: answers as Markdown while they come, tools and notes between them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._text = ""
        self._live: Live | None = None
        self._hush = _Hush()

    def wait(self) -> None:
        self._show(Spinner("dots", style="dim"))

    def say(self, text: str) -> None:
        self._text += printable_lines(text)
        done, self._text = split_done(self._text)
        self._show(_Shown(self._text, growing=True))
        if done.strip():
            self._console.print(_Shown(done))
            self._console.print()

    def settle(self) -> None:
        if self._live is not None:
            self._live.stop()  # it removes what it has shown
            self._live = None
            self._hush.end()
        if self._text.strip():
            self._console.print(_Shown(self._text))
        self._text = ""

    def tool(self, call: ToolUse, outcome: str | None = None) -> None:
        self.settle()
        if outcome is None:
            shown = Text.assemble(
                ("  ⚙ ", "cyan"),
                (printable_lines(call.name), "bold cyan"),
                " ",
                (_short(call.arguments), "dim"),
            )
            self._console.print(shown)
        elif outcome != "ok":
            self._console.print(Text(f"    {outcome}", style="yellow"))
        self.wait()

    def note(self, text: str) -> None:
        self.settle()
        self._console.print(Text(printable_lines(text), style="dim"))

    def trouble(self, text: str) -> None:
        self.settle()
        self._console.print(Text(printable_lines(text), style="red"))

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        shown = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
        for heading in headings:
            shown.add_column(heading, overflow="fold")
        for row in rows:
            shown.add_row(*(Text(printable_lines(each)) for each in row))
        self._console.print(shown)

    def decide(self, calls: Sequence[ToolUse]) -> dict[str, api.Decision] | None:
        self.settle()
        decided: dict[str, api.Decision] = {}
        for call in calls:
            asked = Text.assemble(
                ("  ? ", "yellow"),
                f"{call.agent or 'The agent'} wants to use ",
                (printable_lines(call.name), "bold"),
            )
            # All arguments: a person must not approve hidden ones.
            self._console.print(asked, Text(printable_lines(call.arguments), style="dim"))
            decision = self._decide()
            if decision is None:
                return None
            decided[call.id] = decision
        return decided

    def _decide(self) -> api.Decision | None:
        while True:
            try:
                typed = self._console.input(
                    "  Allow it? [y]es, [n]o, [a]lways in this conversation: ", markup=False
                )
            except (EOFError, KeyboardInterrupt):
                self._console.print()
                return None
            match typed.strip().lower():
                case "y" | "yes":
                    return api.Decision(approve=True)
                case "n" | "no":
                    return api.Decision(approve=False)
                case "a" | "always":
                    return api.Decision(approve=True, remember="session")

    def _show(self, what: Spinner | _Shown) -> None:
        if self._live is None:
            self._hush.begin()
            self._live = Live(what, console=self._console, transient=True, refresh_per_second=12)
            self._live.start()
        else:
            self._live.update(what)


class _Hush:
    """Switches off the echo of typed keys while an answer is drawn: they would break its lines."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def begin(self) -> None:
        if not sys.stdin.isatty():
            return
        self._before = termios.tcgetattr(sys.stdin)
        quiet = list(self._before)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)

    def end(self) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
            self._before = None


class _Shown:
    """Markdown without blank lines around it; of growing Markdown, the last lines that fit into the window."""

    def __init__(self, text: str, *, growing: bool = False) -> None:
        self._text = text
        self._growing = growing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(Markdown(self._text), options, pad=False)
        while lines and _is_blank(lines[-1]):
            lines.pop()
        start = next((n for n, line in enumerate(lines) if not _is_blank(line)), 0)
        if self._growing:
            start = max(start, len(lines) - max(1, console.height - 2))
        for line in lines[start:]:
            yield from line
            yield Segment.line()


def _is_blank(line: list[Segment]) -> bool:
    return not any(each.text.strip() for each in line)


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _short(arguments: str) -> str:
    """The arguments of a tool call, in one line."""
    try:
        given = json.loads(arguments)
        text = ", ".join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()
        )
    except (ValueError, AttributeError):
        text = arguments
    text = printable_lines(" ".join(text.split()))
    return " ".join(ends(text, ARGUMENTS_CHARS_MAX).split())
