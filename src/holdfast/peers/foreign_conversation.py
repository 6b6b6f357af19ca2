"""What other programs keep of a conversation, in one shape: who said what, in order."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import Image, Inline, Link, Part, Parts


class ForeignMessage(Value):
    """A person said something."""

    content: Parts
    at_ms: int = 0


class ForeignInstruction(Value):
    """Instructions that are part of the history."""

    content: Parts


class ForeignCall(Value):
    """The model asked for a tool. `id` is what its result will name."""

    id: str
    name: str
    arguments: str


class ForeignAnswer(Value):
    """The model answered, in one step: what it thought, what it said, which tools it wants."""

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
    """From here on the model knew what came before by this summary only."""

    text: str


Entry: TypeAlias = (
    ForeignMessage | ForeignInstruction | ForeignAnswer | ForeignResult | ForeignSummary
)


class ForeignConversation(Value):
    """One conversation, as it lies in another program's file."""

    id: str
    entries: tuple[Entry, ...]
    title: str = ""
    created_ms: int = 0
    left_out: tuple[str, ...] = ()
    """What could not be read, or has no place here, each in a few words."""


_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def image_from(url: str) -> Part | None:
    """The picture that a URL means; None if it is not one that can be read."""
    found = _DATA_URL.fullmatch(url)
    if found is not None:
        return image_of(found[1], found[2])
    return Image(source=Link(url=url)) if url.startswith(("http://", "https://")) else None


def image_of(media_type: str, data: str) -> Part | None:
    """The picture of these base64 letters; None if they are none."""
    try:
        return Image(
            source=Inline(media_type=media_type, data=base64.b64decode(data, validate=True))
        )
    except binascii.Error:
        return None
