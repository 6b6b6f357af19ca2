"""A row of the tables of model families, and how a model's name leads to its row.

Vendors change what a model takes from one family to the next, and refuse a request that says the wrong thing. So each
fact is a column, and a row says on which page a column was read, and when. A column without a page is `unverified`; it
holds the careful choice, which costs something on a model that takes more, and is refused by none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from holdfast.core.codec import Value


class VendorPage(Value):
    """A page, and the day on which its stored copy was read."""

    url: str
    read: str


def read_page(url: str) -> VendorPage:
    """A page that was read on the day of the last look at all of them."""
    return VendorPage(url=url, read="2026-11-18")


class Family(Value, kw_only=True):
    """What every table knows of a family."""

    names: tuple[str, ...]
    """The beginnings of the names of its models, in lower case."""
    window: int
    """How many tokens a prompt may have."""
    output_max: int
    """The most tokens of an answer that a request may ask for."""
    sources: tuple[tuple[VendorPage, str], ...] = ()
    """Pages, and the columns that were read there."""

    @property
    def unverified(self) -> frozenset[str]:
        """Columns for which no page was found."""
        return columns_of(self).difference(*(columns.split() for _, columns in self.sources))


F = TypeVar("F", bound=Family)


def nearest(name: str, order: Sequence[str], known: Sequence[str], *, unknown: int = -1) -> str:
    """Of the known names the nearest that is not above this one, or else the first. A name that is not in this order
    counts as the one at the place `unknown` of it."""
    at = order.index(name) if name in order else range(len(order))[unknown]
    below = [each for each in order[: at + 1] if each in known]
    return below[-1] if below else known[0]


_ABOUT = frozenset({"names", "sources"})


def columns_of(row: Family) -> frozenset[str]:
    """The columns of a row that state facts."""
    return frozenset(row.__struct_fields__) - _ABOUT


_NEXT_VERSION = re.compile(r"[.-]?\d{1,2}(?![\da-z])")
"""What follows the name of a family in the name of a later one: `-5` after `claude-opus-4`, `.1` after `gpt-5`."""


def find_family(rows: Sequence[F], model: str) -> F | None:
    """The row of a model: of all whose name begins the model's, the one with the longest name. None if none does.

    A name does not begin that of another version: `claude-opus-4` is not the family of `claude-opus-4-9`.
    """
    best: tuple[int, F | None] = (0, None)
    for row in rows:
        for name in row.names:
            if (
                len(name) > best[0]
                and model.startswith(name)
                and not _NEXT_VERSION.match(model, len(name))
            ):
                best = (len(name), row)
    return best[1]
