"""Claude's thoughts: what is kept of them, and which of them still fit the prompt that they stand in.

The thoughts of newer models hold only for the exact instructions, tools and messages that they came after. A request
that brings one after anything else is refused (400), and so is every retry of it. Leaving one thought out changes
the prompt of those after it, so they have to be left out with it.

1. With a thought we keep its model, the digest of the prompt that its request sent, and its place in the answer.
2. A thought goes back if its model is asked, the prompt before its answer has that digest, and every block of the
   answer before it goes back, too. So what a request leaves out decides what may stay behind it, and thoughts that
   were made after something was left out fit as long as it is left out again.
3. Whether a thought fits is known only with the instructions and tools of the request. So an encoded message keeps
   its bound thoughts between marks, and `fitting` makes the message of it. Marks are control characters, which
   no JSON contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.items import Opaque
from holdfast.wire.prefix_digest import PrefixDigest

OWNER = "anthropic"
"""The owner of an `Opaque` that holds a thinking block without its text, as it has to go back."""

_encode = msgspec.json.Encoder().encode

# ── as they are stored ───────────────────────────────────────────────────────────────────────


class KeptThought(Struct, frozen=True, omit_defaults=True):
    """A thinking block as it is stored: everything but its text. Old records know nothing of its origin."""

    type: Literal["thinking", "redacted_thinking"]
    signature: str = ""
    data: str = ""
    model: str = ""
    prefix: str = ""
    """The digest of the prompt that it was made under; empty if it is not known."""
    place: int = 0
    """How many blocks of its answer came before it."""


class ThoughtOrigin(Struct, frozen=True):
    """Where the thoughts of one answer come from."""

    model: str = ""
    prefix: str = ""


def kept_thought(
    *, signature: str = "", data: str = "", origin: ThoughtOrigin | None = None, place: int = 0
) -> Opaque:
    """The stored part of a thinking block: its signature or the redacted data, and its origin."""
    known = origin or ThoughtOrigin()
    kept = KeptThought(
        type="redacted_thinking" if data else "thinking",
        signature=signature,
        data=data,
        model=known.model,
        prefix=known.prefix,
        place=place if known.prefix else 0,
    )
    return Opaque(owner=OWNER, json=_encode(kept).decode())


def read_thought(extra: Opaque) -> KeptThought:
    return msgspec.json.decode(extra.json, type=KeptThought)


# ── as they go back ──────────────────────────────────────────────────────────────────────────


class ThinkingBlock(Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str


class RedactedBlock(Struct, frozen=True, tag="redacted_thinking"):
    data: str


Thought: TypeAlias = ThinkingBlock | RedactedBlock


class BoundThought(Struct, frozen=True, tag="bound_thought"):
    """A thought that goes back only after the prompt with this digest."""

    prefix: str
    block: Thought


def thought_of(text: str, extra: Opaque) -> Thought:
    return _block(text, read_thought(extra))


def bound_thought(text: str, extra: Opaque, model: str, *, place: int) -> BoundThought | None:
    """The thought, if this model made it and all blocks before it go back; otherwise None."""
    kept = read_thought(extra)
    if kept.model != model or not kept.prefix or kept.place != place:
        return None
    return BoundThought(prefix=kept.prefix, block=_block(text, kept))


def _block(text: str, kept: KeptThought) -> Thought:
    if kept.type == "redacted_thinking":
        return RedactedBlock(data=kept.data)
    return ThinkingBlock(thinking=text, signature=kept.signature)


# ── marks ────────────────────────────────────────────────────────────────────────────────────

_MESSAGE, _BLOCK, _BOUND = b"\x1d", b"\x1e", b"\x1f"
_ASSISTANT = b'{"role":"assistant","content":['


def marked(blocks: Sequence[Struct]) -> bytes:
    """An assistant's message, with its bound thoughts between marks."""
    parts = (
        each.prefix.encode() + _BOUND + _encode(each.block)
        if isinstance(each, BoundThought)
        else _encode(each)
        for each in blocks
    )
    return _MESSAGE + _BLOCK.join(parts) + _MESSAGE


def fitting(messages: bytes, before: PrefixDigest) -> bytes:
    """The messages with the thoughts that fit after `before`, and without the others and the marks.

    `before` goes on to the end of what is returned, which may be nothing.
    """
    if _MESSAGE not in messages:
        before.add(messages)
        return messages
    kept: list[bytes] = []
    for n, part in enumerate(messages.split(_MESSAGE)):
        message = _fitting_message(part, before.text.encode()) if n % 2 else part.strip(b",")
        if message:
            before.add(message)
            kept.append(message)
    return b",".join(kept)


def _fitting_message(part: bytes, prefix: bytes) -> bytes:
    blocks: list[bytes] = []
    for each in part.split(_BLOCK):
        made_under, bound, block = each.partition(_BOUND)
        if not bound:
            blocks.append(each)
        elif made_under == prefix:
            blocks.append(block)
    return _ASSISTANT + b",".join(blocks) + b"]}" if blocks else b""


def without_bound(messages: bytes) -> bytes:
    """The messages without thoughts that are bound to a prompt: for a question that is not one."""
    return fitting(messages, PrefixDigest()) if _MESSAGE in messages else messages
