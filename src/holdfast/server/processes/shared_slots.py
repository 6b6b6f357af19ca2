"""A board that processes of one parent share: each has a place to write on, and everybody reads all of them.

1. A reader finds the newest whole text of a place, or the one before; never half of one.
2. A place has one writer. Who is killed while it writes leaves the text before.
3. It is memory and nothing else: no file, and gone with the last process that has it.

A place has two halves. A text is written to the one that is not shown, and then that one is shown, by a single byte.
"""

from __future__ import annotations

import mmap
from struct import Struct
from zlib import crc32

HALF_BYTES = 256 * 1024
"""More than twice what the numbers of every route with every status take. Memory that is not written to is none."""

_HEAD = Struct("<II")
"""Of a half: its length, and a checksum."""
_PLACE_BYTES = 4096 + 2 * HALF_BYTES

READS_MAX = 100
"""A reader that was overtaken looks again. A writer is done with both halves in a millisecond at the very least."""


class SharedSlots:
    """Made before forking, used after it."""

    def __init__(self, places: int) -> None:
        self._memory = mmap.mmap(-1, places * _PLACE_BYTES)

    def write(self, place: int, text: bytes) -> None:
        """Show this at a place, instead of what was there."""
        assert len(text) <= HALF_BYTES - _HEAD.size, "what is written has a bound"
        start = place * _PLACE_BYTES
        half = 1 if self._memory[start] == 2 else 2
        at = self._half(place, half)
        self._memory[at + _HEAD.size : at + _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._memory, at, len(text), crc32(text))
        self._memory[start] = half

    def read(self, place: int) -> bytes:
        """What is shown at a place; empty if nothing ever was."""
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
