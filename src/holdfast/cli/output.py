"""The output of commands: text for people, made safe for a terminal, or data for programs, unchanged.

Everything that the command line prints goes through this module, or through a table of `display.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from holdfast.printable import printable, printable_lines


def say(text: str = "", *, mark: str = "", err: bool = False) -> None:
    """Print a line for people, made printable; `mark` is put before it unchanged, so it may be styled."""
    click.echo(f"{mark}{printable(text)}", err=err)


def say_lines(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print several lines for people, or one with tabs."""
    click.echo(printable_lines(text), err=err, nl=nl)


def say_row(cells: Iterable[str]) -> None:
    """Print a line for `cut` and the like: tabs between cells, and none in them."""
    say_lines("\t".join(printable(" ".join(each.split())) for each in cells))


def give(data: str | bytes = "", *, nl: bool = True) -> None:
    """Print data for a program unchanged: JSON, a script, or an agent's answer in a pipe."""
    click.echo(data, nl=nl)


def confirm(question: str) -> None:
    """Ask a person. Raises click.Abort unless the answer is yes."""
    click.confirm(printable(question), abort=True, err=True)


def wait_line(question: str) -> str:
    """Ask a person for a line of text, and return it without the space around it."""
    return str(click.prompt(printable(question), err=True)).strip()


def choose(question: str, options: Sequence[str]) -> int:
    """Ask a person for one of some options, and return its index. The first is the default."""
    for n, each in enumerate(options, 1):
        say(f"{n}. {each}", err=True)
    number = click.IntRange(1, len(options))
    return int(click.prompt(printable(question), type=number, default=1, err=True)) - 1
