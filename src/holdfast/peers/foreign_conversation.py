"""A conversation of another program, in one form for all programs: messages, calls and results in order."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import Image, Inline, Link, Part, Parts


class ForeignMessage(Value):
    """A message of a person."""

    content: Parts
    at_ms: int = 0


class ForeignInstruction(Value):
    """Instructions that are part of the history."""

    content: Parts


class ForeignCall(Value):
    """A tool call of the model. Its result refers to `id`."""

    id: str
    name: str
    arguments: str


class ForeignAnswer(Value):
    """An answer of the model in one step: its thinking, its text, its tool calls."""

    content: Parts = ()
    thought: str = ""
    calls: tuple[ForeignCall, ...] = ()
    agent: str = ""
    at_ms: int = 0


class ForeignResult(Value):
    """A tool's result."""

    call: str
    content: Parts
    failed: bool = False
    at_ms: int = 0


class ForeignSummary(Value):
    """A summary that stands for everything before it in the model's view."""

    text: str


Entry: TypeAlias = (
    ForeignMessage | ForeignInstruction | ForeignAnswer | ForeignResult | ForeignSummary
)


class ForeignConversation(Value):
    """One conversation of another program's file."""

    id: str
    entries: tuple[Entry, ...]
    title: str = ""
    created_ms: int = 0
    left_out: tuple[str, ...] = ()
    """Descriptions of the parts that could not be read, or that Holdfast cannot hold."""


_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def image_from(url: str) -> Part | None:
    """The picture of a data URL or a link; None if it cannot be read."""
    found = _DATA_URL.fullmatch(url)
    if found is not None:
        return image_of(found[1], found[2])
    return Image(source=Link(url=url)) if url.startswith(("http://", "https://")) else None


def image_of(media_type: str, data: str) -> Part | None:
    """The picture in this base64 text; None if it is not base64."""
    try:
        return Image(
            source=Inline(media_type=media_type, data=base64.b64decode(data, validate=True))
        )
    except binascii.Error:
        return None
