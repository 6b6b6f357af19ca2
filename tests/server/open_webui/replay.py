"""Plays what Open WebUI sent, on a server, and compares what the model is shown with what the person saw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import aiohttp
import msgspec

from holdfast.core.history.branches import answer_words
from holdfast.testing import Gate, Script
from tests.server.open_webui.recording import RecordedMessage, RecordedRequest, Recording
from tests.server.stubs import Answer

Said = list[tuple[str, str]]
"""Messages, as a role and the words of it: neighbouring answers as one, without white space and reasoning."""


class Server(Protocol):
    """A server in this process, or a process of its own."""

    url: str

    @property
    def http(self) -> aiohttp.ClientSession: ...

    async def items(self, name: str) -> list[dict[str, Any]]: ...


def spoken(messages: Sequence[tuple[str, str]]) -> Said:
    found: Said = []
    for role, text in messages:
        if role not in ("user", "assistant"):
            continue
        words = answer_words(text) if role == "assistant" else "".join(text.split())
        if found and role == found[-1][0] == "assistant":
            words = found.pop()[1] + words
        if words:
            found.append((role, words))
    return found


def told(messages: Sequence[dict[str, Any]]) -> Said:
    return spoken([(str(each["role"]), str(each.get("content") or "")) for each in messages])


def branch_said(branch: Sequence[RecordedMessage]) -> Said:
    return spoken([(each.role, each.text) for each in branch])


class ScriptedAnswers:
    """The model behind the server: it answers as it did, if it is shown what the request has."""

    def __init__(self) -> None:
        self._expected: list[RecordedRequest] = []
        self.gates: list[Gate] = []
        """Where an answer waits that was stopped."""
        self.prompts: list[Said] = []
        self.unexpected: list[Said] = []

    def expect(self, request: RecordedRequest) -> None:
        self._expected.append(request)

    def forget(self, request: RecordedRequest) -> None:
        """Expect a request no longer, if its model was not asked."""
        if request in self._expected:
            self._expected.remove(request)

    def answer(self, model: str, messages: Sequence[dict[str, Any]]) -> Script:
        shown = told(messages)
        self.prompts.append(shown)
        for each in self._expected:
            if each.model == model and told(each.messages) == shown:
                self._expected.remove(each)
                return self._held(each.script) if each.is_stopped else each.script
        self.unexpected.append(shown)
        raise AssertionError(f"the model was shown {shown}")

    def _held(self, script: Script) -> Script:
        self.gates.append(Gate())
        return script.waiting(self.gates[-1], at=len(script.steps) - 1)

    @property
    def left(self) -> list[RecordedRequest]:
        """Requests whose model was not asked."""
        return self._expected


class Replay:
    """One chat of a recording, on one server."""

    def __init__(self, recording: Recording, answers: ScriptedAnswers) -> None:
        self.recording = recording
        self.answers = answers
        self.lines: dict[str, None] = {}
        """The lines that have answered, in the order in which they did first."""
        self.statuses: list[int] = []

    async def play(
        self,
        server: Callable[[], Server],
        *,
        instead: Callable[[RecordedRequest, Callable[[], Awaitable[None]]], Awaitable[None]]
        | None = None,
    ) -> None:
        """Send everything in order; `instead` may do something about a request before it is sent."""

        async def send(request: RecordedRequest) -> None:
            await self.send(server(), request)

        for step in self.recording.steps:
            for group in step.requests:
                if instead is None:
                    await asyncio.gather(*map(send, group))
                    continue
                for request in group:
                    await instead(request, lambda request=request: send(request))  # type: ignore[misc]

    async def send(self, server: Server, request: RecordedRequest) -> None:
        self.answers.expect(request)
        async with server.http.post(
            f"{server.url}/v1/chat/completions", headers=request.headers, data=body_of(request)
        ) as response:
            self.statuses.append(response.status)
            if line := response.headers.get("x-session-id"):
                self.lines[line] = None
            if request.is_stopped:
                await until_said(response, request.answer)
                return
            got = Answer(response.status, response.headers, await response.read())
        assert got.status == 200, got.body
        said = got.streamed if request.stream else (got.text or "")
        assert said == request.answer


def body_of(request: RecordedRequest) -> bytes:
    tools = [
        {"type": "function", "function": {"name": each, "parameters": {"type": "object"}}}
        for each in request.tools
    ]
    body = {"model": request.model, "messages": request.messages, "stream": request.stream}
    return msgspec.json.encode({**body, "tools": tools} if tools else body)


async def until_said(response: aiohttp.ClientResponse, answer: str) -> None:
    """Read a stream until so much of the answer has come."""
    data = b""
    while True:
        data += await response.content.readany()
        frames = [each[6:] for each in data.split(b"\n\n")[:-1] if each.startswith(b"data: {")]
        choices = [choice for each in frames for choice in msgspec.json.decode(each)["choices"]]
        if "".join(each["delta"].get("content") or "" for each in choices) == answer:
            return


async def lines_of(server: Server, sessions: Sequence[str]) -> list[Said]:
    """What each of these sessions holds."""
    return [_held(await server.items(each)) for each in sessions]


def _held(items: Sequence[dict[str, Any]]) -> Said:
    return spoken(
        [
            (each["type"], "".join(part.get("text", "") for part in each["content"]))
            for each in items
            if each["type"] in ("user", "assistant")
        ]
    )
