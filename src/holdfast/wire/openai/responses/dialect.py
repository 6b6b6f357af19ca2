"""OpenAI's Responses as a provider's API: how a history looks there.

Nothing is stored at the provider, so every request has the whole history. The model's reasoning arrives
encrypted (`encrypted_content`), and goes back unchanged, in front of the items that it led to: the provider refuses
reasoning that none of them follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Interruption,
    Item,
    Link,
    Opaque,
    Part,
    Parts,
    Reasoning,
    Refusal,
    SystemMessage,
    Text,
    ToolResult,
    text_of,
)
from holdfast.core.turns.closure import note_for_model
from holdfast.wire.history_order import Said, Step, extras_of, in_order, result_text, words_of
from holdfast.wire.openai.chat.messages import BlobNames, url_of

OWNER = "openai"
"""The owner of an `Opaque` that holds an item of reasoning, as it came."""


class PromptText(Struct, frozen=True, tag="input_text"):
    text: str


class PromptImage(Struct, frozen=True, tag="input_image", omit_defaults=True, kw_only=True):
    image_url: str = ""
    detail: str
    file_id: str = ""


class PromptFile(Struct, frozen=True, tag="input_file", omit_defaults=True):
    filename: str = ""
    file_data: str = ""
    file_id: str = ""
    file_url: str = ""


InputPart: TypeAlias = PromptText | PromptImage | PromptFile


class PromptMessage(Struct, frozen=True):
    role: Literal["user", "assistant", "developer"]
    content: str | list[InputPart]


class PromptCall(Struct, frozen=True, tag="function_call"):
    call_id: str
    name: str
    arguments: str


class PromptResult(Struct, frozen=True, tag="function_call_output"):
    call_id: str
    output: str | list[InputPart]


InputItem: TypeAlias = PromptMessage | PromptCall | PromptResult | msgspec.Raw


class ResponsesDialect(BlobNames):
    """How a history looks to a Responses server. See `models.model.Dialect`."""

    name = "responses"
    binds = False

    def encode(self, items: Sequence[Item]) -> bytes:
        return b",".join(map(_encode, input_of(items)))


_encode = msgspec.json.Encoder().encode


def input_of(items: Sequence[Item]) -> Iterable[InputItem]:
    """The input items for these items."""
    for each in in_order(items):
        match each:
            case Step():
                yield from _said(each.said)
                yield from map(_result, each.results)
            case SystemMessage():
                yield PromptMessage(role="developer", content=text_of(each.content))
            case Interruption():  # our own note; this wire has a role for it
                yield PromptMessage(role="developer", content=note_for_model(each))
            case _:
                yield PromptMessage(role="user", content=_content(words_of(each)))


def user_input(parts: Parts) -> InputItem:
    """The input item of a user's message with these parts."""
    return PromptMessage(role="user", content=_content(parts))


def _said(said: Iterable[Said]) -> Iterable[InputItem]:
    reasoning: list[InputItem] = []
    for item in said:
        match item:
            case Reasoning():
                reasoning += (msgspec.Raw(each.json.encode()) for each in extras_of(item, OWNER))
            case AssistantMessage():
                text = text_of(item.content)
                if text:
                    yield from reasoning
                    reasoning.clear()
                    yield PromptMessage(role="assistant", content=text)
            case _:
                yield from reasoning
                reasoning.clear()
                arguments = item.arguments or "{}"
                yield PromptCall(call_id=item.call_id, name=item.name, arguments=arguments)


class _Sealed(Struct, frozen=True):
    """The members of an item of reasoning that have to go back."""

    type: str
    id: str = ""
    summary: msgspec.Raw = msgspec.Raw(b"[]")
    encrypted_content: str | None = None


def kept_reasoning(item: bytes) -> Opaque | None:
    """An item of reasoning, to be sent back; None if it is not encrypted, since the provider could not read it."""
    sealed = msgspec.json.decode(item, type=_Sealed)
    if not sealed.encrypted_content:
        return None
    return Opaque(owner=OWNER, json=_encode(sealed).decode())


def without_reasoning(messages: bytes) -> bytes:
    """The input items without reasoning, for a server that refuses one of them."""
    items = msgspec.json.decode(b"[" + messages + b"]", type=list[msgspec.Raw])
    kinds = (msgspec.json.decode(item, type=_Kind).type for item in items)
    return b",".join(item for item, kind in zip(items, kinds, strict=True) if kind != "reasoning")


class _Kind(Struct, frozen=True):
    type: str = ""


def _result(result: ToolResult) -> InputItem:
    shown = tuple(part for part in result.content if not isinstance(part, Text | Refusal))
    text = result_text(result)
    if not shown:
        return PromptResult(call_id=result.call_id, output=text)
    words = (PromptText(text=text),) if text else ()
    return PromptResult(call_id=result.call_id, output=[*words, *map(_part, shown)])


def _content(parts: Parts) -> str | list[InputPart]:
    if all(isinstance(part, Text) for part in parts):
        return text_of(parts)
    return [_part(part) for part in parts]


def _part(part: Part) -> InputPart:
    match part:
        case Text() | Refusal():
            return PromptText(text=part.text)
        case Image(source=Link(url=url)) if ":" not in url:
            return PromptImage(file_id=url, detail=part.detail)
        case Image():
            return PromptImage(image_url=url_of(part.source), detail=part.detail)
        case File():
            return _file(part)
        case Audio():
            return PromptText(text=part.transcript or "[a recording, which this model cannot hear]")
        case _:  # pragma: no cover
            assert_never(part)


def _file(part: File) -> InputPart:
    if not isinstance(part.source, Link):
        return PromptFile(filename=part.name or "file", file_data=url_of(part.source))
    if ":" in part.source.url:
        return PromptFile(file_url=part.source.url)
    return PromptFile(file_id=part.source.url)
