"""Another agent: the client of the protocol's own SDK, over either binding and in either version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict

Binding: TypeAlias = Literal["JSONRPC", "HTTP+JSON"]
Version: TypeAlias = Literal["1.0", "0.3"]
Event: TypeAlias = dict[str, Any]

WAYS: list[tuple[Binding, Version]] = [
    ("JSONRPC", "1.0"),
    ("HTTP+JSON", "1.0"),
    ("JSONRPC", "0.3"),
    ("HTTP+JSON", "0.3"),
]
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]}-{way[1]}")

NEW_FIELDS = ("supportedInterfaces", "securityRequirements")
"""The fields of a card that a client of version 0.3 does not know."""


class SdkPeer:
    """A client of one agent."""

    def __init__(self, card: Any, http: httpx.AsyncClient, binding: Binding) -> None:
        self.card = card
        self._client = _client(card, http, binding, streaming=False)
        self._streaming = _client(card, http, binding, streaming=True)

    async def send(self, text: str, **given: Any) -> Event:
        """Send a message, and get the task at its end."""
        (only,) = [_plain(each) async for each in self._client.send_message(_message(text, given))]
        found: Event = only["task"]
        return found

    async def stream(self, text: str, **given: Any) -> AsyncGenerator[Event, None]:
        """Send a message, and watch its task."""
        async for each in self._streaming.send_message(_message(text, given)):
            yield _plain(each)

    async def streamed(self, text: str, **given: Any) -> list[Event]:
        return [each async for each in self.stream(text, **given)]

    async def subscribe(self, task_id: str) -> AsyncGenerator[Event, None]:
        async for each in self._streaming.subscribe(pb.SubscribeToTaskRequest(id=task_id)):
            yield _plain(each)

    async def subscribed(self, task_id: str) -> list[Event]:
        return [each async for each in self.subscribe(task_id)]

    async def get(self, task_id: str, **given: Any) -> Event:
        asked = ParseDict({"id": task_id, **given}, pb.GetTaskRequest())
        return _plain(await self._client.get_task(asked))

    async def cancel(self, task_id: str) -> Event:
        return _plain(await self._client.cancel_task(pb.CancelTaskRequest(id=task_id)))

    async def list(self, **given: Any) -> Event:
        asked = ParseDict(given, pb.ListTasksRequest())
        return _plain(await self._client.list_tasks(asked))

    async def extended_card(self) -> Event:
        return _plain(await self._client.get_extended_agent_card(pb.GetExtendedAgentCardRequest()))

    async def ask_for_push(self, task_id: str) -> Event:
        asked = pb.TaskPushNotificationConfig(task_id=task_id, url="http://127.0.0.1:9/")
        return _plain(await self._client.create_task_push_notification_config(asked))


@asynccontextmanager
async def peer(
    url: str,
    *,
    agent: str = "root",
    way: tuple[Binding, Version] = WAYS[0],
    key: str = "",
    pooled: bool = True,
) -> AsyncIterator[SdkPeer]:
    """A client of a published agent at the server with this URL."""
    binding, version = way
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    bounds = httpx.Limits() if pooled else httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(headers=headers, timeout=120.0, limits=bounds) as http:
        yield SdkPeer(await _card(http, f"{url}/a2a/{agent}", version), http, binding)


async def _card(http: httpx.AsyncClient, url: str, version: Version) -> Any:
    if version == "1.0":
        return await A2ACardResolver(http, url).get_agent_card()
    found = (await http.get(f"{url}/.well-known/agent-card.json")).raise_for_status().json()
    return parse_agent_card({name: each for name, each in found.items() if name not in NEW_FIELDS})


def _client(card: Any, http: httpx.AsyncClient, binding: Binding, *, streaming: bool) -> Any:
    config = ClientConfig(
        streaming=streaming,
        httpx_client=http,
        supported_protocol_bindings=[binding],
        use_client_preference=True,
    )
    return ClientFactory(config).create(card)


def _message(text: str, given: dict[str, Any]) -> Any:
    options = given.pop("configuration", {})
    parts = given.pop("parts", [{"text": text}])
    sent = {"role": "ROLE_USER", "parts": parts, **given}
    return ParseDict({"message": sent, "configuration": options}, pb.SendMessageRequest())


def _plain(message: Any) -> Event:
    made: Event = MessageToDict(message)
    return made


def text_of(task: Event) -> str:
    """The agent's words in a task."""
    return "".join(
        part.get("text", "") for each in task.get("artifacts", ()) for part in each["parts"]
    )


def told(events: list[Event]) -> str:
    """The agent's words in a stream, as a client puts them together."""
    texts: dict[str, str] = {}
    for each in events:
        if update := each.get("artifactUpdate"):
            artifact = update["artifact"]
            piece = "".join(part.get("text", "") for part in artifact["parts"])
            so_far = texts.get(artifact["artifactId"], "") if update.get("append") else ""
            texts[artifact["artifactId"]] = so_far + piece
    return "".join(texts.values())


def last_state(events: list[Event]) -> str:
    found: str = events[-1]["statusUpdate"]["status"]["state"]
    return found
