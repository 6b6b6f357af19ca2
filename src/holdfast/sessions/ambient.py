"""Clock and chance, as arguments. A simulation holds them still; a server takes the machine's."""

from __future__ import annotations

import secrets
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
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self.now_ms = now_ms
        self._random_bits = random_bits
        self.mint = Minter(now_ms=now_ms, random_bits=random_bits)

    def nonce(self) -> str:
        """A word that nobody has used before."""
        return f"{self._random_bits(64):016x}"
