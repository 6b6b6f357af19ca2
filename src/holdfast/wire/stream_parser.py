"""Listening to a stream of events, as it is on every wire that sends JSON by server-sent events.

1. The same stream gives the same deltas, whatever the cuts between its bytes.
2. Only what a server says about the end makes an answer a whole one; that nothing more comes does not.
3. What was said before a failure is heard, also when both arrive in one piece; then `failure` says what is wrong.

Chat completions have ears of their own (`openai/chat/stream_parser.py`), which know the liberties that servers take there.
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
"""What decoding raises for bytes that are not what they should be."""


class StreamParser:
    """One stream being listened to. A wire says what an event means: see `hear`."""

    def __init__(self, *, event_bytes_max: int) -> None:
        self._parser = SseParser(event_bytes_max=event_bytes_max)
        self._finished = False
        self._ended = False
        self.failure: StreamFailure | None = None
        """What is wrong with the stream, with the upstream's own words."""

    @property
    def finished(self) -> bool:
        """The server has said how the answer ended: it is whole."""
        return self._finished

    @property
    def over(self) -> bool:
        """Nothing more is to come, or is worth hearing."""
        return self._ended or self.failure is not None

    def feed(self, piece: bytes) -> Sequence[Delta]:
        """What these bytes say. Look at `failure` afterwards."""
        deltas: list[Delta] = []
        try:
            for event in self._parser.feed(piece):
                if self.over:
                    break
                data = event.data
                if data and data != b"[DONE]" and not data.isspace():
                    self._understand(data, deltas)
        except EventTooLong as error:
            self.failure = GarbledStream(ErrorObject(message=str(error)))
        except StreamFailure as failure:
            self.failure = without_frames(failure)
        return deltas

    def hear(self, data: bytes, deltas: list[Delta]) -> None:
        """Add what one event says. Raises Failing, or what decoding raises, before anything is added."""
        raise NotImplementedError

    def _understand(self, data: bytes, deltas: list[Delta]) -> None:
        try:
            self.hear(data, deltas)
        except UNREADABLE as error:
            text = mended(data)
            if text == data:
                raise _garbled(error) from error
            try:
                self.hear(text, deltas)
            except UNREADABLE:
                raise _garbled(error) from error


def _garbled(error: Exception) -> GarbledStream:
    return GarbledStream(ErrorObject(message=f"an event cannot be read: {error}"))
