"""Several dialects as one, for models that replace each other but speak differently.

A history is then encoded in each dialect, side by side, and every model gets its own. That costs one encoding per
dialect, of new items only; no history has to be encoded again when another model answers.

The encoded bytes are a sequence of records, with a comma between two of them where histories were joined. A record is
one length for each dialect, then the bytes of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.items import Item
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
