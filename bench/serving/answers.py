"""Where an answer ends, and how many tokens it has brought, by its bytes alone: no wire format is decoded.

1. The end is what HTTP says it is: a length, a last chunk, or the end of the connection.
2. A token is an occurrence of ` token` in the body, wherever the pieces of it were cut.
"""

from __future__ import annotations

TOKEN = b" token"
_LAST = b"0\r\n\r\n"


class Answer:
    """One answer, piece by piece."""

    def __init__(self) -> None:
        self.tokens = 0
        self.ended = False
        self.status = 0
        self.head = b""
        self._left: int | None = None
        """What is to come, where a length was given."""
        self._chunked = False
        self._tail = b""
        """The end of what has come: a token or a last chunk may have begun there."""

    def feed(self, data: bytes) -> None:
        """Take in a piece. Nothing may come after the end: requests are asked one by one."""
        if not self.status:
            self.head += data
            head, whole, data = self.head.partition(b"\r\n\r\n")
            if not whole:
                return
            self._read_head(head)
        self.tokens += (self._tail[1 - len(TOKEN) :] + data).count(TOKEN)
        self._tail = (self._tail + data[-8:])[-8:]
        if self._left is not None:
            self._left -= len(data)
            self.ended = self._left <= 0
        elif self._chunked:
            # An empty answer is nothing but its last chunk; otherwise the one before it ends with a line.
            self.ended = self._tail.endswith(b"\r\n" + _LAST) or self._tail == _LAST

    def closed(self) -> bool:
        """The connection has ended. True if this was how the answer had to end, or it had ended before."""
        if self.status and self._left is None and not self._chunked:
            self.ended = True
        return self.ended

    def _read_head(self, head: bytes) -> None:
        first, *fields = head.lower().split(b"\r\n")
        self.status = int(first.split()[1])
        for each in fields:
            name, _, value = each.partition(b":")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"transfer-encoding":
                self._chunked = b"chunked" in value
