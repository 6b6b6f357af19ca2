"""A message history for Pydantic AI, whose turns are committed whole or not at all.

    history = MessageHistory(sessions, ModelMessagesTypeAdapter)

    async with history.turn("trip-to-oslo") as turn:
        result = await agent.run("And the weather?", message_history=turn.messages)
        turn.keep(result.new_messages())

The kept messages are committed when the block ends. If it raises, the conversation stays as it was.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.items import (
    AssistantMessage,
    Image,
    Inline,
    Item,
    Link,
    Part,
    Parts,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    plain_text,
    text_of,
)
from holdfast.ids import LOCAL, Tenant
from holdfast.integrations.framework_turns import FrameworkConversation
from holdfast.sessions.sessions import Sessions
from holdfast.wire.history_order import Said, Step, in_order, result_text, words_of

Message = TypeVar("Message")
PlainMessage: TypeAlias = dict[str, Any]
"""A message as JSON. It does not leave this module."""


class Adapter(Protocol[Message]):
    """Encodes messages as JSON and decodes them: Pydantic AI's `ModelMessagesTypeAdapter`."""

    def dump_json(self, messages: list[Message], /) -> bytes: ...

    def validate_json(self, data: bytes, /) -> list[Message]: ...


class MessageHistory(Generic[Message]):
    """Conversations by their keys, as messages."""

    def __init__(
        self, sessions: Sessions, adapter: Adapter[Message], *, tenant: Tenant = LOCAL
    ) -> None:
        self._sessions = sessions
        self._adapter = adapter
        self._tenant = tenant

    async def read(self, key: str) -> list[Message]:
        """The messages of a conversation; empty if it does not exist."""
        _, items = await self._conversation(key).read()
        return self._messages(items)

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[FrameworkTurn[Message]]:
        """A turn: its kept messages are added when the block ends, and nothing is added if it raises.

        Raises SessionConflict, and adds nothing, if another turn came first: the answer was to an outdated
        conversation, and running the agent again is right.
        """
        conversation = self._conversation(key)
        base, items = await conversation.read()
        turn = FrameworkTurn(self._messages(items))
        yield turn
        if turn.kept:
            said = msgspec.json.decode(self._adapter.dump_json(turn.kept), type=list[_Message])
            messages = tuple(each for message in said for each in incoming(message))
            await conversation.add(messages, base=base)

    def _conversation(self, key: str) -> FrameworkConversation:
        return FrameworkConversation(self._sessions, key, tenant=self._tenant)

    def _messages(self, items: Sequence[Item]) -> list[Message]:
        return self._adapter.validate_json(msgspec.json.encode(list(_plain(items))))


class FrameworkTurn(Generic[Message]):
    """A turn while it is played."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        """The messages so far: the `message_history` of a run."""
        self.kept: list[Message] = []

    def keep(self, new: Sequence[Message]) -> None:
        """Keep the messages of a run: its `new_messages()`."""
        self.kept += new


# ── in ───────────────────────────────────────────────────────────────────────────────────────


class _Piece(msgspec.Struct):
    """A picture in a prompt; any other kind is replaced by a note with its name."""

    kind: str = ""
    url: str = ""
    data: str = ""
    media_type: str = ""


class _Part(msgspec.Struct):
    """A part of a message: the fields that are used."""

    part_kind: str
    content: msgspec.Raw = msgspec.Raw(b'""')
    tool_name: str | None = None
    tool_call_id: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    kind: str
    parts: list[_Part]


def incoming(message: _Message) -> Iterator[Incoming]:
    """The messages of Holdfast that one message of the framework becomes."""
    if message.kind == "response":
        said = [_text(part) for part in message.parts if part.part_kind == "text"]
        calls = tuple(_call(part) for part in message.parts if part.part_kind == "tool-call")
        yield Incoming(role="assistant", content=plain_text("".join(said)), calls=calls)
        return
    for part in message.parts:
        match part.part_kind:
            case "system-prompt":
                yield Incoming(role="system", content=plain_text(_text(part)))
            case "user-prompt":
                yield Incoming(role="user", content=_prompt(part))
            case "tool-return":
                yield _result(part)
            case "retry-prompt" if part.tool_name:
                yield _result(part)
            case "retry-prompt":
                yield Incoming(role="user", content=plain_text(_text(part)))


def _call(part: _Part) -> IncomingCall:
    arguments = bytes(part.args).decode()
    if arguments.startswith('"'):  # some model servers send them as a string
        arguments = msgspec.json.decode(part.args, type=str)
    if arguments == "null":
        arguments = "{}"
    return IncomingCall(
        call_id=part.tool_call_id, name=part.tool_name or "", arguments=arguments or "{}"
    )


def _result(part: _Part) -> Incoming:
    return Incoming(role="tool", call_id=part.tool_call_id, content=plain_text(_text(part)))


def _text(part: _Part) -> str:
    """A string unchanged; any other result of a tool as JSON."""
    raw = bytes(part.content)
    return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()


def _prompt(part: _Part) -> Parts:
    if not bytes(part.content).startswith(b"["):
        return plain_text(_text(part))
    pieces = msgspec.json.decode(part.content, type=list[str | _Piece])
    return tuple(Text(text=each) if isinstance(each, str) else _picture(each) for each in pieces)


def _picture(piece: _Piece) -> Part:
    if piece.kind == "image-url":
        return Image(source=Link(url=piece.url))
    if piece.kind == "binary" and piece.media_type.startswith("image/"):
        # Pydantic encodes bytes as URL-safe base64, with or without padding.
        data = base64.urlsafe_b64decode(piece.data + "=" * (-len(piece.data) % 4))
        return Image(source=Inline(media_type=piece.media_type, data=data))
    return Text(text=f"[{piece.kind or 'something'} that was not kept]")


# ── out ──────────────────────────────────────────────────────────────────────────────────────


def _plain(items: Sequence[Item]) -> Iterator[PlainMessage]:
    for each in in_order(items):
        match each:
            case Step():
                yield {"kind": "response", "parts": [_said(item) for item in each.said]}
                if each.results:
                    yield _request(*(_returned(each, result) for result in each.results))
            case SystemMessage():
                yield _request(_part("system-prompt", text_of(each.content)))
            case _:
                yield _request(_part("user-prompt", _shown(words_of(each))))


def _request(*parts: PlainMessage) -> PlainMessage:
    return {"kind": "request", "parts": list(parts)}


def _part(kind: str, content: object, **more: str) -> PlainMessage:
    return {"part_kind": kind, "content": content, **more}


def _said(item: Said) -> PlainMessage:
    match item:
        case AssistantMessage():
            return _part("text", text_of(item.content))
        case Reasoning():
            return _part("thinking", item.text)
        case ToolCall():
            return {
                "part_kind": "tool-call",
                "tool_name": item.name,
                "tool_call_id": item.call_id,
                "args": item.arguments,
            }


def _returned(step: Step, result: ToolResult) -> PlainMessage:
    call = step.called(result)
    name = call.name if call else ""
    return _part("tool-return", result_text(result), tool_name=name, tool_call_id=result.call_id)


def _shown(parts: Parts) -> object:
    if all(isinstance(part, Text) for part in parts):
        return text_of(parts)
    return [_piece(part) for part in parts]


def _piece(part: Part) -> object:
    match part:
        case Image(source=Link(url=url)):
            return {"kind": "image-url", "url": url}
        case Image(source=Inline(media_type=media_type, data=data)):
            letters = base64.urlsafe_b64encode(data).decode()
            return {"kind": "binary", "data": letters, "media_type": media_type}
        case Text():
            return part.text
        case _:
            return "[something that cannot be shown here]"
