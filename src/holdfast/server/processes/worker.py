"""A worker's place: its number, its port, its line to the supervisor, and what it shares with the others.

The line is how it hears what to do. A signal means only "drain", however often it comes: who stops a whole group of
processes, as a terminal or systemd does, signals the supervisor and its workers alike, and that is no hurry. A line
that breaks means that the supervisor is gone; then there is nobody to work for.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from holdfast.observe.events import event
from holdfast.server.access.quota_usage import (
    ProcessQuotaUsage,
    QuotaLedger,
    QuotaUsage,
    SharedQuotaUsage,
)
from holdfast.server.http.listen_sockets import SharedPort
from holdfast.server.processes.numbers import Numbers, SharedNumbers, note_end
from holdfast.server.processes.process_role import ReadyServer, StoppableServer, heeding_signals
from holdfast.server.processes.shared_slots import SharedSlots

DRAIN, HURRY, RELOAD = b"D", b"H", b"R"
"""What a supervisor says."""


class SharedState:
    """What the workers of a port share besides it: memory, made before they are."""

    def __init__(self, places: int, *, bounded: bool) -> None:
        """`bounded` says whether there are bounds for tenants or keys, that have to be kept together."""
        self.places = places
        self._board = SharedSlots(places + 1)
        self._ledger = QuotaLedger(places) if bounded else None

    def numbers(self, place: int, run: int) -> Numbers:
        return SharedNumbers(self._board, place, places=self.places, run=run)

    def accounts(self, place: int) -> QuotaUsage:
        return (
            ProcessQuotaUsage() if self._ledger is None else SharedQuotaUsage(self._ledger, place)
        )

    def note_end(self, place: int, run: int, *, restarts: int) -> None:
        """In the supervisor: what a worker has counted is past, and what it held is free."""
        note_end(self._board, place, places=self.places, run=run, restarts=restarts)
        if self._ledger is not None:
            self._ledger.strike_out(place)


class Worker:
    """One of the processes that serve a port. Made by the supervisor, in the process that it is for."""

    def __init__(
        self, number: int, port: SharedPort, line: socket.socket, commons: SharedState, *, run: int
    ) -> None:
        """`run` says the how-manieth in its place this is."""
        self.number = number
        self.numbers = commons.numbers(number, run)
        self.accounts = commons.accounts(number)
        self._port = port
        self._line = line

    def listen(self) -> socket.socket:
        return self._port.listener()

    @contextmanager
    def heeding(self, server: StoppableServer) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with heeding_signals(server.drain, server.reload):
            loop.add_reader(self._line, self._hear, loop, server)
            try:
                yield
            finally:
                loop.remove_reader(self._line)

    def ready(self, ready: ReadyServer) -> None:
        event("worker.ready", worker=self.number, pid=os.getpid(), node=ready.node)
        try:
            self._line.sendall(msgspec.json.encode(ready) + b"\n")
        except OSError:
            pass  # nobody is there any more, which is heard in a moment

    def _hear(self, loop: asyncio.AbstractEventLoop, server: StoppableServer) -> None:
        try:
            said = self._line.recv(64)
        except OSError:  # it was killed before it had read what we said
            said = b""
        if HURRY in said:
            server.hurry()
        elif DRAIN in said or not said:
            server.drain()
        else:
            server.reload()
        if not said:
            loop.remove_reader(self._line)
