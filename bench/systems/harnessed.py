"""Libraries without a server of their own, each behind the same small one (`peers/harness.py`), in its environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import aiohttp

from systems.base import Answer, Asked, Place, Request, Running, Said, System, data_lines, said_of
from systems.environments import python_of

PEERS = Path(__file__).parents[1] / "peers"


class HarnessedRunning(Running):
    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        async def read(response: aiohttp.ClientResponse) -> Answer:
            if asked.stream:
                return await self._streamed(response, told)
            return Answer(200, (await response.json())["text"])

        return await self.post(turn(asked), read)

    async def _streamed(
        self, response: aiohttp.ClientResponse, told: Callable[[str], None]
    ) -> Answer:
        text = ""
        async for line in data_lines(response):
            if line == "[DONE]":
                return Answer(200, text)
            event = json.loads(line)
            if "error" in event:
                return Answer(200, text, failure=event["error"][:300])
            text += event["text"]
            told(event["text"])
        return Answer(200, text, failure="the stream broke off")

    async def history(self, conversation: str) -> tuple[Said, ...]:
        async with self.http.get(f"{self.url}/history/{conversation}") as response:
            response.raise_for_status()
            return said_of((await response.json())["messages"])

    async def cancel(self, conversation: str) -> str:
        async with self.http.post(f"{self.url}/cancel/{conversation}") as response:
            return str((await response.json())["said"])


def turn(asked: Asked) -> Request:
    body = {"conversation": asked.conversation, "text": asked.text, "stream": asked.stream}
    if asked.key is not None:
        body["key"] = asked.key
    return Request("/turn", json.dumps(body).encode())


class Harnessed(System):
    """A library. `script` is its file in `peers/`; `choice` is what that file calls the variant."""

    runner = HarnessedRunning
    knows_deadline = True
    script: ClassVar[str]
    choice: ClassVar[str] = ""

    def request(self, asked: Asked) -> Request:
        return turn(asked)

    def command(self, place: Place) -> Sequence[str]:
        arguments = {
            "port": place.port,
            "upstream": place.upstream,
            "effects": place.effects,
            "folder": place.folder,
            "postgres": place.postgres or "",
            "moved": "yes" if place.moved else "",
            "deadline": place.deadline_s or "",
            "variant": self.choice,
            "model": place.model,
        }
        flags = [f"--{name}={value}" for name, value in arguments.items()]
        return [str(python_of(self.environment)), str(PEERS / self.script), *flags]


class AgentsSdkSqlite(Harnessed):
    name = "openai-agents"
    title = "OpenAI Agents SDK"
    variant = "SQLiteSession"
    configured = "`Runner.run(agent, text, session=SQLiteSession(id, path))`, behind FastAPI."
    environment = "openai-agents"
    packages: ClassVar[tuple[str, ...]] = ("openai-agents", "openai")
    script = "serve_openai_agents.py"


class AgentsSdkAfterTurn(AgentsSdkSqlite):
    variant = "SQLiteSession, after_turn"
    configured = (
        'The same, stopped by `result.cancel(mode="after_turn")`, which lets the model and its tools end their step, '
        "in place of the immediate stop that it is by default."
    )
    choice = "after turn"


class AgentsSdkSqlAlchemy(AgentsSdkSqlite):
    variant = "SQLAlchemySession"
    configured = (
        "`Runner.run(agent, text, session=SQLAlchemySession.from_url(id, url=…, create_tables=True))` "
        "on SQLite through aiosqlite, behind FastAPI."
    )
    packages = ("openai-agents", "openai", "sqlalchemy")
    choice = "sqlalchemy"
