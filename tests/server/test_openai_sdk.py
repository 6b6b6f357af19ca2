"""The Responses and Conversations APIs by OpenAI's own Python SDK: what it sends and what it makes of our answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from holdfast.core.turns.events import Usage
from holdfast.models.model import Model
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.stubs import Serving, agent, serving

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "How it is",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    },
}


@asynccontextmanager
async def sdk(model: Model) -> AsyncIterator[tuple[openai.AsyncOpenAI, Serving]]:
    async with serving(agent(model)) as server:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        async with client:
            yield client, server


async def test_a_conversation_by_previous_responses() -> None:
    model = ScriptedModel(says("Hello.", usage=Usage(input_tokens=3, output_tokens=2)), "Bye.")
    async with sdk(model) as (client, _):
        first = await client.responses.create(model="root", input="Hi")
        second = await client.responses.create(
            model="root", input="And?", previous_response_id=first.id
        )
        again = await client.responses.retrieve(first.id)
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match="not found"):
            await client.responses.retrieve(first.id)
    assert (first.output_text, second.output_text) == ("Hello.", "Bye.")
    assert first.usage is not None and first.usage.total_tokens == 5
    assert again == first
    assert [each.content for each in model.messages()] == ["Hi", "Hello.", "And?"]


async def test_the_stream_helper_follows_text_and_calls_to_their_end() -> None:
    model = ScriptedModel(says("Let ", "me.", calls=[("weather", "{}", "c1")]))
    async with sdk(model) as (client, _):
        async with client.responses.stream(model="root", input="Hi", tools=[WEATHER]) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_text == "Let me."
    assert [each.type for each in final.output] == ["message", "function_call"]


class Weather(BaseModel):
    place: str
    degrees: int


async def test_a_shape_is_asked_for_and_read() -> None:
    model = ScriptedModel('{"place":"Oslo","degrees":-3}')
    async with sdk(model) as (client, _):
        parsed = await client.responses.parse(model="root", input="Oslo?", text_format=Weather)
    assert parsed.output_parsed == Weather(place="Oslo", degrees=-3)
    schema = model.prompts[0].parameters.output_schema
    assert schema is not None and '"json_schema"' in schema


async def test_a_background_response_is_polled_followed_and_cancelled() -> None:
    gate = Gate()
    model = ScriptedModel(says("Hel", "lo.").waiting(gate, at=1), says("x").waiting(Gate(), at=0))
    async with sdk(model) as (client, _):
        queued = await client.responses.create(model="root", input="Hi", background=True)
        assert queued.status == "queued"
        await gate.reached.wait()
        assert (await client.responses.retrieve(queued.id)).status == "in_progress"
        gate.release()
        follow = await client.responses.retrieve(queued.id, stream=True)
        events = [event async for event in follow]
        rest = await client.responses.retrieve(queued.id, stream=True, starting_after=5)
        assert [event.sequence_number async for event in rest] == list(range(6, len(events)))
        assert events[-1].type == "response.completed"
        other = await client.responses.create(model="root", input="Hi", background=True)
        assert (await client.responses.cancel(other.id)).status == "cancelled"
        items = await client.responses.input_items.list(queued.id)
        assert [each.type for each in items.data] == ["message"]


async def test_a_failed_stream_is_a_failure() -> None:
    model = ScriptedModel(says("Half ", "of it").failing(at=1))
    async with sdk(model) as (client, _):
        stream = await client.responses.create(model="root", input="Hi", stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None


async def test_the_synchronous_client_works_as_well() -> None:
    model = ScriptedModel("One.", "Two.")
    async with sdk(model) as (_, server):

        def talk() -> tuple[str, str]:
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
                first = client.responses.create(model="root", input="1")
                with client.responses.stream(
                    model="root", input="2", previous_response_id=first.id
                ) as stream:
                    for _ in stream:
                        pass
                    return first.output_text, stream.get_final_response().output_text

        assert await asyncio.to_thread(talk) == ("One.", "Two.")


async def test_conversations_are_made_filled_paged_and_deleted() -> None:
    model = ScriptedModel("Hello.", "Bye.")
    async with sdk(model) as (client, _):
        made = await client.conversations.create(
            metadata={"topic": "travel"},
            items=[{"type": "message", "role": "user", "content": "Remember Oslo."}],
        )
        answer = await client.responses.create(
            model="root", input="Hi", conversation=made.id, store=True
        )
        assert answer.conversation is not None and answer.conversation.id == made.id
        await client.conversations.items.create(
            made.id, items=[{"type": "message", "role": "assistant", "content": "Noted."}]
        )
        items = [each async for each in client.conversations.items.list(made.id, limit=2)]
        assert [each.type for each in items] == ["message"] * 4
        last = items[0]
        assert last.id is not None
        one = await client.conversations.items.retrieve(last.id, conversation_id=made.id)
        assert one == last
        left = await client.conversations.items.delete(last.id, conversation_id=made.id)
        assert left.id == made.id
        changed = await client.conversations.update(made.id, metadata={"topic": "home"})
        assert changed.metadata == {"topic": "home"}
        assert (await client.conversations.retrieve(made.id)) == changed
        assert (await client.conversations.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.conversations.retrieve(made.id)
    assert [each.content for each in model.messages(0)] == ["Remember Oslo.", "Hi"]
