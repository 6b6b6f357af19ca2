"""The Agent2Agent protocol, by its own SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from uuid import uuid4

from a2a.client.errors import A2AClientError
from a2a.utils.errors import A2AError

from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.world import World
from tests.server.a2a.sdk_peer import peer, text_of


class A2ADoor:
    """`POST /a2a/root`. A context is the conversation, the message's id the idempotency key: every message has one."""

    name = "a2a"
    lacks: Mapping[Behaviour, str] = {}
    goes_on_alone = True

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        async with peer(world.url, pooled=False) as other:
            try:
                task = await other.send(said, contextId=to, messageId=key or str(uuid4()))
            except (A2AError, A2AClientError) as failed:
                return DoorAnswer(error=type(failed).__name__)
        if task["status"]["state"] == "TASK_STATE_COMPLETED":
            return DoorAnswer(text=text_of(task))
        return DoorAnswer(error=task["status"]["state"])

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        async with peer(world.url, pooled=False) as other:
            async with aclosing(other.stream(said, contextId=to, messageId=str(uuid4()))) as events:
                await anext(events)
                yield

    async def cancel(self, world: World, *, to: str) -> None:
        async with peer(world.url, pooled=False) as other:
            (running, *_) = (await other.list(contextId=to))["tasks"]
            stopped = await other.cancel(running["id"])
        assert stopped["status"]["state"] == "TASK_STATE_CANCELED"

    async def session(self, world: World, *, to: str) -> str:
        return to
