"""Bringing a search index forward: what to read, and which words it comes to. Pure, for every home.

A session is indexed up to `indexed_length`, its name as of `indexed_rev`; one whose row has gone past that is behind.
A step brings some sessions forward, about so many bytes of their items. It is planned from what was read, and
written only where that is still so: of several who plan the same step, one writes it.
"""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.core.items import item_decoder
from holdfast.store.rows import Words
from holdfast.store.searching import text_seen
from holdfast.store.words import words_in

NAME = -1
"""Where the name of a session is among its chunks."""


class Behind(Value):
    """A session that is not indexed up to its end. Names are not parsed: one that is damaged stops nobody."""

    tenant: str
    session_id: str
    state: str
    length: int
    rev: int
    indexed_length: int
    indexed_rev: int
    name: Words

    def is_still(self, now: Behind | None) -> bool:
        """Whether nobody has brought it forward, or deleted it, since."""
        return now is not None and self._place == now._place

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.state, self.indexed_length, self.indexed_rev


class Weighed(Value):
    """An item, and its size; no body if it is not one that can be searched."""

    pos: int
    size: int
    body: bytes | None


class Step(Value):
    """A session brought forward, from what it was when this was planned."""

    behind: Behind
    upto: int
    """Where its items are indexed to, afterwards."""
    words: frozenset[str]
    """Of the items from `behind.indexed_length` on."""
    name: frozenset[str]
    size: int


class Plan(Value):
    steps: tuple[Step, ...]
    more: bool


class StepInTheMaking:
    """Takes a session's own items from where it is indexed to, at least one, until they are enough."""

    def __init__(self, behind: Behind, *, bytes_max: int) -> None:
        self._behind = behind
        self._bytes_max = bytes_max
        self._words: set[str] = set()
        self._size = 0
        self._upto = behind.indexed_length

    def take(self, row: Weighed) -> bool:
        """Take one more item in; False, and it is left for later, if there is no room for it."""
        if self._size and self._size + row.size > self._bytes_max:
            return False
        self._size, self._upto = self._size + row.size, row.pos + 1
        if row.body is not None:
            item = item_decoder.lenient(row.body)
            self._words.update(words_in(text_seen(item)))
        return True

    def step(self, *, at_end: bool) -> Step:
        """What it came to; `at_end` if there were no more items."""
        return Step(
            behind=self._behind,
            upto=self._behind.length if at_end else self._upto,
            words=frozenset(self._words),
            name=frozenset(words_in(self._behind.name)),
            size=self._size,
        )


def plan_of(steps: list[Step], *, found: int) -> Plan:
    """The plan that these steps are, for the first of `found` sessions that are behind."""
    cut = any(step.upto < step.behind.length for step in steps)
    return Plan(steps=tuple(steps), more=cut or len(steps) < found)
