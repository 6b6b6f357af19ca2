"""Clock and chance, as arguments. A simulation holds them still; a server takes the machine's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from holdfast.ids import Minter


class Ambient:
    """What the outside world lends to a node: the time of day, and randomness.

    Waiting goes by the event loop's own clock, which a simulation provides as well.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random_bits: Callable[[int], int] | None = None,
    ) -> None:
        self.now_ms = now_ms
        self._random_bits = random_bits or machine_bits
        self.mint = Minter(now_ms=now_ms, random_bits=self._random_bits)

    def nonce(self) -> str:
        """A word that nobody has used before."""
        return f"{self._random_bits(64):016x}"


_BITS, _AT_ONCE = 80, 32
"""As many bits as an id takes, and for how many ids they are fetched: asking the machine costs more than minting."""

_fetched: list[int] = []
os.register_at_fork(after_in_child=_fetched.clear)  # or a child would mint its parent's ids


def machine_bits(bits: int) -> int:
    """So many random bits, 80 at most, which nobody can foresee and nobody else gets. From any thread."""
    assert 0 < bits <= _BITS
    while True:
        try:
            return _fetched.pop() >> (_BITS - bits)
        except IndexError:
            size = _BITS // 8
            random = os.urandom(size * _AT_ONCE)
            _fetched.extend(
                [int.from_bytes(random[at : at + size]) for at in range(0, len(random), size)]
            )
