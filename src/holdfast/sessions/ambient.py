"""Clock and randomness, as arguments. A simulation provides its own; a server takes the machine's.

Times that nodes compare with each other, such as deadlines, are the store's. A node cannot ask the store for the time
whenever it needs it, so it sets its own clock by the store's at every renewal of its lease, and goes on from there by
a monotonic clock. So it does not matter how far the clocks of machines are apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns, time_ns

from holdfast.ids import Minter, NodeId


def wall_clock_ms() -> int:
    return time_ns() // 1_000_000


_booted_ms = time_ns() // 1_000_000 - monotonic_ns() // 1_000_000


def steady_ms() -> int:
    """The machine's time when this process began plus the time since then: setting the machine's clock does not change
    it."""
    return _booted_ms + monotonic_ns() // 1_000_000


class Ambient:
    """A node's time of day and randomness.

    Waits use the event loop's own clock, which a simulation provides as well.
    """

    def __init__(
        self,
        *,
        own_ms: Callable[[], int] = steady_ms,
        random_bits: Callable[[int], int] | None = None,
    ) -> None:
        self.now_ms: Callable[[], int] = (
            self._steady_now_ms if own_ms is steady_ms else self._own_now_ms
        )
        """The store's time, as nearly as the node knows it."""
        self.own_ms = own_ms
        """The node's own clock: good for measuring how much time has passed."""
        self._ahead_ms = 0
        self._zero_ms = _booted_ms
        """The store's time when the machine's steady clock was at zero."""
        self._random_bits = random_bits or machine_bits
        self.mint = Minter(now_ms=self.now_ms, random_bits=self._random_bits)

    def _own_now_ms(self) -> int:
        return self.own_ms() + self._ahead_ms

    def _steady_now_ms(self) -> int:
        """The same for `steady_ms`, with one call and one addition less: it runs for every id and every record."""
        return self._zero_ms + monotonic_ns() // 1_000_000

    def follow(self, store_ms: int, *, asked_ms: int, told_ms: int) -> None:
        """Set the clock by the store, whose time was `store_ms` between these two moments of the node's own clock.

        A clock that agrees with that is not changed, so a slow answer changes nothing. Otherwise the store's time is
        taken to be that of the last moment, so that no deadline passes too early. Safe from any thread.
        """
        earliest_ms, latest_ms = store_ms - told_ms, store_ms - asked_ms
        if not earliest_ms <= self._ahead_ms <= latest_ms:
            self._ahead_ms, self._zero_ms = earliest_ms, _booted_ms + earliest_ms

    def node_id(self) -> NodeId:
        """An id for this node. Its time is by the node's own clock, since the store's is not known yet; so operators
        see how far the two are apart."""
        return Minter(now_ms=self.own_ms, random_bits=self._random_bits)(NodeId)

    def nonce(self) -> str:
        """A random word, used once."""
        return f"{self._random_bits(64):016x}"


_BITS, _WORD_BITS, _AT_ONCE = 80, 64, 64
"""The bits of an id and of a fetched word, and how many words are fetched at once: a system call costs more than making
an id."""

_fetched: list[int] = []
os.register_at_fork(
    after_in_child=_fetched.clear
)  # or a child would make the same ids as its parent


def machine_bits(bits: int) -> int:
    """At most 80 random bits from the operating system, each used once. Safe from any thread."""
    assert 0 < bits <= _BITS
    while True:
        try:
            two_words = _fetched.pop() << _WORD_BITS | _fetched.pop()
            return two_words >> (2 * _WORD_BITS - bits)
        except IndexError:
            random = os.urandom(_AT_ONCE * _WORD_BITS // 8)
            _fetched.extend(memoryview(random).cast("Q"))
