"""Anthropic's Messages: how a history looks there.

A message is a role and blocks. Results are the first blocks of a user's message; the user's next text follows
them. The model's thoughts go back to it unchanged, with the signature that proves their origin; which of them
still may is decided in `thoughts.py`. Thoughts without a signature (another provider's, for example) are left out,
since Anthropic would refuse them.

A block names a blob by its digest, in the member `data`, as `wire.openai.chat.messages` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    Blob,
    File,
    Image,
    Inline,
    Item,
    Link,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    text_of,
)
from holdfast.wire.anthropic.thoughts import (
    OWNER,
    BoundThought,
    RedactedBlock,
    ThinkingBlock,
    Thought,
    bound_thought,
    fitting,
    marked,
    thought_of,
)
from holdfast.wire.history_order import (
    Said,
    Step,
    arguments_object,
    extras_of,
    in_order,
    plain_call_id,
    result_text,
    words_of,
)
from holdfast.wire.openai.chat.messages import BlobNames, base64_of, placeholder
from holdfast.wire.prefix_digest import Prefixes

# ── blocks ───────────────────────────────────────────────────────────────────────────────────


class BlockSource(Struct, frozen=True, omit_defaults=True):
    type: Literal["base64", "url", "text", "file"]
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class TextBlock(Struct, frozen=True, tag="text"):
    text: str


class ImageBlock(Struct, frozen=True, tag="image"):
    source: BlockSource


class DocumentBlock(Struct, frozen=True, tag="document", omit_defaults=True):
    source: BlockSource
    title: str = ""


class ToolUseBlock(Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


ShownBlock: TypeAlias = TextBlock | ImageBlock | DocumentBlock


class ToolResultBlock(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    tool_use_id: str
    content: str | list[ShownBlock] = ""
    is_error: bool = False


Block: TypeAlias = (
    ShownBlock | ThinkingBlock | RedactedBlock | BoundThought | ToolUseBlock | ToolResultBlock
)


class AnthropicMessage(Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: list[Block]


# ── items → messages ─────────────────────────────────────────────────────────────────────────


class AnthropicDialect(BlobNames):
    """How a history looks to Anthropic. See `models.model.Dialect` and `BindingDialect`.

    `bound_to`: a model whose thoughts hold only for what they came after; other models' thoughts are left out.
    """

    def __init__(self, *, bound_to: str = "") -> None:
        self.name = f"anthropic:{bound_to}" if bound_to else "anthropic"
        self.binds = bool(bound_to)
        self._bound_to = bound_to

    def encode(self, items: Sequence[Item]) -> bytes:
        return b",".join(map(_encoded, messages_of(items, bound_to=self._bound_to)))

    def fit(self, messages: bytes, before: Prefixes) -> bytes:
        return fitting(messages, before[self.name])

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        return super().with_blobs(_with_texts(messages, blobs), blobs)


_encode = msgspec.json.Encoder().encode


def _encoded(message: AnthropicMessage) -> bytes:
    if any(isinstance(block, BoundThought) for block in message.content):
        return marked(message.content)
    return _encode(message)


def messages_of(items: Sequence[Item], *, bound_to: str = "") -> list[AnthropicMessage]:
    """The messages for these items: user and assistant alternate, and none is empty."""
    messages: list[AnthropicMessage] = []
    for each in in_order(items):
        if isinstance(each, Step):
            _add(messages, "assistant", _said(each.said, bound_to))
            _add(messages, "user", map(_result, each.results))
        else:
            _add(messages, "user", _shown(words_of(each)))
    return messages


def _add(
    messages: list[AnthropicMessage], role: Literal["user", "assistant"], said: Iterable[Block]
) -> None:
    blocks = list(said)
    if not blocks:
        return
    bound = any(isinstance(block, BoundThought) for block in blocks)
    if messages and messages[-1].role == role and not bound:
        messages[-1].content.extend(blocks)
    else:
        messages.append(AnthropicMessage(role=role, content=blocks))


def _said(said: Iterable[Said], bound_to: str) -> list[Block]:
    blocks: list[Block] = []
    for item in said:
        match item:
            case Reasoning():
                for extra in extras_of(item, OWNER):
                    block = (
                        bound_thought(item.text, extra, bound_to, place=len(blocks))
                        if bound_to
                        else thought_of(item.text, extra)
                    )
                    blocks += () if block is None else (block,)
            case AssistantMessage():
                blocks += _texts(text_of(item.content))
            case _:
                blocks.append(
                    ToolUseBlock(
                        id=plain_call_id(item),
                        name=item.name,
                        input=arguments_object(item.arguments),
                    )
                )
    return blocks


def _result(result: ToolResult) -> Block:
    shown = [part for part in result.content if not isinstance(part, Text | Refusal)]
    text = result_text(result)
    content: str | list[ShownBlock] = text
    if shown:
        content = [*_texts(text), *_shown(tuple(shown))]
    return ToolResultBlock(
        tool_use_id=plain_call_id(result), content=content, is_error=result.outcome != "ok"
    )


def _shown(parts: Parts) -> Iterable[ShownBlock]:
    for part in parts:
        yield from _block(part)


def _texts(text: str) -> Iterable[TextBlock]:
    """A text block; none for white space alone, which Anthropic refuses."""
    return [TextBlock(text=text)] if text.strip() else []


def _block(part: Part) -> Iterable[ShownBlock]:
    match part:
        case Text() | Refusal():
            return _texts(part.text)
        case Image(source=source):
            if isinstance(source, Link):
                return [ImageBlock(source=BlockSource(type="url", url=source.url))]
            return [ImageBlock(source=_bytes(source))]
        case File():
            return [_document(part)]
        case Audio():
            return _texts(part.transcript or "[a recording, which this model cannot hear]")
        case _:  # pragma: no cover
            assert_never(part)


def _document(part: File) -> ShownBlock:
    source = part.source
    if isinstance(source, Link):
        if ":" in source.url:
            return DocumentBlock(source=BlockSource(type="url", url=source.url), title=part.name)
        return DocumentBlock(source=BlockSource(type="file", file_id=source.url), title=part.name)
    if source.media_type == "application/pdf":
        return DocumentBlock(source=_bytes(source), title=part.name)
    if source.media_type.startswith("image/"):
        return ImageBlock(source=_bytes(source))
    if _is_text(source.media_type):
        data = (
            placeholder(source)
            if isinstance(source, Blob)
            else source.data.decode(errors="replace")
        )
        plain = BlockSource(type="text", media_type="text/plain", data=data)
        return DocumentBlock(source=plain, title=part.name)
    return TextBlock(
        text=f"[the file {part.name or 'without a name'} ({source.media_type}), which this model cannot read]"
    )


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in ("application/json", "application/xml")


def _bytes(source: Inline | Blob) -> BlockSource:
    return BlockSource(type="base64", media_type=source.media_type, data=base64_of(source))


_TEXT_PLACEHOLDER = re.compile(
    rb'"type":"text","media_type":"text/plain","data":"blob:(sha256:[0-9a-f]{64});[^"\\]*"'
)


def _with_texts(messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Plain-text documents are sent as text, not as base64 like all other bytes."""

    def inlined(found: re.Match[bytes]) -> bytes:
        text = blobs[found[1].decode()].decode(errors="replace")
        return b'"type":"text","media_type":"text/plain","data":' + _encode(text)

    return _TEXT_PLACEHOLDER.sub(inlined, messages)


