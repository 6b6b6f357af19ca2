"""The connection to one MCP server, which is started when a call needs it.

1. The first call starts the server; calls that arrive meanwhile wait for the same start.
2. A server that no call has used for a while is stopped; the next call starts it again.
3. If the server exits by itself, the calls that wait for it fail; the next call starts it again. After several
   failures in a row, starts are spaced out, and a call in between fails at once.
4. The server lives in a task of its own, so that it does not end with any caller. `close` leaves nothing running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast import limits
from holdfast.observe.trouble import Trouble
from holdfast.tools.mcp.peer import CallFailed, Connect, OnChanged, Peer, ServerLost, Unavailable

log = logging.getLogger("holdfast.tools")


def backoff_s(failures: int) -> float:
    """How long to wait before the next start, after so many failures in a row. After the first: not at all."""
    if failures <= 1:
        return 0.0
    return min(limits.mcp_backoff_s_max, 0.5 * 2.0 ** min(failures - 2, 16))


class McpConnection:
    """Starts, shares and stops one server."""

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
        self._run: _ServerRun | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before_s = 0.0
        self._last_words = ""
        self._closed = False
        self._trouble = Trouble(f"mcp server {name}", log, now_s=now_s)

    @property
    def is_up(self) -> bool:
        return self._run is not None and self._run.is_ready

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[Peer]:
        """The server, started if needed, within the `with` block. Raises Unavailable."""
        run = self._current_run()
        try:
            yield await run.wait_ready()
            self._worked()
        except CallFailed:
            self._worked()
            raise
        except ServerLost as error:
            self._failed(run, str(error))
            run.retire()
            raise
        finally:
            run.leave()

    def _current_run(self) -> _ServerRun:
        """The current run of the server, started if there is none; the caller is counted as a user."""
        if self._closed:
            raise Unavailable(f"{self._name} is closed")
        if self._run is None:
            self._check_backoff()
            self._run = _ServerRun(self)
            self._ending.add(self._run.task)
            self._run.task.add_done_callback(self._ending.discard)
        self._run.enter()
        return self._run

    def _check_backoff(self) -> None:
        wait_s = self._not_before_s - self._now_s()
        if wait_s > 0:
            raise Unavailable(
                f"{self._name} has failed {self._failures} times in a row, and is tried again in {wait_s:.0f} s; "
                f"the last time: {self._last_words}"
            )

    def _worked(self) -> None:
        self._failures = 0
        self._trouble.worked()

    def _failed(self, run: _ServerRun, words: str) -> None:
        """Count a failure, once per start of the server."""
        if self._run is not run:
            return
        self._run = None
        self._failures += 1
        self._last_words = words
        self._not_before_s = self._now_s() + backoff_s(self._failures)
        self._trouble.failed(words)

    async def close(self) -> None:
        """Stop the server, and wait until nothing of it is left. A second call does nothing."""
        self._closed = True
        if self._run is not None:
            self._run.stop()
        await self.wait_down()

    async def wait_down(self) -> None:
        """Wait until every run that is to stop has stopped."""
        cancelled: asyncio.CancelledError | None = None
        while self._ending:
            try:
                await asyncio.wait(self._ending)
            except asyncio.CancelledError as error:
                cancelled = error  # the server has to be stopped all the same
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled

    # called by a run

    def forget(self, run: _ServerRun) -> None:
        """This run was stopped on purpose: the next call starts another."""
        if self._run is run:
            self._run = None

    async def live(self, run: _ServerRun) -> None:
        """One run of the server, from its start to its end."""
        try:
            async with self._connect(self._on_changed) as peer:
                await self._greet(peer, run)
                run.ready(peer)
                await run.wait_end(peer.gone)
                if peer.gone.is_set():
                    self._failed(run, "it went away")
        except Exception as error:
            # Any error of the server or of the protocol's library is a failure of this server alone.
            words = self._hide(_first_words(error))
            self._failed(run, words)
            run.fail(Unavailable(f"{self._name} could not be reached: {words}"))
        finally:
            run.over()

    async def _greet(self, peer: Peer, run: _ServerRun) -> None:
        """The handshake runs in a task of its own: cancelling it does no harm to the connection."""
        greeting = asyncio.ensure_future(peer.greet())
        try:
            await run.wait_for(greeting, timeout_s=self._start_s)
            if not greeting.done():
                words = "stopped" if run.is_stopped else f"no answer within {self._start_s:g} s"
                raise Unavailable(words)
            greeting.result()
        finally:
            greeting.cancel()

    @property
    def idle_s(self) -> float:
        return self._idle_s

    def __repr__(self) -> str:
        return f"<Link {self._name} {'up' if self.is_up else 'down'}>"


class _ServerRun:
    """One run of a server: counts its users, and knows when it has to end."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection
        self._users = 0
        self._is_retired = False
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_mark_retrieved)
        self._idle_timer: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(connection.live(self), name=repr(connection))

    @property
    def is_ready(self) -> bool:
        return self._ready.done() and self._ready.exception() is None

    def enter(self) -> None:
        self._users += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()

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
            self._idle_timer = loop.call_later(self._connection.idle_s, self.stop)

    def retire(self) -> None:
        """Accept no new users, since a call has lost the server. The run ends once the other calls are done."""
        self._is_retired = True
        self._connection.forget(self)

    def stop(self) -> None:
        """End this run. The next call starts another."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._stop.set()
        self._connection.forget(self)

    def over(self) -> None:
        """Note that nothing of this run is left."""
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
        """Wait until the run is to be stopped, or the server has gone by itself."""
        leaving = asyncio.ensure_future(gone.wait())
        try:
            await self.wait_for(leaving)
        finally:
            leaving.cancel()

    async def wait_for(self, work: asyncio.Future[Any], *, timeout_s: float | None = None) -> None:
        """Wait until the work is done, this run is stopped, or the time is up."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                (work, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()


def _mark_retrieved(ready: asyncio.Future[Peer]) -> None:
    """Mark a failed start as seen: without a waiting call, asyncio would log an exception that was never retrieved."""
    if not ready.cancelled():
        ready.exception()


def _first_words(error: BaseException) -> str:
    """The message of the first error inside exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
