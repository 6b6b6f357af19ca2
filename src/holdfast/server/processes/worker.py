"""The role of a worker: its number, its port, its line to the supervisor, and what it shares with other workers.

The supervisor sends its orders over the line. A signal only means "drain", however often it comes: a terminal or
systemd that stops a whole group of processes signals the supervisor and its workers alike, and that is no reason to
hurry. If the line breaks, the supervisor is gone, and the worker drains.
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
from holdfast.server.processes.process_role import ReadyServer, StoppableServer, handle_signals
from holdfast.server.processes.shared_slots import SharedSlots

DRAIN, HURRY, RELOAD = b"D", b"H", b"R"
"""The orders of a supervisor."""


class SharedState:
    """The memory that the workers of a port share. It is made before they are forked."""

    def __init__(self, places: int, *, bounded: bool) -> None:
        """`bounded` says whether tenants or keys have quotas, which the workers must count together."""
        self.places = places
        self._board = SharedSlots(places + 1)
        self._ledger = QuotaLedger(places) if bounded else None

    def numbers(self, place: int, run: int) -> Numbers:
        return SharedNumbers(self._board, place, places=self.places, run=run)

    def quota_usage(self, place: int) -> QuotaUsage:
        return (
            ProcessQuotaUsage() if self._ledger is None else SharedQuotaUsage(self._ledger, place)
        )

    def note_end(self, place: int, run: int, *, restarts: int) -> None:
        """In the supervisor: keep what a worker has counted, and free what it held."""
        note_end(self._board, place, places=self.places, run=run, restarts=restarts)
        if self._ledger is not None:
            self._ledger.strike_out(place)


class Worker:
    """The role of one of several processes on a port. The supervisor makes it in the forked process."""

    def __init__(
        self, number: int, port: SharedPort, line: socket.socket, shared: SharedState, *, run: int
    ) -> None:
        """`run` counts the workers that this place has had, this one included."""
        self.number = number
        self.numbers = shared.numbers(number, run)
        self.quota_usage = shared.quota_usage(number)
        self._port = port
        self._line = line

    def listen(self) -> socket.socket:
        return self._port.listener()

    @contextmanager
    def control(self, server: StoppableServer) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with handle_signals(server.drain, server.reload):
            loop.add_reader(self._line, self._obey, loop, server)
            try:
                yield
            finally:
                loop.remove_reader(self._line)

    def ready(self, ready: ReadyServer) -> None:
        event("worker.ready", worker=self.number, pid=os.getpid(), node=ready.node)
        try:
            self._line.sendall(msgspec.json.encode(ready) + b"\n")
        except OSError:
            pass  # the supervisor is gone, which the reader of the line notices in a moment

    def _obey(self, loop: asyncio.AbstractEventLoop, server: StoppableServer) -> None:
        try:
            said = self._line.recv(64)
        except OSError:  # the supervisor was killed before it had read our message
            said = b""
        if HURRY in said:
            server.hurry()
        elif DRAIN in said or not said:
            server.drain()
        else:
            server.reload()
        if not said:
            loop.remove_reader(self._line)