# ── the end of the cached part ───────────────────────────────────────────────────────────────

EPHEMERAL = b'"cache_control":{"type":"ephemeral"}'
_USER = b'{"role":"user","content":['


def with_breakpoint(messages: bytes) -> bytes:
    """The same messages, with the last block marked: the provider caches them up to there.

    Only at the end of a user's message, which is where a request ends; a thinking block takes no mark.
    """
    at = messages.rfind(b'{"role":"')
    if not messages.startswith(_USER, at) or not messages.endswith(b"}]}"):
        return messages
    return messages[: -len(b"}]}")] + b"," + EPHEMERAL + b"}]}"


def without_thinking(messages: bytes) -> bytes:
    """The messages without thoughts, for a server that refuses one of them."""
    kept: list[AnthropicMessage] = []
    for message in msgspec.json.decode(b"[" + messages + b"]", type=list[AnthropicMessage]):
        _add(kept, message.role, (b for b in message.content if not isinstance(b, Thought)))
    return b",".join(map(_encode, kept))


# ── a request that ends with an assistant's message ──────────────────────────────────────────

_ASSISTANT = b'{"role":"assistant","content":['


def begins_with_answer(messages: bytes) -> bool:
    return messages.startswith(_ASSISTANT)


def ends_with_answer(messages: bytes) -> bool:
    return messages.startswith(_ASSISTANT, messages.rfind(b'{"role":"'))


def without_blank_end(messages: bytes) -> bytes:
    """The messages without white space at the end of a final assistant message: Anthropic refuses it there."""
    at = messages.rfind(b'{"role":"')
    if not messages.startswith(_ASSISTANT, at):
        return messages
    try:
        last = msgspec.json.decode(messages[at:], type=AnthropicMessage)
    except msgspec.DecodeError:
        return messages  # the quote ends the arguments of a call, not a message
    block = last.content[-1]
    if not isinstance(block, TextBlock) or block.text == block.text.rstrip():
        return messages
    last.content[-1] = TextBlock(text=block.text.rstrip())
    return messages[:at] + _encode(last)
