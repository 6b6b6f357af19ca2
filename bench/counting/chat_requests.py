"""So many chat requests in one conversation in memory, from their bytes to those of the answer: through the application
and an agent on a model that says one word, without sockets. With `--keyed` each has an idempotency key. Run by
`bench/_instructions.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from typing import Any

import uvloop
from loop import Upstream, frames, team_on
from still import sessions_of

from holdfast.agents.agent import Team
from holdfast.agents.registry import Registry
from holdfast.loop.player import Player
from holdfast.server.agents.source_directory import AgentDirectory
from holdfast.server.app import App
from holdfast.server.turns.turn_failures import with_failure_codes

BODY = b'{"model": "butler", "messages": [{"role": "user", "content": "Tell me."}]}'


class OneTeam:
    """A source that never changes."""

    name = key = "counted"
    given_name = ""
    poll_s = None

    async def changed(self) -> bool:
        return False

    async def load(self) -> Team:
        return team_on(Upstream(frames(1), waits=False))


async def posted(app: App, *headers: tuple[bytes, bytes]) -> None:
    """Send a request to the application, and wait for its answer."""
    answered = asyncio.Event()
    messages = [{"type": "http.request", "body": BODY}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"x-conversation-id", b"counted"), *headers],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    answered.set()
    assert statuses == [200], statuses


async def main(count: int, *, keyed: bool) -> None:
    registry = Registry([OneTeam()])
    await registry.refresh()
    directory = AgentDirectory(registry)
    play = with_failure_codes(Player(directory.team_for))
    async with sessions_of(play, choose=directory.choose) as sessions:
        app = App(sessions, directory)
        for n in range(count):
            await posted(app, *([(b"idempotency-key", b"%d" % n)] if keyed else []))
    await directory.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--keyed", action="store_true")
    asked = parser.parse_args()
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(asked.count, keyed=asked.keyed))
