"""Which of many things a program of the tests is asked for, by words of their names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def choose(things: Sequence[T], arguments: Sequence[str], *, program: str, about: str) -> list[T]:
    """The things with these words in their names; all of them without words.

    `--help` and `--list` end the program with 0, words that are in no name with 2.
    """
    parser = argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="words of a name")
    parser.add_argument("--list", action="store_true", help="print the names, and do nothing else")
    asked = parser.parse_args(arguments)
    wanted = " ".join(asked.words)
    chosen = [each for each in things if wanted.lower() in each.name.lower()]
    if not chosen:
        parser.error(f"none of the {len(things)} names has {wanted!r} in it; --list prints them")
    if asked.list:
        sys.stdout.write("".join(f"{each.name}\n" for each in chosen))
        parser.exit()
    return chosen
