"""Acknowledgements on their way to the database.

A request that has sent its answer does not wait until that is noted, and on a pool of connections nothing keeps
statements in their order. So a request that may be a retry first waits for the acknowledgements before it: otherwise
it might take a request that was answered for one whose answer got lost. That is the order of one process, as a
connection of a client has it; between processes there is none to keep.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager


class Acknowledgements:
    """Those that are not answered yet."""

    def __init__(self) -> None:
        self._under_way: set[Future[None]] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """An acknowledgement is on its way while in here, well or not."""
        done: Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            yield
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def wait_arrived(self) -> None:
        """Until all that are on their way now have come to an end."""
        if self._under_way:
            await asyncio.wait(tuple(self._under_way))
