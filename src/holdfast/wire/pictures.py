"""Pictures that an agent's model has made, as parts of its messages: found, and given their bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.core.items import AssistantMessage, Blob, Image, Inline, Item, Text


def is_without_pictures(item: Item) -> bool:
    """Whether an item has no picture of an agent's, as nearly all have none."""
    return not isinstance(item, AssistantMessage) or all(
        type(part) is Text for part in item.content
    )


def pictures_in(item: Item) -> tuple[Image, ...]:
    """The pictures that an agent has made in this message; none of a message that a request brought along."""
    if not isinstance(item, AssistantMessage) or not item.agent or item.path:
        return ()
    return tuple(part for part in item.content if isinstance(part, Image))


def with_pictures(item: Item, data: Mapping[str, bytes]) -> Item:
    """The same message with the bytes of its pictures in place of their digests; `data` has them."""
    if not pictures_in(item):
        return item
    assert isinstance(item, AssistantMessage)
    content = tuple(
        msgspec.structs.replace(
            part,
            source=Inline(media_type=part.source.media_type, data=data[part.source.digest]),
        )
        if isinstance(part, Image) and isinstance(part.source, Blob)
        else part
        for part in item.content
    )
    return msgspec.structs.replace(item, content=content)
