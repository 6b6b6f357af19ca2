"""Clients that keep talking, each in a conversation of its own, and remember what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from openai import AsyncOpenAI

from tests.e2e.world import World

RETRY_S = 0.1
ANSWER = "This is the whole answer to {} "


class Crowd:
    """Obtained by `talking`. Whatever a client of it cannot get over ends the test."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.told: dict[str, list[str]] = {}
        """By conversation: what was acknowledged, in order."""
        self.left = asyncio.Event()
        self._grown = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def talking(cls, world: World, *, keyed: int = 0, sdk: int = 0) -> AsyncIterator[Crowd]:
        """`keyed` clients repeat what fails under its key; `sdk` ones have no key, and leave it to the SDK."""
        crowd = cls(world)
        async with asyncio.TaskGroup() as group:
            for n in range(keyed):
                group.create_task(crowd._talk(crowd._named(f"keyed-{n}")))
            for n in range(sdk):
                group.create_task(crowd._talk_by_sdk(crowd._named(f"sdk-{n}")))
            try:
                yield crowd
            finally:
                crowd.left.set()

    def _named(self, name: str) -> str:
        """Somebody of this name, who is waited for from now on, though no word was said yet."""
        self.told[name] = []
        return name

    async def heard_more(self, answers: int) -> None:
        """Wait until everybody was answered so many more times."""
        wanted = {name: len(told) + answers for name, told in self.told.items()}

        def all_were() -> bool:
            return all(len(self.told[name]) >= number for name, number in wanted.items())

        async with asyncio.timeout(60), self._grown:
            await self._grown.wait_for(all_were)

    async def judge(self) -> None:
        """Every conversation is what its client was told, each message once, and nothing else."""
        for name, told in self.told.items():
            items = await self._world.items(name)
            texts = [each["content"][0]["text"] for each in items]
            expected = [text for said in told for text in (said, ANSWER.format(said))]
            assert texts == expected, name
        await self._world.verify()

    async def _acknowledged(self, name: str, said: str) -> None:
        self.told[name].append(said)
        async with self._grown:
            self._grown.notify_all()

    async def _talk(self, name: str) -> None:
        """Nobody leaves in the middle: whether something was kept that nobody was told of is not known."""
        while True:
            said = f"{name}-{len(self.told[name])}"
            if not await self._is_answered(said, name):
                await asyncio.sleep(RETRY_S)
                continue
            await self._acknowledged(name, said)
            if self.left.is_set():
                return

    async def _is_answered(self, said: str, name: str) -> bool:
        try:
            answer = await self._world.chat(said, to=name, headers={"Idempotency-Key": said})
        except (aiohttp.ClientError, OSError):
            return False
        assert answer.status in (200, 503), answer.body
        assert answer.status == 200 or "retry-after" in answer.headers
        return answer.status == 200 and answer.text == ANSWER.format(said)

    async def _talk_by_sdk(self, name: str) -> None:
        async with self._world.openai(max_retries=2) as client:
            while not self.left.is_set():
                said = f"{name}-{len(self.told[name])}"
                await self._say(client, said, name, stream=len(self.told[name]) % 2 == 1)
                await self._acknowledged(name, said)

    async def _say(self, client: AsyncOpenAI, said: str, name: str, *, stream: bool) -> None:
        asked = client.chat.completions
        named = {"X-Conversation-Id": name}
        if not stream:
            answer = await asked.create(
                model="root", messages=[{"role": "user", "content": said}], extra_headers=named
            )
            assert answer.choices[0].message.content == ANSWER.format(said)
            return
        chunks = await asked.create(
            model="root",
            messages=[{"role": "user", "content": said}],
            extra_headers=named,
            stream=True,
        )
        pieces = [each.choices[0].delta.content or "" async for each in chunks]
        assert "".join(pieces) == ANSWER.format(said)
