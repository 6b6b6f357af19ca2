"""How much work one page of a search may take, in every home.

A page ends, with a cursor, when it has read too many items or bytes, or has worked for too long. Each page reads at
least one item, so that a search comes to its end. A search whose client has gone ends where it gives way.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast import limits


class Effort:
    """The work that a page has taken so far. The caller makes it, the searching thread counts it up."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` tells how long this thread has worked; waiting does not count."""
        self._clock = clock
        self.given_up = False
        """Set when the client has gone, by any thread."""

    def begin(self) -> None:
        """Count from now on, in this thread."""
        self._began = self._clock()
        self._items = 0
        self._bytes = 0

    def spend(self, size: int = 0) -> None:
        """Count one more read: an item of this size, a session's name, or a stretch without a message."""
        self._items += 1
        self._bytes += size

    @property
    def is_spent(self) -> bool:
        """Whether the page ends here."""
        return (
            self.given_up
            or self._items >= limits.search_items_max
            or self._bytes >= limits.search_bytes_max
            or self._clock() - self._began >= limits.search_s
        )
