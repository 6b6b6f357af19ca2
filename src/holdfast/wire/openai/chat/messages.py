"""The messages of Chat Completions: from clients to us, and from us to providers with the same API.

We accept much from clients: unknown fields are ignored, and `content` may be a string,
parts, or null. A field that we know but cannot honour is refused by name elsewhere, never ignored silently.

A message names a blob by its digest (`"url":"blob:sha256:…;image/png"`), so that encoded histories stay small.
The bytes are inserted when a prompt is sent: `blobs_in` lists the blobs that are needed, `with_blobs` inserts them.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.items import (
    AssistantMessage,
    Audio,
    Blob,
    File,
    ForeignItem,
    HandOff,
    Image,
    Inline,
    Interruption,
    Item,
    Link,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Source,
    Summary,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.errors import InvalidValue
from holdfast.ids import ItemId
from holdfast.wire.history_order import result_text, words_of
from holdfast.wire.openai.kept_members import CLIENT, Nothing

# ── messages ─────────────────────────────────────────────────────────────────────────────────

# A field that may be absent may also be null: clients send back what their own types made of an answer.


class TextPart(Struct, tag="text", frozen=True):
    text: str


class RefusalPart(Struct, tag="refusal", frozen=True):
    refusal: str


class ImageUrl(Struct, frozen=True, omit_defaults=True):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = "auto"


class ImagePart(Struct, tag="image_url", frozen=True):
    image_url: ImageUrl


class AudioData(Struct, frozen=True):
    data: str
    format: str | None = ""


class AudioPart(Struct, tag="input_audio", frozen=True):
    input_audio: AudioData


class FileData(Struct, frozen=True, omit_defaults=True):
    file_data: str | None = ""
    file_id: str | None = ""
    filename: str | None = ""


class FilePart(Struct, tag="file", frozen=True):
    file: FileData


ContentPart: TypeAlias = TextPart | RefusalPart | ImagePart | AudioPart | FilePart


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str | None = ""


class ChatToolCall(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: Literal["function"] | None = "function"


class ChatMessage(Struct, frozen=True, omit_defaults=True):
    """One message, in either direction."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | UnsetType | None = UNSET
    name: str | None = ""
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = ""
    refusal: str | None = None


class ResentMessage(ChatMessage, frozen=True, omit_defaults=True):
    """A message as clients make it of an answer: OpenAI's types have more members, which are empty there."""

    annotations: Nothing = None
    audio: None = None
    function_call: None = None


NO_THOUGHT = " "
"""The reasoning before a call that had none: servers that want it back refuse a call without it, and one an empty
text as well."""


class ThoughtfulMessage(ChatMessage, frozen=True, omit_defaults=True):
    """A message with the reasoning before it, as some servers want it back. It is never read from clients."""

    reasoning_content: str = ""


# ── messages → a request's input ─────────────────────────────────────────────────────────────


def incoming_of(message: ChatMessage) -> Incoming:
    """One message, for `core.history.reconciliation`. Raises InvalidValue for data that cannot be decoded."""
    role = message.role
    content = _parts(message.content)
    if message.refusal:
        content = (*content, Refusal(text=message.refusal))
    return Incoming(
        role="system" if role == "developer" else role,
        content=content,
        name=message.name or "",
        calls=tuple(
            IncomingCall(
                call_id=call.id, name=call.function.name, arguments=call.function.arguments or ""
            )
            for call in message.tool_calls or ()
        ),
        call_id=message.tool_call_id or "",
    )


def _parts(content: str | list[ContentPart] | UnsetType | None) -> Parts:
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    if not isinstance(content, list):
        return ()
    return tuple(map(part_of, content))


def part_of(part: ContentPart) -> Part:
    """A part as we store it. Raises InvalidValue for data that cannot be decoded."""
    match part:
        case TextPart():
            return Text(text=part.text)
        case RefusalPart():
            return Refusal(text=part.refusal)
        case ImagePart():
            image = part.image_url
            return Image(source=source_of(image.url), detail=image.detail or "auto")
        case AudioPart():
            audio = part.input_audio
            data = _decoded(audio.data, "input_audio.data")
            source = Inline(media_type=f"audio/{audio.format or 'wav'}", data=data)
            return Audio(source=source, format=audio.format or "")
        case FilePart():
            file = part.file
            return File(source=_file_source(file), name=file.filename or "")
        case _:  # pragma: no cover
            assert_never(part)


