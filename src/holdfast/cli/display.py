"""Tables, progress bars and text of commands: for people at a terminal, and as plain lines in a pipe.

A command's result goes to stdout; progress and remarks go to stderr.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.cli.output import say, say_lines, say_row
from holdfast.printable import printable, printable_lines


class ProgressBar(Protocol):
    """Moves a bar on: `done` of `of`; None if the total is not known."""

    def __call__(self, what: str, done: int, of: int | None) -> None: ...


@contextmanager
def bar() -> Iterator[ProgressBar]:
    """A progress bar on stderr, which is removed at the end; nothing if stderr is not a terminal."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("", total=None)

        def tell(what: str, done: int, of: int | None) -> None:
            progress.update(task, description=what, completed=done, total=of)

        yield tell


def is_watched() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; cells that do not fit are wrapped, never cut. Ids stay whole, so that people can copy them:
    where there is no room for a table with them, each row is a few lines."""
    cells = [tuple(map(printable_lines, row)) for row in rows]
    ids = {n for n in range(len(headings)) if any(_ID.fullmatch(row[n]) for row in cells)}
    console = Console(markup=False, highlight=False, emoji=False)
    room = console.width - sum(len(each[n]) + 2 for each in cells[:1] for n in ids)
    if ids and room < LEGIBLE * (len(headings) - len(ids)):
        for row in cells:
            say(row[0])
            for heading, cell in zip(headings[1:], row[1:], strict=True):
                if cell:
                    say_lines(f"  {heading}: {cell}")
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for n, heading in enumerate(headings):
        shown.add_column(heading, overflow="fold", no_wrap=n in ids)
    for row in cells:
        shown.add_row(*row)
    console.print(shown)


LEGIBLE = 12
"""How many characters a column of a table needs on average, to be read."""

_ID = re.compile(r"[a-z]+_[0-9a-hjkmnp-tv-z]{26}")


def rows(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """A table for people; in a pipe a line for each row, with tabs between the cells and no headings."""
    if is_watched():
        table(headings, lines)
        return
    for line in lines:
        say_row(line)


def seen(text: str) -> str:
    """A model's text: unchanged in a pipe, made printable for a terminal."""
    return printable_lines(text) if is_watched() else text


def prose(lines: Iterable[str]) -> None:
    """Lines on stdout; at a terminal wrapped between words, with bold headings."""
    width = shutil.get_terminal_size().columns
    for line in lines:
        if not is_watched():
            say(line)
        elif line.startswith(HEADINGS):
            click.secho(printable(line), bold=True)
        else:
            say_lines(_wrapped(printable(line), width))


HEADINGS = ("──", "══")


def _wrapped(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        max(width - 1, 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def dropped(session_id: str, permissions: Iterable[str]) -> str:
    """An import's remark about permissions and pending approvals in the file: they are not taken over."""
    names = ", ".join(permissions)
    return f"{session_id}: {names} has no effect; permissions come from agent files and from answers given here"


def taken(fresh: int, same: int, skipped: int) -> str:
    """How many sessions of an import are new, were there already, and were left out."""
    more = {"there already": same, "skipped": skipped}
    told = [f"{number:,} {what}" for what, number in more.items() if number]
    return ", ".join([f"{counted(fresh, 'session')} imported", *told])


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 session, 1,204 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Bytes for people: 4.0 KiB."""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.1f} {unit}" if unit != "B" else f"{count} B"
        number /= 1024
    return f"{number:.1f} TiB"
