"""Responses, by OpenAI's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import openai

from tests.e2e.doors.chat import ChatDoor
from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.world import World


class ResponsesDoor(ChatDoor):
    """`POST /v1/responses`. Stopping and finding a session are the same as on chat."""

    name = "responses"
    lacks: Mapping[Behaviour, str] = {}

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        headers = {"X-Conversation-Id": to, **({"Idempotency-Key": key} if key else {})}
        async with world.openai() as client:
            try:
                answer = await client.responses.create(
                    model="root", input=said, extra_headers=headers
                )
            except openai.APIError as failed:
                return DoorAnswer(error=failed.code or type(failed).__name__)
        return DoorAnswer(text=answer.output_text)

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        async with world.openai() as client:
            stream = await client.responses.create(
                model="root", input=said, stream=True, extra_headers={"X-Conversation-Id": to}
            )
            async with stream:
                yield
