"""A board in memory that processes of one parent share: each process writes its own place, and reads all of them.

1. A reader finds the newest whole text of a place, or the one before; never half of one.
2. A place has one writer. A writer that is killed while it writes leaves the text before.
3. It is memory only: there is no file, and it is gone with the last process that has it.

A place has two halves. A text is written to the half that readers do not use, and then one byte switches them to it.
"""

from __future__ import annotations

import mmap
from struct import Struct
from zlib import crc32

HALF_BYTES = 256 * 1024
"""More than twice what the numbers of every route with every status take. Pages that are never written cost nothing."""

_HEAD = Struct("<II")
"""The head of a half: the length of its text, and a checksum."""
_PLACE_BYTES = 4096 + 2 * HALF_BYTES

READS_MAX = 100
"""How often a reader tries again if a writer has overtaken it. A writer needs at least a millisecond for both halves."""


class SharedSlots:
    """The board. It is made before forking, and used after."""

    def __init__(self, places: int) -> None:
        self._memory = mmap.mmap(-1, places * _PLACE_BYTES)

    def write(self, place: int, text: bytes) -> None:
        """Replace the text of a place."""
        assert len(text) <= HALF_BYTES - _HEAD.size, "what is written has a bound"
        start = place * _PLACE_BYTES
        half = 1 if self._memory[start] == 2 else 2
        at = self._half(place, half)
        self._memory[at + _HEAD.size : at + _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._memory, at, len(text), crc32(text))
        self._memory[start] = half

    def read(self, place: int) -> bytes:
        """The text of a place; empty if it was never written."""
        start = place * _PLACE_BYTES
        for _ in range(READS_MAX):
            half = self._memory[start]
            if half == 0:
                return b""
            at = self._half(place, half)
            length, checksum = _HEAD.unpack_from(self._memory, at)
            text = self._memory[at + _HEAD.size : at + _HEAD.size + length]
            if crc32(text) == checksum:
                return text
        return b""

    def _half(self, place: int, half: int) -> int:
        return place * _PLACE_BYTES + 4096 + (half - 1) * HALF_BYTES
