"""The base of stream parsers for wires that send JSON by server-sent events.

1. The same stream gives the same deltas, wherever its bytes are cut.
2. An answer is whole only if the server says how it ended, not because nothing more comes.
3. Deltas before a failure are returned, even if both arrive in one piece; then `failure` is set.

Chat completions have a parser of their own (`openai/chat/stream_parser.py`), since servers take liberties there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.turns.deltas import Delta
from holdfast.errors import without_frames
from holdfast.wire.openai.chat.chunks import ErrorObject, mended
from holdfast.wire.openai.chat.stream_parser import GarbledStream, StreamFailure
from holdfast.wire.sse import EventTooLong, SseParser

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding bytes that are not what they should be."""


class StreamParser:
    """Parses one stream. A subclass knows what an event means: see `parse`."""

    def __init__(self, *, event_bytes_max: int) -> None:
        self._parser = SseParser(event_bytes_max=event_bytes_max)
        self._finished = False
        self._ended = False
        self.failure: StreamFailure | None = None
        """What is wrong with the stream, in the upstream's words."""

    @property
    def finished(self) -> bool:
        """The server has said how the answer ended: it is whole."""
        return self._finished

    @property
    def over(self) -> bool:
        """The stream has ended, or the rest can be ignored."""
        return self._ended or self.failure is not None

    def feed(self, piece: bytes) -> Sequence[Delta]:
        """The deltas in these bytes. Check `failure` afterwards."""
        deltas: list[Delta] = []
        try:
            for event in self._parser.feed(piece):
                if self.over:
                    break
                data = event.data
                if data and data != b"[DONE]" and not data.isspace():
                    self._parse_event(data, deltas)
        except EventTooLong as error:
            self.failure = GarbledStream(ErrorObject(message=str(error)))
        except StreamFailure as failure:
            self.failure = without_frames(failure)
        return deltas

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event. Raises StreamFailure, or a decoding error, before it has added anything."""
        raise NotImplementedError

    def _parse_event(self, data: bytes, deltas: list[Delta]) -> None:
        try:
            self.parse(data, deltas)
        except UNREADABLE as error:
            text = mended(data)
            if text == data:
                raise _garbled(error) from error
            try:
                self.parse(text, deltas)
            except UNREADABLE:
                raise _garbled(error) from error


def _garbled(error: Exception) -> GarbledStream:
    return GarbledStream(ErrorObject(message=f"an event cannot be read: {error}"))
