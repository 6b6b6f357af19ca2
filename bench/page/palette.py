"""Which colour is whose, on the whole page: ours stands out, floors are grey, peers are told apart."""

from __future__ import annotations

from collections.abc import Iterable

from _figures import BARE, OURS
from _names import BARE_STATEMENTS, BARE_VALUES, DIRECT, DISK

FLOORS = (DIRECT, DISK)
PEERS = 7
"""How many colours there are for peers; after that they begin again."""


class Palette:
    """System → the class of its marks, as the style sheet knows it."""

    def __init__(self, systems: Iterable[str]) -> None:
        self._peers: dict[str, int] = {}
        for name in systems:
            self.of(name)

    def of(self, system: str) -> str:
        if system == OURS:
            return "ours"
        if system in (BARE, BARE_VALUES, BARE_STATEMENTS):
            return "bare"
        if system in FLOORS:
            return "floor"
        number = self._peers.setdefault(system, len(self._peers))
        return f"peer{number % PEERS}"
