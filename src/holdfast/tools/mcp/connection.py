"""A server that is there when it is needed.

1. It is started by the first who needs it; others who come meanwhile wait for the same start.
2. It is stopped when nobody has used it for a while, and started again by the next who does.
3. When it goes away by itself, whoever waits for it is told; the next who needs it starts it again. If that goes wrong
   several times in a row, attempts are spaced out, and whoever comes in between is told so at once.
4. It lives in a task of its own, so that no caller's end is its end. `close` leaves nothing running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast import limits
from holdfast.tools.mcp.peer import CallFailed, Connect, OnChanged, Peer, ServerLost, Unavailable

log = logging.getLogger("holdfast.tools")


def backoff_s(failures: int) -> float:
    """How long to leave a server alone that has failed so often in a row. The first time: not at all."""
    if failures <= 1:
        return 0.0
    return min(limits.mcp_backoff_s_max, 0.5 * 2.0 ** min(failures - 2, 16))


class McpConnection:
    """The way to one server."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        idle_s: float = limits.mcp_idle_s,
        start_s: float = limits.mcp_start_s,
        on_changed: OnChanged = lambda: None,
        hide: Callable[[str], str] = lambda words: words,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._connect = connect
        self._idle_s = idle_s
        self._start_s = start_s
        self._on_changed = on_changed
        self._hide = hide
        self._now_s = now_s
        self._holding: _Holding | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before_s = 0.0
        self._last_words = ""
        self._closed = False

    @property
    def is_up(self) -> bool:
        return self._holding is not None and self._holding.is_ready

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[Peer]:
        """The server, for as long as this is open. Raises Unavailable."""
        holding = self._hold()
        try:
            yield await holding.wait_ready()
            self._failures = 0
        except CallFailed:
            self._failures = 0
            raise
        except ServerLost as error:
            self._failed(holding, str(error))
            holding.retire()
            raise
        finally:
            holding.leave()

    def _hold(self) -> _Holding:
        """The server as it is held now, started if it is not; the caller is counted as its user."""
        if self._closed:
            raise Unavailable(f"{self._name} is closed")
        if self._holding is None:
            self._check_patience()
            self._holding = _Holding(self)
            self._ending.add(self._holding.task)
            self._holding.task.add_done_callback(self._ending.discard)
        self._holding.enter()
        return self._holding

    def _check_patience(self) -> None:
        wait_s = self._not_before_s - self._now_s()
        if wait_s > 0:
            raise Unavailable(
                f"{self._name} has failed {self._failures} times in a row, and is tried again in {wait_s:.0f} s; "
                f"the last time: {self._last_words}"
            )

    def _failed(self, holding: _Holding, words: str) -> None:
        """Count a failure, once for each time that it was started."""
        if self._holding is not holding:
            return
        self._holding = None
        self._failures += 1
        self._last_words = words
        self._not_before_s = self._now_s() + backoff_s(self._failures)
        log.warning("mcp server %s: %s", self._name, words)

    async def close(self) -> None:
        """Stop it, and wait until nothing of it is left. Again: nothing happens."""
        self._closed = True
        if self._holding is not None:
            self._holding.stop()
        await self.wait_down()

    async def wait_down(self) -> None:
        """Wait until nothing of it runs, if it is to be stopped."""
        cancelled: asyncio.CancelledError | None = None
        while self._ending:
            try:
                await asyncio.wait(self._ending)
            except asyncio.CancelledError as error:
                cancelled = error  # what has been started has to be ended all the same
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled

    # what a holding tells

    def forget(self, holding: _Holding) -> None:
        """It was stopped on purpose."""
        if self._holding is holding:
            self._holding = None

    async def hold(self, holding: _Holding) -> None:
        """The life of a server, from its start to its end."""
        try:
            async with self._connect(self._on_changed) as peer:
                await self._greet(peer, holding)
                holding.ready(peer)
                await holding.wait_end(peer.gone)
                if peer.gone.is_set():
                    self._failed(holding, "it went away")
        except Exception as error:
            # Whatever the server or the protocol's library did: it is this server's failure, and nobody else's.
            words = self._hide(_first_words(error))
            self._failed(holding, words)
            holding.fail(Unavailable(f"{self._name} could not be reached: {words}"))
        finally:
            holding.over()

    async def _greet(self, peer: Peer, holding: _Holding) -> None:
        """In a task of its own, which can be left without harm to the connection that this one holds."""
        greeting = asyncio.ensure_future(peer.greet())
        try:
            await holding.wait_for(greeting, timeout_s=self._start_s)
            if not greeting.done():
                words = "stopped" if holding.is_stopped else f"no answer within {self._start_s:g} s"
                raise Unavailable(words)
            greeting.result()
        finally:
            greeting.cancel()

    @property
    def idle_s(self) -> float:
        return self._idle_s

    def __repr__(self) -> str:
        return f"<Link {self._name} {'up' if self.is_up else 'down'}>"


class _Holding:
    """One life of a server: who uses it, and when it has to end."""

    def __init__(self, link: McpConnection) -> None:
        self._link = link
        self._users = 0
        self._is_retired = False
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_seen)
        self._resting: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(link.hold(self), name=repr(link))

    @property
    def is_ready(self) -> bool:
        return self._ready.done() and self._ready.exception() is None

    def enter(self) -> None:
        self._users += 1
        if self._resting is not None:
            self._resting.cancel()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def leave(self) -> None:
        self._users -= 1
        if self._users or self.is_stopped:
            return
        if self._is_retired:
            self.stop()
        else:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._link.idle_s, self.stop)

    def retire(self) -> None:
        """Nobody new is to use it: one has lost it. Others may still get their answers, and it ends with them."""
        self._is_retired = True
        self._link.forget(self)

    def stop(self) -> None:
        """End it. Whoever comes from now on starts another."""
        if self._resting is not None:
            self._resting.cancel()
        self._stop.set()
        self._link.forget(self)

    def over(self) -> None:
        """Nothing is left of it."""
        self.stop()
        self.fail(Unavailable("it was stopped"))

    async def wait_ready(self) -> Peer:
        return await asyncio.shield(self._ready)

    def ready(self, peer: Peer) -> None:
        if not self._ready.done():
            self._ready.set_result(peer)

    def fail(self, error: Unavailable) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)

    async def wait_end(self, gone: asyncio.Event) -> None:
        """Wait until it is to be stopped, or has gone by itself."""
        leaving = asyncio.ensure_future(gone.wait())
        try:
            await self.wait_for(leaving)
        finally:
            leaving.cancel()

    async def wait_for(self, work: asyncio.Future[Any], *, timeout_s: float | None = None) -> None:
        """Wait until something is done, or this is to be stopped, or time is up."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                (work, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()


def _seen(ready: asyncio.Future[Peer]) -> None:
    """A start that failed is told to whoever waits; if nobody does, that is no trouble of the event loop's."""
    if not ready.cancelled():
        ready.exception()


def _first_words(error: BaseException) -> str:
    """What went wrong, of an error that libraries have wrapped in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
