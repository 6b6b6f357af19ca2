"""A clerk as many people write one first: the history is a list, saved as it goes. It is here to be caught.

    python naive.py PORT UPSTREAM EFFECTS FOLDER

Asked as the small server around libraries is (`bench/peers/harness.py`). What is wrong with it: a message is stored
before anybody knows whether it will be answered, half an answer is stored like a whole one, nobody waits for anybody,
and a call is stored before it has a result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

Message = dict[str, Any]


class Naive:
    def __init__(self, upstream: str, effects: str, folder: Path) -> None:
        self._upstream = upstream
        self._effects = effects
        self._folder = folder

    def _load(self, name: str) -> list[Message]:
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else []

    def _save(self, name: str, messages: list[Message]) -> None:
        (self._folder / f"{name}.json").write_text(json.dumps(messages))

    async def turn(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = asked["conversation"]
        messages = self._load(name)
        messages.append({"role": "user", "content": asked["text"]})
        self._save(name, messages)
        async with aiohttp.ClientSession(raise_for_status=True) as http:
            while True:
                body = {"model": "recorder", "messages": messages}
                async with http.post(f"{self._upstream}/chat/completions", json=body) as response:
                    message = (await response.json())["choices"][0]["message"]
                messages.append(message)
                self._save(name, messages)
                if not message.get("tool_calls"):
                    return web.json_response({"text": message["content"]})
                async with http.post(self._effects) as response:
                    said = await response.text()
                call_id = message["tool_calls"][0]["id"]
                messages.append({"role": "tool", "tool_call_id": call_id, "content": said})

    async def history(self, request: web.Request) -> web.Response:
        return web.json_response({"messages": self._load(request.match_info["name"])})

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()


if __name__ == "__main__":
    port, upstream, effects, folder = sys.argv[1:]
    naive = Naive(upstream, effects, Path(folder))
    application = web.Application()
    application.router.add_post("/turn", naive.turn)
    application.router.add_get("/history/{name}", naive.history)
    application.router.add_get("/healthz", naive.health)
    web.run_app(application, host="127.0.0.1", port=int(port), print=None)
