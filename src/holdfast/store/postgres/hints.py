"""Hints: that there may be something for a node to read, told at once by NOTIFY.

A hint carries nothing that counts. It is sent after what it hints at is durable, several at once in one statement,
and may be lost: whoever waits for one also looks by itself now and then. So nothing depends on the connection that
listens, which has to be a direct one; if it breaks, it is made again, and everybody is told to look.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable
from functools import partial

import asyncpg

from holdfast.errors import StoreError
from holdfast.ids import NodeId
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.faults import fault_of

CHANNEL = "holdfast"
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0

Wake = Callable[[], None]


class Hints:
    """Sends hints, and passes on those that come. Closed by its store."""

    def __init__(self, engine: Engine, *, listen: str | None) -> None:
        self._engine = engine
        self._dsn = listen
        self._pending: set[str] = set()
        self._sending: Task[None] | None = None
        self._wakes: dict[str, Wake] = {}
        self._listening: Task[None] | None = None

    def tell(self, node: NodeId) -> None:
        """Let this node know, soon. Those that are told meanwhile go in one statement."""
        self._pending.add(node)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    def listen(self, node: NodeId, wake: Wake) -> None:
        """Call `wake` when there may be something for this node, on the running loop."""
        self._wakes[node] = wake
        if self._listening is None and self._dsn is not None:
            self._listening = asyncio.create_task(self._keep_listening(self._dsn))

    async def close(self) -> None:
        """What has not been sent is not: those that it was for look by themselves."""
        tasks = [each for each in (self._sending, self._listening) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._pending:
                nodes, self._pending = sorted(self._pending), set()
                try:
                    await self._engine.run(partial(_notify, nodes=nodes))
                except StoreError:
                    return  # it was only a hint
        finally:
            self._sending = None

    async def _keep_listening(self, dsn: str) -> None:
        retry_s = RETRY_FIRST_S
        while True:
            broken = asyncio.Event()
            try:
                connection = await asyncpg.connect(dsn, timeout=self._engine.timeout_s)
            except Exception as error:
                if fault_of(error) is None and not isinstance(error, asyncpg.PostgresError):
                    raise
                await asyncio.sleep(retry_s)
                retry_s = min(RETRY_MOST_S, retry_s * 2)
                continue
            try:
                connection.add_termination_listener(lambda _, broken=broken: broken.set())
                await connection.add_listener(CHANNEL, self._heard)
                retry_s = RETRY_FIRST_S
                for wake in self._wakes.values():
                    wake()  # what was said while nobody listened
                await broken.wait()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await asyncio.sleep(retry_s)
            finally:
                connection.terminate()

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        wake = self._wakes.get(str(payload))
        if wake is not None:
            wake()


async def _notify(db: Db, nodes: list[str]) -> None:
    await db.rows("notify", channel=CHANNEL, nodes=nodes)
