"""A conversation of another program, in one form for all programs: messages, calls and results in order."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import Image, Inline, Link, Part, Parts
from holdfast.core.turns.events import Usage

Seen: TypeAlias = Literal["both", "people", "model", "none"]
"""Who saw an entry in the other program: its user, its model, both or neither."""


class ForeignMessage(Value):
    """A message of a person."""

    content: Parts
    at_ms: int = 0
    seen_by: Seen = "both"


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
    seen_by: Seen = "both"
    usage: Usage = Usage()
    model: str = ""
    """The model that gave the answer, as the other program names it."""
    is_cut: bool = False
    """The answer broke off: an error follows."""


class ForeignResult(Value):
    """A tool's result."""

    call: str
    content: Parts
    failed: bool = False
    at_ms: int = 0
    seen_by: Seen = "both"


class ForeignSummary(Value):
    """A summary that stands for the past in the model's view. Only the last one of a conversation counts."""

    text: str
    kept_from: int | None = None
    """The first entry before the summary that the model still sees, by its index; None: it sees none of them."""


class ForeignError(Value):
    """The request failed: the turn ends here. The model is not told."""

    text: str
    by: Literal["model_error", "cancelled", "limit"] = "model_error"
    at_ms: int = 0


class ForeignBranch(Value):
    """The work of a sub-agent on the call of the answer before it. The model of that answer sees only the result."""

    agent: str
    entries: tuple[Entry, ...]


Entry: TypeAlias = (
    ForeignMessage
    | ForeignInstruction
    | ForeignAnswer
    | ForeignResult
    | ForeignSummary
    | ForeignError
    | ForeignBranch
)


class ForeignConversation(Value):
    """One conversation of another program's file."""

    id: str
    entries: tuple[Entry, ...]
    title: str = ""
    created_ms: int = 0
    left_out: tuple[str, ...] = ()
    """Descriptions of the parts that could not be read, or that Holdfast cannot hold."""
    attributes: tuple[tuple[str, str], ...] = ()
    usage: Usage = Usage()
    """What the whole conversation used, where the file has no usage for each answer."""
    drops_open_calls: bool = False
    """Whether the other program leaves calls without a result out of its prompts."""


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
