"""The `a2a` toolset: an agent of another server, by the A2A protocol, as tools.

The agent's card says what it can do: each of its skills is a tool, which sends the agent one message and gives back its
answer; an agent without skills is one tool. Both forms of the protocol are spoken over JSON-RPC, that of 0.3 and that
of 1.0, whichever the card offers. A task that goes on is asked about until it has ended.

Another agent may do anything, so a call needs a permission. Credentials go only to the server that the operator named:
a card that leads to another server does not get them sent there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import DAMAGE, Value
from holdfast.tools.built_in_tools import BuiltInTool, parameters, text_in, text_output
from holdfast.tools.execution import clean, failure
from holdfast.tools.names import valid_names
from holdfast.tools.tool import Tool, ToolBroken, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.openapi_document import Unusable, same_server
from holdfast.tools.toolsets.server_tools import ServerToolset
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed, shown
from holdfast.tools.web.server_answers import not_asked
from holdfast.tools.web.web_client import WebClient
from holdfast.wire.headers import A2A_VERSION

CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
POLL_S = 2.0
WORDS_MAX = 1_000
"""Of the words of a card about one skill."""

Said: TypeAlias = Mapping[str, Any]
"""An object of the protocol, from a foreign server: every member is checked where it is used."""
Pause: TypeAlias = Callable[[float], Awaitable[None]]

_NEWER = {
    "message/send": "SendMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
}
"""The methods of 0.3, and their names in 1.0."""
_DONE = "completed"
_FAILED = ("failed", "canceled", "cancelled", "rejected")
_NEEDS = ("input-required", "auth-required")


class RemoteAgent(Value):
    """Where an agent is, and how it is asked."""

    url: str
    name: str = ""
    """Its tools are called `name_skill`."""
    headers: Mapping[str, str] = {}
    """Credentials, with variables filled in: never shown."""
    timeout_s: float = 300.0
    """For one call, until the agent has answered."""
    allow_private: bool = False


class _Card(Value):
    """The part of a card that counts here."""

    name: str
    description: str
    endpoint: str
    is_newer: bool
    """It speaks 1.0."""
    skills: tuple[tuple[str, str], ...]
    """Names and descriptions."""


class A2aToolset(ServerToolset):
    """A tool for each skill of a remote agent."""

    def __init__(
        self, agent: RemoteAgent, *, guard: AddressGuard | None = None, pause: Pause = asyncio.sleep
    ) -> None:
        super().__init__(f"the agent at {shown(agent.url)}")
        self._agent = agent
        self._pause = pause
        self._web = WebClient(
            guard or AddressGuard(allow_private=agent.allow_private),
            bytes_max=limits.web_body_bytes_max,
            timeout_s=agent.timeout_s,
            quoted=True,
        )

    async def _load(self) -> tuple[Tool, ...]:
        card = await self._card()
        by_name = {_tool_name(each): (each, words) for each, words in reversed(card.skills)}
        made = valid_names((_tool_name(each) for each, _ in card.skills), prefix=self._agent.name)
        told = "".join(f"\n- {skill}: {words}" for skill, words in card.skills)
        self._about = f"{card.name} is an agent on another server: {card.description}{told}"
        return tuple(self._tool(name, card, *by_name[own]) for name, own in made.items())

    async def _card(self) -> _Card:
        """The agent's card. Raises FetchFailed or Unusable."""
        url = self._agent.url
        asked = [url] if url.endswith(".json") else [url.rstrip("/") + path for path in CARDS]
        status = 0
        for at in asked:
            answer = await self._web.ask(at, credentials=self._agent.headers, timeout_s=30)
            status = answer.status
            if status == 200:
                return read_card(answer.body, url)
        raise Unusable(f"it has no agent card: it answers {status}")

    def _tool(self, name: str, card: _Card, skill: str, words: str) -> BuiltInTool:
        spec = ToolSpec(
            name=name,
            description=f"Ask {card.name}, an agent on another server, to use its skill {skill!r}. {words}",
            parameters=parameters(
                ["message"],
                message={
                    "type": "string",
                    "minLength": 1,
                    "description": "What to do, with all that the agent has to know.",
                },
            ),
            timeout_s=self._agent.timeout_s + 5,
        )

        async def call(run: ToolRun) -> ToolOutput:
            return await self._call(card, run)

        return BuiltInTool(spec, call)

    async def _call(self, card: _Card, run: ToolRun) -> ToolOutput:
        message = message_of(text_in(run.arguments, "message"), run.call_key, newer=card.is_newer)
        sent: dict[str, Any] = {"message": message}
        if not card.is_newer:
            sent["configuration"] = {"blocking": True, "acceptedOutputModes": ["text/plain"]}
        try:
            async with asyncio.timeout(self._agent.timeout_s):
                said = result_in(
                    await self._ask(card, "message/send", sent, run), newer=card.is_newer
                )
                while (task := unfinished(said)) is not None:
                    await self._pause(POLL_S)
                    got = await self._ask(card, "tasks/get", {"id": task}, run)
                    said = result_in({"result": {"task": got.get("result")}} if card.is_newer else got,
                                     newer=card.is_newer)  # fmt: skip
        except TimeoutError:
            cause = f"has not answered within {self._agent.timeout_s:g} s"
            raise ToolBroken(f"{card.name} {cause}.", cause=cause) from None
        except FetchFailed as error:
            return not_asked(card.name, error)
        except Unusable as error:
            return failure(f"{card.name} answers: {error}")
        return outcome_of(said, card.name)

    async def _ask(self, card: _Card, method: str, sent: Said, run: ToolRun) -> Said:
        body = {
            "jsonrpc": "2.0",
            "id": run.call_key,
            "method": _NEWER[method] if card.is_newer else method,
            "params": sent,
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if card.is_newer:
            headers[A2A_VERSION.title] = "1.0"
        is_trusted = same_server(card.endpoint, self._agent.url)
        answer = await self._web.ask(
            card.endpoint,
            method="POST",
            headers=headers,
            credentials=self._agent.headers if is_trusted else {},
            body=msgspec.json.encode(body),
        )
        said = _object(answer.body)
        if answer.status != 200 and "error" not in said:
            raise Unusable(f"status {answer.status}")
        return said


# ── the protocol ─────────────────────────────────────────────────────────────────────────────


def read_card(data: bytes, url: str) -> _Card:
    """The card in these bytes, which came from `url`. Raises Unusable."""
    card = _object(data)
    endpoint, is_newer = _endpoint(card, url)
    name = _text(card, "name") or "The agent"
    skills = [each for each in _list(card, "skills") if isinstance(each, dict)]
    known = tuple(
        ((_text(each, "id") or _text(each, "name"))[:64], _text(each, "description")[:WORDS_MAX])
        for each in skills[: limits.api_operations_max]
        if _text(each, "id") or _text(each, "name")
    )
    description = _text(card, "description")[:WORDS_MAX]
    return _Card(
        name=name[:64],
        description=description,
        endpoint=endpoint,
        is_newer=is_newer,
        skills=known or ((name[:64], description),),
    )


def _endpoint(card: Said, url: str) -> tuple[str, bool]:
    """The address that the agent is asked at by JSON-RPC, and whether it speaks 1.0. Raises Unusable."""
    for each in _list(card, "supportedInterfaces"):
        if isinstance(each, dict) and _text(each, "protocolBinding").upper() == "JSONRPC":
            is_newer = not _text(each, "protocolVersion").startswith("0.")
            return _text(each, "url") or url, is_newer
    others = [each for each in _list(card, "additionalInterfaces") if isinstance(each, dict)]
    offered = {_text(card, "preferredTransport") or "JSONRPC": _text(card, "url") or url}
    offered |= {_text(each, "transport"): _text(each, "url") for each in others}
    if "supportedInterfaces" in card or not offered.get("JSONRPC"):
        raise Unusable("its card offers no JSON-RPC")
    return offered["JSONRPC"], False


def message_of(words: str, key: str, *, newer: bool) -> dict[str, Any]:
    """A message of the user, under the stable key of its call."""
    if newer:
        return {"messageId": key, "role": "ROLE_USER", "parts": [{"text": words}]}
    part = {"kind": "text", "text": words}
    return {"kind": "message", "messageId": key, "role": "user", "parts": [part]}


def result_in(answer: Said, *, newer: bool) -> Said:
    """The message or the task of an answer. Raises Unusable for an error."""
    error = answer.get("error")
    if isinstance(error, dict):
        raise Unusable(_text(error, "message")[:WORDS_MAX] or "an error without words")
    result = answer.get("result")
    if newer and isinstance(result, dict):
        result = result.get("task") or result.get("message")
    if not isinstance(result, dict):
        raise Unusable("neither a message nor a task")
    return result


def state_of(said: Said) -> str:
    """The state of a task, in the words of 0.3; empty for a message."""
    status = said.get("status")
    word = _text(status, "state") if isinstance(status, dict) else ""
    return word.removeprefix("TASK_STATE_").lower().replace("_", "-")


def unfinished(said: Said) -> str | None:
    """The id of a task that goes on; None for a message, and for a task that has ended or needs something."""
    is_over = state_of(said) in ("", _DONE, *_FAILED, *_NEEDS, "unknown", "unspecified")
    return None if is_over else _text(said, "id") or None


def outcome_of(said: Said, name: str) -> ToolOutput:
    """The output of a call that an agent has answered with this."""
    state, words = state_of(said), clean("\n".join(_words_in(said)))
    if state in _FAILED:
        return failure(f"{name} could not do it ({state}): {words}".rstrip(": "))
    if state == "auth-required":
        return failure(f"{name} wants the operator to sign in: {words}".rstrip(": "))
    if state == "input-required":
        return text_output(f"{name} asks before it goes on; ask again, with the answer: {words}")
    return text_output(words) if words else failure(f"{name} has answered without words.")


def _words_in(said: Said) -> Iterator[str]:
    """The texts of a message, or of a task: those of its artifacts, else those of its status."""
    if "parts" in said:
        yield from _texts_of(said)
        return
    found = [
        text
        for each in _list(said, "artifacts")
        if isinstance(each, dict)
        for text in _texts_of(each)
    ]
    status = said.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    yield from found or (_texts_of(message) if isinstance(message, dict) else ())


def _texts_of(said: Said) -> Iterator[str]:
    for part in _list(said, "parts"):
        if not isinstance(part, dict):
            continue
        if text := _text(part, "text"):
            yield text
        elif "data" in part:
            yield msgspec.json.encode(part["data"]).decode()
        else:
            yield "[something that is not text]"


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(data)
    except DAMAGE as error:
        raise Unusable("something that is no JSON") from error
    if not isinstance(said, dict):
        raise Unusable("something that is no JSON object")
    return said


def _text(said: Said, name: str) -> str:
    value = said.get(name)
    return clean(value) if isinstance(value, str) else ""


def _list(said: Said, name: str) -> list[Any]:
    value = said.get(name)
    return value if isinstance(value, list) else []


def _tool_name(skill: str) -> str:
    """A skill's name as docker-agent writes it, so that rules of its files match."""
    return re.sub(r"[^a-z0-9]+", "_", skill.lower()).strip("_") or skill