def _file_source(file: FileData) -> Source:
    """A file by its id, as a `data:` URL, or as bare base64."""
    if not file.file_data:
        return Link(url=file.file_id or "")
    if file.file_data.startswith("data:"):
        return source_of(file.file_data)
    data = _decoded(file.file_data, "file.file_data")
    pdf = data.startswith(b"%PDF-")
    return Inline(media_type="application/pdf" if pdf else "application/octet-stream", data=data)


def source_of(url: str) -> Source:
    """A `data:` URL becomes bytes, any other URL stays one; a client must not use `blob:`, which is ours."""
    if url.startswith("blob:"):
        raise InvalidValue("a blob: URL means nothing here; send the bytes as a data: URL")
    if not url.startswith("data:"):
        return Link(url=url)
    head, comma, body = url[len("data:") :].partition(",")
    if not comma or not head.endswith(";base64"):
        raise InvalidValue("a data: URL has to be base64, as in data:image/png;base64,…")
    media_type = head.removesuffix(";base64") or "application/octet-stream"
    return Inline(media_type=media_type, data=_decoded(body, "a data: URL"))


def _decoded(text: str, where: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"{where} is not valid base64: {error}") from error


# ── items → messages ─────────────────────────────────────────────────────────────────────────


class BlobNames:
    """The base of dialects that name blobs as this module does."""

    def blobs_in(self, messages: bytes) -> frozenset[str]:
        return blobs_in(messages)

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        return with_blobs(messages, blobs)


class ChatDialect(BlobNames):
    """How a history looks to a Chat Completions server. See `models.model.Dialect`."""

    binds = False

    def __init__(self, *, reasoning_back: bool = False) -> None:
        """`reasoning_back`: the server wants the model's reasoning back with the calls that followed."""
        self.name = "chat+reasoning" if reasoning_back else "chat"
        self._reasoning_back = reasoning_back

    def encode(self, items: Sequence[Item]) -> bytes:
        messages = spoken(items, reasoning_back=self._reasoning_back)
        return b",".join(map(_encode_message, messages))


_encode_message = msgspec.json.Encoder().encode


_UNSPOKEN = (Reasoning, HandOff)
_OF_A_STEP = (AssistantMessage, ToolCall)


def spoken(items: Sequence[Item], *, reasoning_back: bool = False) -> list[ChatMessage]:
    """The messages for these items. The text and the calls of one step are one assistant message.

    Its results follow it directly, even if other items came in between, and in any order of the model's
    items: servers refuse any other order, and would go on refusing this history for ever.
    """
    messages: list[ChatMessage] = []
    step: list[AssistantMessage | ToolCall] = []
    unanswered: set[ItemId] = set()
    held: list[ChatMessage] = []
    thoughts: list[str] = []
    for item in items:
        if isinstance(item, _UNSPOKEN):
            # Sealed reasoning belongs to another API: no server takes it over this one.
            if reasoning_back and isinstance(item, Reasoning) and not _is_sealed(item):
                thoughts.append(item.text)
            continue
        if isinstance(item, _OF_A_STEP):
            if not step:
                messages += held
                held, unanswered = [], set()
            step.append(item)
            continue
        if step:
            messages.append(_step(step, thoughts, reasoning_back=reasoning_back))
            unanswered = {each.id for each in step if isinstance(each, ToolCall)}
            step, thoughts = [], []
        if isinstance(item, ToolResult):
            messages.append(_spoken(item))
            unanswered.discard(item.call)
            held += _attachments(item)
            continue
        if not unanswered:
            messages += held
            held = []
        held.append(_spoken(item))
    if not step:
        return messages + held
    return [*messages, _step(step, thoughts, reasoning_back=reasoning_back)]


def _is_sealed(item: Reasoning) -> bool:
    return any(each.owner != CLIENT for each in item.extras)


def _attachments(result: ToolResult) -> list[ChatMessage]:
    """The content that a tool message cannot hold: pictures and sound, which follow in a message of their own."""
    shown = [_content_part(each) for each in result.content if isinstance(each, Image | Audio)]
    if not shown:
        return []
    head = TextPart(text=f"[From the result of {result.call_id}:]")
    return [ChatMessage(role="user", content=[head, *shown])]


