"""A client that meets a busy conversation, and comes back by itself."""

from __future__ import annotations

import asyncio

import pytest

from tests.clients.catalogue import BY_NAME
from tests.clients.programs import drive
from tests.e2e.world import World, until

pytestmark = [pytest.mark.slow, pytest.mark.clients]


async def test_the_agents_sdk_retries_a_busy_conversation_that_answers_400(world: World) -> None:
    """It knows the hosted service's answer, and no other: with 409 and no SDK retries it would give up."""
    await world.restart(HOLDFAST_BUSY_STATUS="400")
    gate = world.hold("one")
    refused = world.here / "refused"
    async with world.streaming("one", to="trip") as first:
        await gate.reached.wait()
        second = asyncio.create_task(drive(BY_NAME["openai-agents"], "busy", world))
        await until(lambda: refused.exists() or second.done(), within_s=60)
        gate.release()
        assert (await first.content.read()).endswith(b"data: [DONE]\n\n")
        saw = await second
    assert saw["answers"] == ["This is the whole answer to two "]
    assert set(refused.read_text().split()) == {"400"}
    assert world.sent == [["one"], ["one", "two"]]
    assert len(await world.items("trip")) == 4
