"""OGX, which was called Llama Stack: a server of its own, with the Responses and the Conversations API on SQLite.

It has no agents that are stored: who the agent is stands in every request.
Tools that the server itself calls come over MCP (`peers/charge_mcp.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import aiohttp

from systems.base import (
    INSTRUCTIONS,
    Answer,
    Asked,
    NotOffered,
    Place,
    Request,
    Running,
    Said,
    data_lines,
    text_of,
)
from systems.environments import python_of
from systems.notes import Notes
from systems.over_mcp import OverMcp, tools_of

POLL_S = 0.1
CONFIG = """
version: 2
distro_name: clerk
apis: [inference, responses, conversations, tool_runtime, vector_io, files]
providers:
  inference:
  - provider_id: recorder
    provider_type: remote::openai
    config: {{base_url: "{upstream}", api_key: bench}}
  responses:
  - provider_id: builtin
    provider_type: inline::builtin
    config:
      persistence:
        responses: {{table_name: responses, backend: sql_default}}
  tool_runtime:
  - {{provider_id: mcp, provider_type: "remote::model-context-protocol"}}
  vector_io: []
  files:
  - provider_id: files
    provider_type: inline::localfs
    config:
      storage_dir: {folder}/files
      metadata_store: {{table_name: files_metadata, backend: sql_default}}
storage:
  backends:
    kv_default: {{type: kv_sqlite, db_path: "{folder}/kvstore.db"}}
    sql_default: {{type: sql_sqlite, db_path: "{folder}/sql_store.db"}}
  stores:
    metadata: {{namespace: registry, backend: kv_default}}
    inference: {{table_name: inference_store, backend: sql_default}}
    conversations: {{table_name: openai_conversations, backend: sql_default}}
    prompts: {{table_name: prompts, backend: sql_default}}
    connectors: {{table_name: connectors, backend: sql_default}}
registered_resources:
  models:
  - {{model_id: clerk, provider_id: recorder, provider_model_id: {model}, model_type: llm}}
