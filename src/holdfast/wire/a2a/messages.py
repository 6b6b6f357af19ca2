"""Messages of the protocol as a turn's input, and back.

Text, files and links become parts of a user message; structured data becomes its JSON, which is text to a model. What
our items have no place for (the message's id, its metadata, data as it came) is kept beside the message, so that a task
shows its history as it was sent.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from holdfast import limits
from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import (
    Audio,
    Blob,
    File,
    Image,
    Inline,
    Items,
    Link,
    Opaque,
    Part,
    Refusal,
    Source,
    Text,
    UserMessage,
)
from holdfast.errors import InvalidValue
from holdfast.ids import IdempotencyKey
from holdfast.wire.a2a.objects import A2AMessage, A2APart
from holdfast.wire.openai.chat.messages import source_of
from holdfast.wire.problems import bad_request

OWNER = "a2a"

Blobs = Mapping[str, bytes]
"""The bytes of blobs, by digest. One that is not there is lost, and is shown as an empty file."""


class SentMessage(Value):
    """The parts of a message that our items have no place for, and where it came in."""

    agent: str
    """The agent that it was sent to, by its model id."""
    message_id: str
    key: str = ""
    """The API key of its sender; empty where none is needed."""
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """Structured data by the number of its part."""


_decoder: Decoder[SentMessage] = Decoder(SentMessage)


# ── from the client ──────────────────────────────────────────────────────────────────────────


def check_message(message: A2AMessage) -> None:
    """Raise Refused for a message that lacks what every message has."""
    if not message.message_id:
        raise bad_request(
            "missing_required_parameter", "messageId is missing", param="message.messageId"
        )
    if not message.parts:
        raise bad_request("missing_required_parameter", "parts are missing", param="message.parts")
    if message.role != "ROLE_USER":
        raise bad_request(
            "invalid_value", "a message to an agent has the role of the user", param="message.role"
        )


def incoming_of(message: A2AMessage) -> Incoming:
    """The message as a turn's input. Raises Refused for data that cannot be decoded."""
    try:
        content = tuple(map(_part, message.parts))
    except InvalidValue as error:
        raise bad_request("invalid_content", str(error), param="message.parts") from error
    return Incoming(role="user", content=content)


def _part(part: A2APart) -> Part:
    given = [name for name in ("text", "raw", "url", "data") if getattr(part, name) is not UNSET]
    if len(given) != 1:
        raise InvalidValue("a part has one of text, raw, url and data")
    if part.text is not UNSET:
        return Text(text=part.text)
    if part.raw is not UNSET:
        media_type = part.media_type or "application/octet-stream"
        return _file(Inline(media_type=media_type, data=_decoded(part.raw)), part)
    if part.url is not UNSET:
        return _file(source_of(part.url), part)
    return Text(text=msgspec.json.encode(part.data).decode())


def _file(source: Source, part: A2APart) -> Part:
    media_type = part.media_type or (source.media_type if isinstance(source, Inline) else "")
    kind, _, subtype = media_type.partition("/")
    if kind == "image":
        return Image(source=source)
    if kind == "audio":
        return Audio(source=source, format=subtype)
    return File(source=source, name=part.filename)


def _decoded(text: str) -> bytes:
    """Base64 in either alphabet, with or without its padding, as protobuf's JSON has it."""
    padded = text + "=" * (-len(text) % 4)
    try:
        if "-" in text or "_" in text:
            return urlsafe_b64decode(padded)
        return b64decode(padded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"raw is not valid base64: {error}") from error


def note_of(message: A2AMessage, *, agent: str, key: str) -> Opaque:
    """What is kept beside a message. Metadata and data that would make it too large are left out."""
    kept = SentMessage(
        agent=agent,
        message_id=message.message_id,
        key=key,
        metadata=None if message.metadata is UNSET else dict(message.metadata),
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
        data={str(n): each.data for n, each in enumerate(message.parts) if each.data is not UNSET},
    )
    said = encode(kept)
    if len(said) > limits.opaque_bytes_max:
        said = encode(SentMessage(agent=agent, message_id=message.message_id[:1000], key=key))
    return Opaque(owner=OWNER, json=said.decode())


def key_of(message: A2AMessage, *, sender: str) -> IdempotencyKey:
    """The idempotency key of a message: its id, which its sender has chosen, in its context; without a context, among
    the messages of the sender. So two clients that count their messages do not meet."""
    where = ["context", message.context_id] if message.context_id else ["sender", str(sender)]
    named = msgspec.json.encode([*where, message.message_id])
    return IdempotencyKey(f"a2a-{sha256(named).hexdigest()}")


def hash_of(message: A2AMessage, *, agent: str) -> bytes:
    """The hash that tells a message from another one under the same id. It is the same over every binding and version:
    a client that lost a stream may ask again without one."""
    return sha256(msgspec.json.encode([agent, message], order="deterministic")).digest()


# ── to the client ────────────────────────────────────────────────────────────────────────────


def sent_in(items: Iterable[object]) -> SentMessage | None:
    """What is kept of the message among these items that began their turn; None if it came in another way."""
    for item in items:
        for extra in getattr(item, "extras", ()):
            if extra.owner == OWNER:
                found = _decoder.lenient(extra.json.encode())
                return None if isinstance(found, Unreadable) else found
    return None


def history_of(
    items: Items, *, task_id: str, context_id: str, blobs: Blobs
) -> tuple[A2AMessage, ...]:
    """The messages of the user in a turn."""
    said = (each for each in items if isinstance(each, UserMessage) and not each.path)
    return tuple(_message(each, task_id, context_id, blobs) for each in said)


def _message(item: UserMessage, task_id: str, context_id: str, blobs: Blobs) -> A2AMessage:
    sent = sent_in([item])
    data = sent.data if sent else {}
    parts = tuple(
        A2APart(data=data[str(n)]) if str(n) in data else part_object(each, blobs)
        for n, each in enumerate(item.content)
    )
    return A2AMessage(
        message_id=sent.message_id if sent else str(item.id),
        role="ROLE_USER",
        parts=parts,
        context_id=context_id,
        task_id=task_id,
        metadata=UNSET if sent is None or sent.metadata is None else sent.metadata,
        extensions=sent.extensions if sent else (),
        reference_task_ids=sent.reference_task_ids if sent else (),
    )


def part_object(part: Part, blobs: Blobs) -> A2APart:
    """A part as clients see it."""
    match part:
        case Text() | Refusal():
            return A2APart(text=part.text)
        case Image() | Audio():
            return _file_object(part.source, "", blobs)
        case File():
            return _file_object(part.source, part.name, blobs)
        case _:  # pragma: no cover
            assert_never(part)


def _file_object(source: Source, name: str, blobs: Blobs) -> A2APart:
    match source:
        case Link():
            return A2APart(url=source.url, filename=name)
        case Inline():
            data = source.data
        case Blob():
            data = blobs.get(source.digest, b"")
        case _:  # pragma: no cover
            assert_never(source)
    return A2APart(raw=b64encode(data).decode(), filename=name, media_type=source.media_type)


def blobs_of(items: Iterable[object]) -> frozenset[str]:
    """The digests of the blobs that these items name."""
    parts = (part for each in items for part in getattr(each, "content", ()))
    sources = (getattr(part, "source", None) for part in parts)
    return frozenset(each.digest for each in sources if isinstance(each, Blob))
