"""From an iterator of events to writes: whatever has come meanwhile is taken together.

A task reads the iterator into a list; whoever writes takes the list. So a slow client gets fewer, larger
writes, and a fast one each event as it comes, without a timer in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from holdfast.server.exchange import ClientGone

T = TypeVar("T")


class Pump(Generic[T]):
    """Takes events from an iterator, as long as the client is there."""

    def __init__(self, events: AsyncIterator[T], gone: asyncio.Task[None]) -> None:
        self._events = events
        self._gone = gone
        self._ready: list[T] = []
        self._ended = False
        self._woken: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._task = asyncio.create_task(self._read())
        gone.add_done_callback(self._wake)

    async def take(self, *, timeout_s: float) -> list[T] | None:
        """What has come since the last time; empty after `timeout_s` of silence, None at the end.

        Raises ClientGone, and what the iterator raised.
        """
        if not self._ready and not self._ended and not self._gone.done():
            await self._sleep(timeout_s)
        if self._gone.done():
            raise ClientGone
        if self._ready:
            taken, self._ready = self._ready, []
            return taken
        if self._failure is not None:
            raise self._failure
        return None if self._ended else []

    async def close(self) -> None:
        """Stop reading."""
        self._gone.remove_done_callback(self._wake)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for event in self._events:
                self._ready.append(event)
                if self._woken is not None:
                    self._wake()
        except Exception as error:
            self._failure = error
        finally:
            self._ended = True
            self._wake()

    async def _sleep(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
