"""Dialects that are made of others: several as one, for models that replace each other but speak differently; and one
without the pictures and files that a model does not take.

A history is then encoded in each dialect, side by side, and every model gets its own. That costs one encoding per
dialect, of new items only; no history has to be encoded again when another model answers.

The encoded bytes are a sequence of records, with a comma between two of them where histories were joined. A record is
one length for each dialect, then the bytes of each.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Item,
    Link,
    Part,
    SystemMessage,
    Text,
    ToolResult,
    UserMessage,
)
from holdfast.models.model import BindingDialect, Dialect
from holdfast.wire.prefix_digest import Prefixes


class SeveralDialects:
    """These dialects, side by side. See `models.model.Dialect`."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self._dialects = {each.name: each for each in dialects}
        self.name = "+".join(self._dialects)
        self.binds = any(each.binds for each in self._dialects.values())
        self._lengths = struct.Struct(f">{len(self._dialects)}Q")

    def encode(self, items: Sequence[Item]) -> bytes:
        said = [each.encode(items) for each in self._dialects.values()]
        return self._packed(said) if any(said) else b""

    def fit(self, messages: bytes, before: Prefixes) -> bytes:
        parts = self._unpacked(messages)
        each = zip(self._dialects.values(), parts, strict=True)
        fitted = [
            dialect.fit(part, before)
            if isinstance(dialect, BindingDialect) and dialect.binds
            else part
            for dialect, part in each
        ]
        return self._packed(fitted) if any(fitted) else b""

    def blobs_in(self, messages: bytes) -> frozenset[str]:
        parts = self._unpacked(messages)
        each = zip(self._dialects.values(), parts, strict=True)
        return frozenset[str]().union(*(dialect.blobs_in(part) for dialect, part in each))

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        parts = self._unpacked(messages)
        each = zip(self._dialects.values(), parts, strict=True)
        return self._packed([dialect.with_blobs(part, blobs) for dialect, part in each])

    def only(self, name: str, messages: bytes) -> bytes:
        """The messages in one of the dialects."""
        return self._unpacked(messages)[list(self._dialects).index(name)]

    def _packed(self, said: Sequence[bytes]) -> bytes:
        return self._lengths.pack(*map(len, said)) + b"".join(said)

    def _unpacked(self, messages: bytes) -> list[bytes]:
        """The bytes of each dialect, joined over all records."""
        parts: list[list[bytes]] = [[] for _ in self._dialects]
        at = 0
        while at < len(messages):
            lengths = self._lengths.unpack_from(messages, at)
            at += self._lengths.size
            for part, length in zip(parts, lengths, strict=True):
                if length:
                    part.append(messages[at : at + length])
                at += length
            at += len(b",")
        return [b",".join(part) for part in parts]


Kind: TypeAlias = Literal["image", "pdf", "audio", "video"]
"""What a message may have besides words."""


class LimitedDialect:
    """A dialect in which some kinds of parts are a note in words. See `models.model.Dialect`."""

    binds = False

    def __init__(self, inner: Dialect, without: Collection[Kind]) -> None:
        assert not inner.binds, "what its thoughts are bound to would be another prompt"
        self._inner = inner
        self._without = frozenset(without)
        self.name = f"{inner.name} without {', '.join(sorted(self._without))}"

    def encode(self, items: Sequence[Item]) -> bytes:
        return self._inner.encode([self._limited(each) for each in items])

    def blobs_in(self, messages: bytes) -> frozenset[str]:
        return self._inner.blobs_in(messages)

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        return self._inner.with_blobs(messages, blobs)

    def _limited(self, item: Item) -> Item:
        match item:
            case UserMessage() | SystemMessage() | AssistantMessage() | ToolResult():
                if any(_kind_of(each) in self._without for each in item.content):
                    content = tuple(map(self._told, item.content))
                    return msgspec.structs.replace(item, content=content)
        return item

    def _told(self, part: Part) -> Part:
        kind = _kind_of(part)
        return part if kind not in self._without else Text(text=f"[{kind} left out]")


def _kind_of(part: Part) -> Kind | None:
    match part:
        case Image():
            return "image"
        case Audio():
            return "audio"
        case File(source=source, name=name):
            media = "" if isinstance(source, Link) else source.media_type
            if media == "application/pdf" or name.lower().endswith(".pdf"):
                return "pdf"
            return "video" if media.startswith("video/") else None
        case _:
            return None
