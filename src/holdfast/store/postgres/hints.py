"""Hints: that there may be something for a node to read, told at once by NOTIFY.

A hint carries nothing that counts. It is sent after what it hints at is durable, several at once in one statement,
and may be lost: a node that waits for one also polls now and then. So nothing depends on the connection that
listens, which has to be a direct one; if it breaks, the supervisor has it made again, and all nodes are told to look.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable
from functools import partial

import asyncpg

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.ids import NodeId
from holdfast.observe.supervisor import SupervisedTask, TaskSupervisor
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.faults import translated
from holdfast.store.postgres.queries import compiled

CHANNEL = "holdfast"
_NOTIFY = compiled(
    "notify", "select pg_notify(:channel, n.id) from unnest(:nodes::text[]) as n (id)"
)

Wake = Callable[[], None]


class PostgresHints:
    """Sends hints, and passes on those that come. Closed by its store."""

    def __init__(
        self,
        engine: PostgresEngine,
        *,
        listen: str | None,
        supervisor: TaskSupervisor | None = None,
    ) -> None:
        self._engine = engine
        self._supervisor = supervisor or TaskSupervisor()
        self._dsn = listen
        self._pending: set[str] = set()
        self._sending: Task[None] | None = None
        self._wakes: dict[str, Wake] = {}
        self._listening: SupervisedTask | None = None

    def tell(self, node: NodeId) -> None:
        """Let this node know, soon. Those that are told meanwhile go in one statement."""
        self._pending.add(node)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    def listen(self, node: NodeId, wake: Wake) -> None:
        """Call `wake` when there may be something for this node, on the running loop."""
        self._wakes[node] = wake
        if self._listening is None and self._dsn is not None:
            self._listening = self._supervisor.keep("hints", partial(self._listen, self._dsn))

    async def close(self) -> None:
        """What has not been sent is not: those that it was for look by themselves."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        if self._listening is not None:
            await self._supervisor.stop(self._listening)

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

    async def _listen(self, dsn: str) -> None:
        """Listen until the connection breaks: a round for the supervisor."""
        broken = asyncio.Event()
        try:
            connection = await asyncpg.connect(dsn, timeout=self._engine.timeout_s)
            try:
                connection.add_termination_listener(lambda _: broken.set())
                await connection.add_listener(CHANNEL, self._heard)
                if self._listening is not None:
                    self._listening.note_success()
                for wake in self._wakes.values():
                    wake()  # for signals that were sent while this process did not listen
                await broken.wait()
            finally:
                connection.terminate()
        except Exception as error:
            raise translated(error) from error
        raise StoreUnavailable("the connection that listens for hints was lost")

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        wake = self._wakes.get(str(payload))
        if wake is not None:
            wake()


async def _notify(db: Db, nodes: list[str]) -> None:
    await db.fetch(_NOTIFY, {"channel": CHANNEL, "nodes": nodes})
