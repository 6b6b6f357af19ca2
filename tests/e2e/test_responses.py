"""Responses across restarts: what was queued is played to its end, and a stream can be taken up again."""

from __future__ import annotations

from tests.e2e.conftest import WORLDS
from tests.e2e.world import World

pytestmark = WORLDS


async def test_a_background_response_outlives_its_server(world: World) -> None:
    gate = world.hold("important")
    async with world.openai() as client:
        queued = await client.responses.create(model="root", input="important", background=True)
        assert queued.status == "queued"
        await gate.reached.wait()
        seen = -1
        stream = await client.responses.retrieve(queued.id, stream=True)
        async for event in stream:
            seen = event.sequence_number
            if event.type == "response.output_text.delta":
                break
        await stream.close()
    await world.kill()
    world.gates.clear()
    await world.start()
    async with world.openai() as client:
        rest = await client.responses.retrieve(queued.id, stream=True, starting_after=seen)
        events = [event async for event in rest]
        assert [each.sequence_number for each in events] == [
            seen + 1 + n for n in range(len(events))
        ]
        last = events[-1]
        assert last.type == "response.completed"
        # What had been shown is closed as incomplete; the answer is a new item.
        assert [each.status for each in last.response.output if each.type == "message"] == [
            "incomplete",
            "completed",
        ]
        assert await client.responses.retrieve(queued.id) == last.response
        follow = await client.responses.create(
            model="root", input="next", previous_response_id=queued.id
        )
        assert "next" in follow.output_text
    assert world.sent == [["important"], ["important"], ["important", "next"]]
    await world.verify()


async def test_conversations_and_their_items_are_there_after_a_crash(world: World) -> None:
    async with world.openai() as client:
        made = await client.conversations.create(
            metadata={"topic": "travel"},
            items=[{"type": "message", "role": "user", "content": "Remember Oslo."}],
        )
        first = await client.responses.create(model="root", input="one", conversation=made.id)
        await world.kill()
        await world.start()
    async with world.openai() as client:
        assert await client.conversations.retrieve(made.id) == made
        assert await client.responses.retrieve(first.id) == first
        items = [each async for each in client.conversations.items.list(made.id, order="asc")]
        assert [getattr(each, "role", None) for each in items] == ["user", "user", "assistant"]
    await world.verify()


async def test_what_waits_to_be_played_outlives_its_servers(world: World) -> None:
    """Each server has room for one: the others lie in the store, and belong to nobody until they are begun."""
    await world.restart(HOLDFAST_BACKGROUND_TURNS="1")
    said = [f"number {n}" for n in range(5)]
    gates = [world.hold(each) for each in said]
    async with world.openai() as client:
        queued = [
            await client.responses.create(model="root", input=each, background=True)
            for each in said
        ]
        for gate in gates[: world.replicas]:
            await gate.reached.wait()
        states = [(await client.responses.retrieve(each.id)).status for each in queued]
        waiting = len(said) - world.replicas
        assert states == ["in_progress"] * world.replicas + ["queued"] * waiting
        stopped = await client.responses.cancel(queued[-1].id)
        assert stopped.status == "cancelled"
    await world.kill()
    world.gates.clear()
    await world.start(HOLDFAST_BACKGROUND_TURNS="1")
    async with world.openai() as client:
        for each in queued[:-1]:
            stream = await client.responses.retrieve(each.id, stream=True)
            events = [event async for event in stream]
            assert events[-1].type == "response.completed"
            assert [event.sequence_number for event in events] == list(range(len(events)))
        assert (await client.responses.cancel(queued[-1].id)).status == "cancelled"
    asked = [each[0] for each in world.sent]
    assert sorted(asked[world.replicas :]) == said[:-1]
    await world.verify()
