"""The queue of searches: one runs at a time, and tenants take turns.

A search works through texts for up to `search_s`, and occupies a reader of the store for that time. Turns read, too, so
searches never take the last reader; and if one tenant searches all the time, another tenant's search waits for one of
its pages, not for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct, field

from holdfast import limits
from holdfast.ids import Tenant
from holdfast.wire.problems import Refused, too_many


class _Line(Struct):
    """The searches of one tenant; the first of them runs, or waits for other tenants' searches."""

    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class SearchQueue:
    """Runs searches one after the other."""

    def __init__(self) -> None:
        self._lines: dict[Tenant, _Line] = {}
        self._running = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, tenant: Tenant) -> AsyncIterator[None]:
        """Wait for this tenant's turn. Raises Refused (429) if too many of its searches wait already."""
        line = self._lines.setdefault(tenant, _Line())
        if line.length > limits.searches_waiting_max:
            raise Refused(_TOO_MANY)
        line.length += 1
        try:
            async with line.first, self._running:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[tenant]


_TOO_MANY = too_many(
    f"this tenant has {limits.searches_waiting_max} searches that wait, and may not have more; "
    "wait until one of them has ended"
)
