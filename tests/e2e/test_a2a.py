"""Tasks of other agents, over real processes: killed, and asked at any replica."""

from __future__ import annotations

import asyncio

import pytest
from a2a.utils.errors import UnsupportedOperationError

from tests.e2e.conftest import WORLDS
from tests.e2e.world import World
from tests.server.a2a.sdk_peer import last_state, peer, text_of, told

ANSWER = "This is the whole answer to long"
AT_ONCE = {"returnImmediately": True}


@WORLDS
async def test_a_task_survives_the_server_that_played_it(world: World) -> None:
    gate = world.hold("long")
    async with peer(world.url, pooled=False) as other:
        task = await other.send("long", contextId="trip", messageId="1", configuration=AT_ONCE)
        await gate.reached.wait()
    await world.kill()
    world.gates.clear()
    await world.start()
    async with peer(world.url, pooled=False) as other:
        try:
            events = await other.subscribed(task["id"])
            assert (told(events).strip(), last_state(events)) == (ANSWER, "TASK_STATE_COMPLETED")
        except UnsupportedOperationError:
            pass  # it had ended by then
        ended = await other.get(task["id"])
        assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(ended).strip() == ANSWER
        again = await other.send("long", contextId="trip", messageId="1")
        assert (again["id"], text_of(again)) == (task["id"], text_of(ended))
    await world.verify()


@WORLDS
async def test_every_replica_tells_the_same_of_a_task(world: World) -> None:
    gate = world.hold("long")
    async with peer(world.url, pooled=False) as other:
        task = await other.send("long", contextId="trip", messageId="1", configuration=AT_ONCE)
        await gate.reached.wait()

    async def watched(url: str, begun: asyncio.Event) -> list[dict[str, object]]:
        async with peer(url) as other:
            seen = []
            async for each in other.subscribe(task["id"]):
                seen.append(each)
                begun.set()
            return seen

    begun = [asyncio.Event() for _ in world.urls]
    watching = [
        asyncio.create_task(watched(url, each)) for url, each in zip(world.urls, begun, strict=True)
    ]
    for each in begun:
        await each.wait()
    gate.release()
    for events in await asyncio.gather(*watching):
        assert (told(events).strip(), last_state(events)) == (ANSWER, "TASK_STATE_COMPLETED")
    for url in world.urls:
        async with peer(url) as other:
            assert text_of(await other.get(task["id"])).strip() == ANSWER
            (listed,) = (await other.list(contextId="trip"))["tasks"]
            assert listed["id"] == task["id"]
            with pytest.raises(UnsupportedOperationError):
                await other.subscribed(task["id"])
