"""A worker's place: its number, its port, and its line to the supervisor.

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
from holdfast.server.listening import Port
from holdfast.server.station import Ready, Stoppable, heeding_signals

DRAIN, HURRY = b"D", b"H"
"""What a supervisor says."""


class Worker:
    """One of the processes that serve a port. Made by the supervisor, in the process that it is for."""

    def __init__(self, number: int, port: Port, line: socket.socket) -> None:
        self.number = number
        self._port = port
        self._line = line

    def listen(self) -> socket.socket:
        return self._port.listener()

    @contextmanager
    def heeding(self, server: Stoppable) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with heeding_signals(server.drain):
            loop.add_reader(self._line, self._hear, loop, server)
            try:
                yield
            finally:
                loop.remove_reader(self._line)

    def ready(self, ready: Ready) -> None:
        event("worker.ready", worker=self.number, pid=os.getpid(), node=ready.node)
        self._line.sendall(msgspec.json.encode(ready) + b"\n")

    def _hear(self, loop: asyncio.AbstractEventLoop, server: Stoppable) -> None:
        said = self._line.recv(64)
        if HURRY in said:
            server.hurry()
        else:
            server.drain()
        if not said:
            loop.remove_reader(self._line)
