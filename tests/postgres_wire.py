"""Between a client and a PostgreSQL: counts what is asked, and cuts the wire at a chosen question.

    async with Wire.before(host, port) as wire:
        wire.cut_at(3, "after")     # the third question reaches the server, its answer reaches nobody
        ...                         # talk to wire.port
        assert wire.was_cut

A question is what ends in Sync, or a simple Query: one round trip. Only one is cut; whoever connects again is let
through. `die_at` is for a client that dies: it counts single messages, and lets nothing through afterwards.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter, Task
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

Moment: TypeAlias = Literal["before", "after"]

_ENDS_QUESTION = b"SQ"
_RUNS_STATEMENT = b"EQ"
_READY = b"Z"
_SSL_REQUEST = 80877103

ROUNDS = 4
"""So many rounds of the loop pass at most between an accepted connection and the task that serves it."""


class Wire:
    """A proxy on a port of its own. Obtained by `before`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.port = 0
        self.questions = 0
        """How many were asked since `cut_at`."""
        self.statements = 0
        """How many were run in all; several in one script count as one."""
        self.was_cut = False
        self._nth = 0
        self._moment: Moment = "before"
        self._writers: set[StreamWriter] = set()
        self.serving: set[Task[None]] = set()
        """Our own tasks, one for each connection."""
        self.ports: set[int] = set()
        """Ours, by which the server knows the connections that we have passed on."""
        self.died = asyncio.Event()
        """Nothing comes through any more."""
        self._messages_left = 0
        self._last: Moment = "before"

    @classmethod
    @asynccontextmanager
    async def before(cls, host: str, port: int) -> AsyncIterator[Wire]:
        wire = cls(host, port)
        server = await asyncio.start_server(wire._serve, "127.0.0.1", 0)
        wire.port = server.sockets[0].getsockname()[1]
        try:
            yield wire
        finally:
            server.close()
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            wire.die()
            if wire.serving:  # a loop that ends in the middle of them would complain about each
                await asyncio.wait(tuple(wire.serving))

    def cut_at(self, nth: int, moment: Moment) -> None:
        """Cut at the nth question from now on, before the server hears it or after it has answered."""
        self.questions, self._nth, self._moment, self.was_cut = 0, nth, moment, False

    def die_at(self, nth: int, moment: Moment) -> None:
        """Die at the nth message that a client sends from now on, before it is passed on or right after."""
        self.died.clear()
        self._messages_left, self._last = nth, moment

    def die(self) -> None:
        """Die now."""
        self.died.set()
        for each in self._writers:
            each.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self.serving.add(serving)
        serving.add_done_callback(self.serving.discard)
        if self.died.is_set():
            await _closed(writer)
            return
        there, back = await asyncio.open_connection(*self._target)
        self.ports.add(back.get_extra_info("sockname")[1])
        self._writers |= {writer, back}
        if self.died.is_set():
            self.die()
        link = _Link()
        pumps = (
            asyncio.create_task(self._questions(reader, back, link)),
            asyncio.create_task(self._answers(there, writer, link)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await _closed(writer, back)
            self._writers -= {writer, back}

    async def _questions(self, reader: StreamReader, back: StreamWriter, link: _Link) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                start = await reader.readexactly(8)
                back.write(start + await reader.readexactly(int.from_bytes(start[:4]) - 8))
                if int.from_bytes(start[4:]) != _SSL_REQUEST:
                    break
            while True:
                kind, message = await _message(reader)
                if self.died.is_set():
                    return
                self._messages_left -= 1
                if self._messages_left == 0:
                    if self._last == "after":
                        back.write(message)
                        await back.drain()
                    self.die()
                    return
                self.statements += kind in _RUNS_STATEMENT
                if kind in _ENDS_QUESTION:
                    self.questions += 1
                    if self.questions == self._nth:
                        self.was_cut = True
                        if self._moment == "before":
                            return
                        link.mute = True
                back.write(message)
                await back.drain()

    async def _answers(self, there: StreamReader, writer: StreamWriter, link: _Link) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                if not link.greeted and (first := await there.readexactly(1)) in (b"S", b"N"):
                    # One byte answers a request for TLS; we have none, and neither has the server.
                    writer.write(first)
                    continue
                kind, message = await _message(there, already=b"" if link.greeted else first)
                link.greeted = True
                if not link.mute:
                    writer.write(message)
                    await writer.drain()
                elif kind == _READY:
                    return


class _Link:
    """What both directions of a connection know."""

    mute = False
    greeted = False


async def _closed(*writers: StreamWriter) -> None:
    """Close connections, and wait until they are: a loop that ended before would complain about each."""
    for each in writers:
        each.close()
    for each in writers:
        with suppress(OSError):
            await each.wait_closed()


async def _message(reader: StreamReader, *, already: bytes = b"") -> tuple[bytes, bytes]:
    head = already + await reader.readexactly(5 - len(already))
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
