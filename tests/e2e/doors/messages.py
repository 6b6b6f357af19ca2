"""Anthropic's Messages, by its SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic

from tests.e2e.doors.chat import ChatDoor
from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.world import World


def asked(said: str) -> dict[str, Any]:
    return {"model": "root", "max_tokens": 512, "messages": [{"role": "user", "content": said}]}


class MessagesDoor(ChatDoor):
    """`POST /v1/messages`. Stopping and finding a session are the same as on chat."""

    name = "messages"
    lacks: Mapping[Behaviour, str] = {}

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        headers = {"X-Conversation-Id": to, **({"Idempotency-Key": key} if key else {})}
        async with _client(world) as client:
            try:
                answer = await client.messages.create(**asked(said), extra_headers=headers)
            except anthropic.APIStatusError as failed:
                told: Any = failed.body
                return DoorAnswer(error=told["error"]["code"])
        texts = (each.text for each in answer.content if each.type == "text")
        return DoorAnswer(text="".join(texts))

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        headers = {"X-Conversation-Id": to}
        async with _client(world) as client:
            async with client.messages.stream(**asked(said), extra_headers=headers):
                yield


def _client(world: World) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=world.url, api_key="none", max_retries=0)
