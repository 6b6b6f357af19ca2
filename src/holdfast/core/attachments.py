"""Moves bytes that are too large for an item into blobs: the item keeps their digest. The caller stores the bytes."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from holdfast import limits
from holdfast.core.items import (
    AssistantMessage,
    Audio,
    Blob,
    File,
    Image,
    Inline,
    Item,
    Items,
    Part,
    SystemMessage,
    Text,
    ToolResult,
    UserMessage,
)


def set_aside(items: Items) -> tuple[Items, tuple[bytes, ...]]:
    """The same items with a `Blob` in place of each part that is too large, and the bytes of those blobs."""
    if are_words(items):
        return items, ()
    large: list[bytes] = []
    return tuple(_lightened(each, large) for each in items), tuple(large)


def are_words(items: Items) -> bool:
    """Whether all parts of these items are text, as they nearly always are."""
    for each in items:
        for part in getattr(each, "content", ()):
            if type(part) is not Text:
                return False
    return True


def _lightened(item: Item, large: list[bytes]) -> Item:
    if not isinstance(item, UserMessage | SystemMessage | AssistantMessage | ToolResult):
        return item
    content = tuple(_named(part, large) for part in item.content)
    return item if content == item.content else msgspec.structs.replace(item, content=content)


def _named(part: Part, large: list[bytes]) -> Part:
    if not isinstance(part, Image | Audio | File) or not isinstance(part.source, Inline):
        return part
    data = part.source.data
    if len(data) <= limits.inline_bytes_max:
        return part
    large.append(data)
    blob = Blob(
        media_type=part.source.media_type,
        digest=f"sha256:{sha256(data).hexdigest()}",
        size_bytes=len(data),
    )
    return msgspec.structs.replace(part, source=blob)
