"""The base of stream parsers: every provider that we ask sends JSON by server-sent events.

1. The same stream gives the same deltas, wherever its bytes are cut.
2. An answer is whole only if the server says how it ended, not because nothing more comes. `[DONE]` alone is not enough:
   servers send it after failures, too.
3. Deltas before a failure are returned, even if both arrive in one piece; then `failure` is set.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.codec import DAMAGE
from holdfast.core.turns.deltas import Delta
from holdfast.errors import without_frames
from holdfast.wire.openai.chat.chunks import ErrorObject, mended
from holdfast.wire.sse import EventTooLong, SseParser


class StreamFailure(Exception):
    """The stream reports a failure, or makes no sense. `error` has the details."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error


class GarbledStream(StreamFailure):
    """The bytes are not what this server should send; `why` says what is wrong with them."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorObject(message=why))


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
            for data, name in () if self.over else self._parser.feed(piece):
                if data == b"[DONE]":
                    self._ended = True
                    break
                try:
                    if name == "error" and _says_something(data):
                        self.demand_envelope(data)
                    self.parse(data, deltas)
                except DAMAGE as error:
                    if _says_something(data):
                        self.parse_mended(data, error, deltas)
                if self._ended:
                    break
        except EventTooLong as error:
            self.failure = GarbledStream(str(error))
        except StreamFailure as failure:
            self.failure = without_frames(failure)
        return deltas

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event. Raises StreamFailure, or a decoding error, before it has added anything."""
        raise NotImplementedError

    def parse_mended(self, data: bytes, error: Exception, deltas: list[Delta]) -> None:
        """The same for an event that `parse` has failed on with this error: its text may be broken. Raises StreamFailure."""
        text = mended(data)
        if text == data:
            raise _garbled(error) from error
        try:
            self.parse(text, deltas)
        except DAMAGE:
            raise _garbled(error) from error

    def demand_envelope(self, data: bytes) -> None:
        """Raises StreamFailure for the data of an `event: error` that is an error without the envelope that `parse` knows."""


def _says_something(data: bytes) -> bool:
    return bool(data) and not data.isspace()


def _garbled(error: Exception) -> GarbledStream:
    return GarbledStream(f"an event cannot be read: {error}")
