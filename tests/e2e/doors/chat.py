"""Chat Completions, by OpenAI's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import openai

from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.world import World


class ChatDoor:
    """`POST /v1/chat/completions`."""

    name = "chat"
    lacks: Mapping[Behaviour, str] = {}
    goes_on_alone = False

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        headers = {"X-Conversation-Id": to, **({"Idempotency-Key": key} if key else {})}
        async with world.openai() as client:
            try:
                answer = await client.chat.completions.create(
                    model="root",
                    messages=[{"role": "user", "content": said}],
                    extra_headers=headers,
                )
            except openai.APIError as failed:
                return DoorAnswer(error=failed.code or type(failed).__name__)
        return DoorAnswer(text=answer.choices[0].message.content or "")

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        async with world.streaming(said, to=to) as response:
            await response.content.readany()
            yield

    async def cancel(self, world: World, *, to: str) -> None:
        (running, *_) = await world.turns(to)
        answer = await world.request("POST", f"/api/turns/{running['id']}/cancel")
        assert answer.status == 200

    async def session(self, world: World, *, to: str) -> str:
        return to