server: {{host: 127.0.0.1, port: {port}}}
"""


class OgxRunning(Running):
    """Speaks the Responses API. Which conversation is which, the client must remember by itself."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.notes = Notes(self.place.folder)
        self._opening = asyncio.Lock()

    async def goes_on(self, conversation: str) -> Mapping[str, object]:
        """What a request says in order to go on with a conversation."""
        async with self._opening:
            if self.notes[conversation] is None:
                async with self.http.post(f"{self.url}/v1/conversations", json={}) as response:
                    self.notes[conversation] = (await response.json())["id"]
        return {"conversation": self.notes[conversation]}

    def ended(self, conversation: str, response: Mapping[str, Any]) -> None:
        """A response has come to its end, and the client has it."""

    async def body(self, asked: Asked) -> dict[str, object]:
        tool = {
            "type": "mcp",
            "server_label": "office",
            "server_url": tools_of(self.place),
            "require_approval": "never",
        }
        return {
            **turn(asked),
            **await self.goes_on(asked.conversation),
            "tools": [tool],
        }

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        return await self.in_time(self.played(asked, told))

    async def played(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        request = Request("/v1/responses", json.dumps(await self.body(asked)).encode())
        return await self.post(request, partial(self.answered, asked, told))

    async def answered(
        self, asked: Asked, told: Callable[[str], None], response: aiohttp.ClientResponse
    ) -> Answer:
        if not asked.stream:
            return self.whole(asked, await response.json())
        async for line in data_lines(response):
            event = json.loads(line)
            match event["type"]:
                case "response.output_text.delta":
                    told(event["delta"])
                case "response.completed" | "response.incomplete" | "response.failed":
                    return self.whole(asked, event["response"])
                case "error":
                    return Answer(200, "", failure=line[:300])
        return Answer(200, "", failure="the stream broke off")

    def whole(self, asked: Asked, response: Mapping[str, Any]) -> Answer:
        if response["status"] != "completed":
            return Answer(200, "", failure=f"{response['status']}: {response.get('error')}")
        self.ended(asked.conversation, response)
        said = [text_of(each["content"]) for each in response["output"] if "content" in each]
        return Answer(200, "".join(said))

    async def history(self, conversation: str) -> tuple[Said, ...]:
        return await self.items(f"conversations/{self.notes[conversation]}/items")

    async def items(self, of: str) -> tuple[Said, ...]:
        """A list of items, oldest first."""
        ordered = {"order": "asc", "limit": "100"}
        async with self.http.get(f"{self.url}/v1/{of}", params=ordered) as response:
            response.raise_for_status()
            return said_of_items((await response.json())["data"])

    async def cancel(self, conversation: str) -> str:
        raise NotOffered("way to stop a turn, except for background responses")


class ChainRunning(OgxRunning):
    """Goes on from the last response that the client has got."""

    async def goes_on(self, conversation: str) -> Mapping[str, object]:
        previous = self.notes[conversation]
        return {"previous_response_id": previous} if previous else {}

    def ended(self, conversation: str, response: Mapping[str, Any]) -> None:
        self.notes[conversation] = response["id"]

    async def history(self, conversation: str) -> tuple[Said, ...]:
        address = self.notes[conversation]
        before = await self.items(f"responses/{address}/input_items")
        async with self.http.get(f"{self.url}/v1/responses/{address}") as response:
            return before + said_of_items((await response.json())["output"])


class BackgroundRunning(OgxRunning):
    """Asks for responses in the background, and looks after them until they have ended. Who has lost patience has
    the response's id by then, so it looks again in place of asking again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest: dict[str, str] = {}

    async def body(self, asked: Asked) -> dict[str, object]:
        return {**await super().body(asked), "background": True, "stream": False}

    async def answered(
        self, asked: Asked, told: Callable[[str], None], response: aiohttp.ClientResponse
    ) -> Answer:
        state = await response.json()
        self._latest[asked.conversation] = state["id"]
        return await self.followed(asked, state)

    async def played(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        latest = self._latest.get(asked.conversation)
        if not asked.attempt or latest is None:
            return await super().played(asked, told)
        return await self.followed(asked, {"id": latest, "status": "queued"})

    async def followed(self, asked: Asked, state: Mapping[str, Any]) -> Answer:
        while state["status"] in ("queued", "in_progress"):
            await asyncio.sleep(POLL_S)
            if self.http.closed:
                return Answer(0, "", failure="the server is gone")
            async with self.http.get(f"{self.url}/v1/responses/{state['id']}") as polled:
                polled.raise_for_status()
                state = await polled.json()
        return self.whole(asked, state)

    async def cancel(self, conversation: str) -> str:
        url = f"{self.url}/v1/responses/{self._latest[conversation]}/cancel"
        async with self.http.post(url) as response:
            return f"{response.status} {(await response.text())[:200]}"


def turn(asked: Asked) -> dict[str, object]:
    """A turn, and who the agent is."""
    return {
        "model": "recorder/clerk",
        "instructions": INSTRUCTIONS,
        "input": asked.text,
        "stream": asked.stream,
    }


def said_of_items(items: Sequence[Mapping[str, Any]]) -> tuple[Said, ...]:
    """Items of the Responses API. An MCP call is there with its result, or with its error."""
    found: list[Said] = []
    for each in items:
        match each["type"]:
            case "message":
                found.append(Said(each["role"], text_of(each["content"])))
            case "mcp_call":
                found.append(Said("assistant", calls=(each["id"],)))
                results = [each[name] for name in ("output", "error") if each.get(name) is not None]
                found += [Said("tool", result, answers=each["id"]) for result in results[:1]]
            case "mcp_list_tools":
                pass
            case other:
                raise ValueError(f"{other} has no place in these conversations")
    return tuple(found)


class Ogx(OverMcp):
    name = "ogx"
    title = "OGX (Llama Stack)"
    variant = "conversation"
    configured = (
        "`ogx run config.yaml` with `inline::builtin` responses on SQLite and `remote::openai`; a turn is "
        "`POST /v1/responses` with `conversation`; the tool is an MCP server with `require_approval: never`."
    )
    environment = "ogx"
    packages = ("ogx", "mcp")
    python = "3.12"
    knows_agents = False
    runner: ClassVar[type[Running]] = OgxRunning

    def request(self, asked: Asked) -> Request:
        """The first turn of a conversation, which is stored; a conversation of its own would be a second request."""
        return Request("/v1/responses", json.dumps(turn(asked)).encode())

    def command(self, place: Place) -> Sequence[str]:
        program = str(python_of(self.environment).with_name("ogx"))
        return [program, "run", str(place.folder / "config.yaml"), "--insecure"]

    def env(self, place: Place) -> Mapping[str, str]:
        return {"OGX_CONFIG_DIR": f"{place.folder}/ogx", "OGX_LOGGING": "all=warning"}

    def prepare(self, place: Place) -> None:
        super().prepare(place)
        config = CONFIG.format(
            upstream=place.upstream, folder=place.folder, model=place.model, port=place.port
        )
        (place.folder / "config.yaml").write_text(config)

    async def is_ready(self, running: Running) -> bool:
        async with running.http.get(f"{running.url}/v1/health") as response:
            if response.status != 200:
                return False
        return await super().is_ready(running)


class OgxChain(Ogx):
    variant = "previous_response_id"
    configured = (
        "As above; a turn is `POST /v1/responses` with the `previous_response_id` of the last response that the "
        "client has got."
    )
    runner = ChainRunning


class OgxBackground(Ogx):
    variant = "background"
    configured = (
        "As above; a turn is `POST /v1/responses` with `conversation` and `background: true`, which is the only kind "
        "that can be cancelled and cannot be streamed; the client polls for its end, and again if it gave up."
    )
    runner = BackgroundRunning
