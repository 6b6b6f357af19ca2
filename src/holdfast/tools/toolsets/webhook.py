"""The `webhook` toolset: a message to an address that the agent file names, as chat programs take them.

The model writes the words; where they go, and with which credentials, is the author's. A message leaves this machine,
so sending needs a permission. Where a server says that it has not taken a message (429, 503) it is tried again a few
times; after any other failure it is not, because the message may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.execution import failure
from holdfast.tools.tool import Json, ToolBroken, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed
from holdfast.tools.web.server_answers import is_servers
from holdfast.tools.web.web_client import WebClient
from holdfast.wire.headers import IDEMPOTENCY_KEY, RETRY_AFTER

SEND = "send_webhook"
WAITS_S = (1.0, 2.0, 4.0)
"""Between attempts; a server's Retry-After counts instead, up to `WAIT_S_MAX`."""
WAIT_S_MAX = 30.0
MESSAGE_CHARS_MAX = 20_000
_NOT_TAKEN = (429, 503)

SPELLINGS: Mapping[str, str] = {
    "": "generic",
    "google_chat": "googlechat",
    "gchat": "googlechat",
    "msteams": "teams",
    "microsoftteams": "teams",
    "microsoft_teams": "teams",
    "rocket.chat": "rocketchat",
    "rocket_chat": "rocketchat",
}
FIELDS: Mapping[str, str] = {
    "generic": "text",
    "slack": "text",
    "mattermost": "text",
    "rocketchat": "text",
    "googlechat": "text",
    "teams": "text",
    "telegram": "text",
    "discord": "content",
    "ifttt": "value1",
}
"""The kinds of servers, and the member of the body that holds the message."""

Pause: TypeAlias = Callable[[float], Awaitable[None]]


class WebhookTarget(Value):
    """Where messages go."""

    url: str
    """With variables filled in: never shown."""
    kind: str = "generic"
    """One of `FIELDS`."""
    chat_id: str = ""
    """For Telegram."""
    headers: Mapping[str, str] = {}
    timeout_s: float = 30.0


class WebhookToolset(BuiltInToolset):
    """One tool, `send_webhook`."""

    def __init__(
        self,
        target: WebhookTarget,
        *,
        guard: AddressGuard | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        assert target.kind in FIELDS
        self._target = target
        self._pause = pause
        self._web = WebClient(
            guard or AddressGuard(),
            bytes_max=limits.web_body_bytes_max,
            timeout_s=target.timeout_s,
            cuts=True,
            quoted=True,
        )
        text: Json = {"type": "string", "maxLength": MESSAGE_CHARS_MAX}
        more: dict[str, Json] = {"value2": text, "value3": text} if target.kind == "ifttt" else {}
        message: Json = {"type": "string", "minLength": 1, "maxLength": MESSAGE_CHARS_MAX}
        spec = ToolSpec(
            name=SEND,
            description=f"Send a message to the {target.kind} webhook of this agent.",
            parameters=parameters(["message"], message=message, **more),
            timeout_s=(len(WAITS_S) + 1) * target.timeout_s + len(WAITS_S) * WAIT_S_MAX,
        )
        super().__init__(BuiltInTool(spec, self._send))

    async def _send(self, run: ToolRun) -> ToolOutput:
        body = msgspec.json.encode(self._body(run))
        headers = {"Content-Type": "application/json", IDEMPOTENCY_KEY.title: run.call_key}
        why, broken = "", False
        for wait_s in (*WAITS_S, None):
            try:
                answer = await self._web.ask(
                    self._target.url,
                    method="POST",
                    headers=headers,
                    credentials=self._target.headers,
                    body=body,
                )
            except FetchFailed as error:
                why, broken = error.why, error.transient
                break
            if answer.status < 300:
                return text_output("Sent.")
            why, broken = f"it answers {answer.status}", is_servers(answer.status)
            if answer.status not in _NOT_TAKEN or wait_s is None:
                break
            await self._pause(_told_wait_s(answer.headers.get(RETRY_AFTER.name, ""), wait_s))
        words = f"The {self._target.kind} webhook did not take the message: {why}."
        if broken:
            raise ToolBroken(words, cause=why)
        return failure(words)

    def _body(self, run: ToolRun) -> dict[str, str]:
        body = {FIELDS[self._target.kind]: text_in(run.arguments, "message")}
        if self._target.kind == "telegram":
            body["chat_id"] = self._target.chat_id
        more = ("value2", "value3") if self._target.kind == "ifttt" else ()
        return body | {name: words for name in more if (words := text_in(run.arguments, name))}


def _told_wait_s(header: str, otherwise: float) -> float:
    return min(float(header), WAIT_S_MAX) if header.isdecimal() and len(header) < 6 else otherwise
