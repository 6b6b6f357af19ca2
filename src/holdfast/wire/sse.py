"""Server-sent events, in and out.

Out: one event is one bytes object, so that it can be one write. It never has `id:` or `retry:`, which break
clients. No content can break out of its frame: JSON has no raw line breaks, and the three other characters that
some clients take for line breaks are escaped.

In: a parser that takes bytes as they come, cut anywhere, and returns whole events. It reads LF, CRLF and CR,
joins `data:` lines, skips comments, and keeps only one unfinished event in memory.
"""

from __future__ import annotations

import re
from typing import TypeAlias

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": keep-alive\n"
"""One newline: with a blank line after it, some clients take a comment for an empty event."""


def data_frame(body: bytes) -> bytes:
    """A chat event, from its JSON."""
    return b"data: " + one_line(body) + b"\n\n"


def event_frame(name: str, body: bytes) -> bytes:
    """A Responses event, from its JSON, which contains the name, too."""
    return b"event: " + name.encode() + b"\ndata: " + one_line(body) + b"\n\n"


def bodies(frames: bytes) -> list[bytes]:
    """The JSON of the Responses events in these frames, for transports without frames.

    Comments and `[DONE]` are left out.
    """
    return [data for frame in frames.split(b"\n\n") if (data := frame.partition(b"\ndata: ")[2])]


def one_line(body: bytes) -> bytes:
    """The same JSON, escaped so that every client takes it for one line.

    Some clients split lines as Python's `str.splitlines` does, which also splits at U+0085, U+2028 and U+2029.
    """
    assert LF not in body and CR not in body, "JSON in one line"
    return body if body.isascii() else _OTHER_BREAK.sub(_escaped, body)


LF, CR = b"\n\r"
"""As numbers: `bytes in bytes` would raise and catch an exception internally."""

_OTHER_BREAK = re.compile(b"\xc2\x85|\xe2\x80[\xa8\xa9]")


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


ServerEvent: TypeAlias = tuple[bytes, str]
"""One event of a stream: its data, and its name, which is empty if it has none. A plain tuple, since this runs for every
token."""

_MARK = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseParser:
    """Bytes in, events out, wherever the bytes are cut. `feed` returns the events that have become whole."""

    def __init__(self, *, event_bytes_max: int) -> None:
        self._event_bytes_max = event_bytes_max
        self._line = bytearray()
        """The beginning of a line whose end has not come."""
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""
        self._begun = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Raises EventTooLong if one event exceeds the bound: then the stream cannot be trusted."""
        if not self._begun:
            piece = self._without_mark(piece)
        if self._after_cr and piece:
            # The CR has ended its line already, so that the event does not wait for an LF that may never come.
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if CR in piece or self._data or self._name:
            return self._by_line(self._split(piece))
        if self._line and LF in piece:
            piece = bytes(self._line) + piece
            self._line.clear()
        events: list[ServerEvent] = []
        if piece[:6] == b"data: " and not self._line:
            # Nearly always whole events without names, of one line each: then no other line ends.
            whole, end, rest = piece.rpartition(b"\n\n")
            if end and len(whole) <= self._event_bytes_max:
                if LF not in whole:  # one event: a token that comes alone
                    events, piece = [(whole[6:], "")], rest
                elif LF not in b"".join(data := whole[6:].split(b"\n\ndata: ")):
                    events, piece = [(each, "") for each in data], rest
        return events + self._by_line(piece.split(b"\n")) if piece else events

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._line or self._data)

    def _by_line(self, lines: list[bytes]) -> list[ServerEvent]:
        """The events that these lines complete. The last line is unfinished."""
        events: list[ServerEvent] = []
        rest = lines.pop()
        for line in lines:
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            event = self._take(line)
            if event is not None:
                events.append(event)
        if rest:
            self._line += rest
            self._bound(len(self._line))
        return events

    def _split(self, piece: bytes) -> list[bytes]:
        if piece:  # an empty one leaves open what follows a CR
            self._after_cr = piece.endswith(b"\r")
        return _LINE_END.split(piece)

    def _without_mark(self, piece: bytes) -> bytes:
        """The piece without a byte-order mark, which a stream may begin with."""
        piece = bytes(self._line) + piece
        self._line.clear()
        if len(piece) < len(_MARK) and _MARK.startswith(piece):
            self._line += piece
            return b""
        self._begun = True
        return piece.removeprefix(_MARK)

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        self._bound(len(line))
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(line) + 1
            self._bound(self._size)
        elif field == b"event":
            self._name = value.removeprefix(b" ")
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._size = 0
        if name:
            self._name = b""
        if not data:
            return None
        self._data = []
        if len(data) == 1 and not name:  # nearly always, and this runs for every token
            return data[0], ""
        return b"\n".join(data), name.decode(errors="replace")

    def _bound(self, size: int) -> None:
        if size > self._event_bytes_max:
            raise EventTooLong(self._event_bytes_max)


class EventTooLong(Exception):
    """An event that does not end: the server is broken, or malicious."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"a single event is longer than {bytes_max} bytes")
