"""What a command prints: words for people, which can do nothing to a terminal, or data for programs, as it is.

Everything that the command line prints goes through here, or through a table of `display.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from holdfast.printable import printable, printable_lines


def say(text: str = "", *, mark: str = "", err: bool = False) -> None:
    """A line for people, whoever its words come from; after a mark of our own, which may be styled."""
    click.echo(f"{mark}{printable(text)}", err=err)


def say_lines(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Several lines for people, or one with tabs in it."""
    click.echo(printable_lines(text), err=err, nl=nl)


def say_row(cells: Iterable[str]) -> None:
    """A line for scripts that cut: tabs between cells, and none in them."""
    say_lines("\t".join(printable(" ".join(each.split())) for each in cells))


def give(data: str | bytes = "", *, nl: bool = True) -> None:
    """Something for a program: JSON, a script, or what an agent has answered into a pipe."""
    click.echo(data, nl=nl)


def confirm(question: str) -> None:
    """Ask a person. Raises click.Abort unless the answer is yes."""
    click.confirm(printable(question), abort=True, err=True)
