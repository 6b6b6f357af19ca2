"""Hints between the processes of one machine: a named pipe for each node, beside the database.

    PATH-hint-7     the pipe that the node of slot 7 reads

As between replicas, a hint carries no data, is sent after the signal that it announces is durable, and may be lost:
a node that waits for hints also polls now and then. So a pipe that cannot be made or written to is no error.

A pipe exists for as long as its node listens. The next node that listens removes the pipe of a killed process: its slot
is free, and no slot is used twice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from holdfast.ids import NodeId
from holdfast.store.operations.signals import SignalResult
from holdfast.store.rows import NodeRow
from holdfast.store.sqlite.locks import Liveness
from holdfast.store.sqlite.store import SqliteStore

Wake = Callable[[], None]

PIPE_BYTES = 4096
"""How many hints are read at once. They are all the same."""


class HintingStore(SqliteStore):
    """A SQLite store that wakes nodes at once when other processes have signals for them: for servers."""

    repairs = True

    @cached_property
    def _hints(self) -> SqliteHints:
        return SqliteHints(self.engine.path, self.engine.liveness)

    @cached_property
    def _slots(self) -> dict[NodeId, int]:
        return {}

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        row = await super().renew(node, ttl_ms=ttl_ms)
        self._slots[node] = row.slot
        return row

    def _hint(self, said: SignalResult) -> None:
        if said.slot is not None:
            self._hints.tell(said.slot)

    def listen(self, node: NodeId, wake: Wake) -> None:
        """Call `wake`, on the running loop, when there may be signals for this node, which must be enrolled."""
        self._hints.listen(self._slots[node], wake)

    async def close(self) -> None:
        self._hints.close()
        await super().close()


class SqliteHints:
    """Sends hints to other nodes, and wakes the nodes of this process. Closed by its store."""

    def __init__(self, path: Path, liveness: Liveness) -> None:
        self._path = path
        self._liveness = liveness
        self._listening: dict[Path, tuple[int, asyncio.AbstractEventLoop]] = {}

    def tell(self, slot: int) -> None:
        """Send a hint to the node of this slot. Nothing happens if it does not listen, or is gone."""
        try:
            pipe = os.open(self._pipe(slot), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(pipe, b"!")
        except OSError:
            pass  # full of hints that the node has not read yet
        finally:
            os.close(pipe)

    def listen(self, slot: int, wake: Wake) -> None:
        """Call `wake`, on the running loop, when there may be signals for the node of this slot."""
        self._remove_stale()
        path = self._pipe(slot)
        try:
            os.mkfifo(path, 0o600)
            # Both ends: with a writer of its own the pipe never reports an end of file when senders close it.
            pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        loop = asyncio.get_running_loop()
        self._listening[path] = pipe, loop
        loop.add_reader(pipe, _hear, pipe, wake)

    def close(self) -> None:
        """Stop listening. Closing again does nothing."""
        for path, (pipe, loop) in self._listening.items():
            loop.remove_reader(pipe)
            os.close(pipe)
            path.unlink(missing_ok=True)
        self._listening.clear()

    def _pipe(self, slot: int) -> Path:
        return self._path.with_name(f"{self._path.name}-hint-{slot}")

    def _remove_stale(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}-hint-*"):
            slot = path.name.rpartition("-")[2]
            if slot.isdigit() and not self._liveness.is_held(int(slot)):
                path.unlink(missing_ok=True)


def _hear(pipe: int, wake: Wake) -> None:
    try:
        os.read(pipe, PIPE_BYTES)
    except BlockingIOError:
        return
    wake()