def _step(
    step: list[AssistantMessage | ToolCall], thoughts: list[str], *, reasoning_back: bool
) -> ChatMessage:
    texts = [text_of(each.content) for each in step if isinstance(each, AssistantMessage)]
    calls = [
        ChatToolCall(
            id=each.call_id,
            function=FunctionCall(name=each.name, arguments=each.arguments or "{}"),
        )
        for each in step
        if isinstance(each, ToolCall)
    ]
    text = "".join(texts)
    content = text if text or not calls else None
    if not reasoning_back or not calls:  # some servers refuse reasoning without calls
        return ChatMessage(role="assistant", content=content, tool_calls=calls or None)
    return ThoughtfulMessage(
        role="assistant",
        content=content,
        tool_calls=calls,
        reasoning_content="\n\n".join(thoughts).strip() or NO_THOUGHT,
    )


def _spoken(
    item: UserMessage | SystemMessage | ToolResult | Interruption | Summary | ForeignItem,
) -> ChatMessage:
    match item:
        case UserMessage():
            return ChatMessage(role="user", content=_content(item.content), name=item.name)
        case SystemMessage():
            return ChatMessage(role="system", content=text_of(item.content))
        case ToolResult():
            return ChatMessage(role="tool", content=result_text(item), tool_call_id=item.call_id)
        case _:  # many servers take a system role only in the first message
            return ChatMessage(role="user", content=text_of(words_of(item)))


def _content(parts: Parts) -> str | list[ContentPart]:
    """A string if possible, since every server takes a string; otherwise parts."""
    if all(isinstance(part, Text) for part in parts):
        return text_of(parts)
    return [_content_part(part) for part in parts]


def _content_part(part: Part) -> ContentPart:
    match part:
        case Text():
            return TextPart(text=part.text)
        case Refusal():
            return RefusalPart(refusal=part.text)
        case Image():
            return ImagePart(image_url=ImageUrl(url=url_of(part.source), detail=part.detail))
        case Audio():
            return _audio(part)
        case File():
            return _file(part)
        case _:  # pragma: no cover
            assert_never(part)


def _audio(part: Audio) -> ContentPart:
    if isinstance(part.source, Link):
        return TextPart(text=part.transcript or f"[audio: {part.source.url}]")
    sound = base64_of(part.source)
    return AudioPart(input_audio=AudioData(data=sound, format=part.format or "wav"))


def _file(part: File) -> ContentPart:
    if not isinstance(part.source, Link):
        return FilePart(file=FileData(file_data=url_of(part.source), filename=part.name))
    if ":" in part.source.url:  # this API takes files by value or by id, not by URL
        return TextPart(text=f"[file {part.name or 'without a name'}: {part.source.url}]")
    return FilePart(file=FileData(file_id=part.source.url, filename=part.name))


def url_of(source: Source) -> str:
    """The URL of a source: its own, a `data:` URL, or the name of a blob."""
    match source:
        case Link():
            # However this URL came in, it must not be taken for the name of a blob.
            return f"about:{source.url}" if source.url.startswith("blob:") else source.url
        case Inline():
            return f"data:{source.media_type};base64,{b64encode(source.data).decode()}"
        case Blob():
            return placeholder(source)
        case _:  # pragma: no cover
            assert_never(source)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


def base64_of(source: Inline | Blob) -> str:
    """The bytes of a source in base64, or the name of a blob."""
    if isinstance(source, Blob):
        return placeholder(source)
    return b64encode(source.data).decode()


def placeholder(blob: Blob) -> str:
    """The text that stands for the bytes of a blob in an encoded message."""
    return f"blob:{blob.digest};{blob.media_type}"


# With the member's name and its quotes: quotes inside a JSON string are escaped, so no text can match.
_PLACEHOLDER = re.compile(
    rb'"(url|data|file_data|image_url)":"blob:(sha256:[0-9a-f]{64});([A-Za-z0-9!#$&^_.+/;= -]*)"'
)


def blobs_in(piece: bytes) -> frozenset[str]:
    """The digests of the blobs that encoded messages name."""
    if b'"blob:sha256:' not in piece:  # nearly always, and this scan is fast
        return frozenset()
    return frozenset(found[2].decode() for found in _PLACEHOLDER.finditer(piece))


def with_blobs(piece: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """The same messages with the blobs' bytes in place of their names. Raises KeyError for a missing blob."""

    def inlined(found: re.Match[bytes]) -> bytes:
        member, digest, media_type = found.groups()
        data = b64encode(blobs[digest.decode()])
        head = b"" if member == b"data" else b"data:" + media_type + b";base64,"
        return b'"' + member + b'":"' + head + data + b'"'

    return _PLACEHOLDER.sub(inlined, piece) if b'"blob:sha256:' in piece else piece
