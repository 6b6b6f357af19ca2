"""The streams that a server's log goes to when another program, or a person, reads them: pipes, sockets and terminals.

A reader that stops reading fills such a stream, and a plain write to it then waits: the whole server would stand still
with its log, and could not be stopped. So no write waits. What has no room stays in memory, up to a bound; lines beyond
it are lost, which the log says (`log.lost`) once there is room again. A file always has room, or an error.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TextIO

from holdfast import limits


class UnreadLog:
    """A text stream whose writes never wait.

    `send` takes bytes and returns how many it took, or raises BlockingIOError; `lost` is told how many lines had no
    room, as soon as there is room for saying so.
    """

    def __init__(
        self,
        send: Callable[[bytearray], int],
        *,
        close: Callable[[], None],
        lost: Callable[[int], None],
    ) -> None:
        self._send = send
        self.close = close
        self._tell_lost = lost
        self._waiting = bytearray()
        self._lost = 0

    def write(self, text: str) -> None:
        """Write one record."""
        self.flush()
        data = text.encode(errors="backslashreplace")
        if self._waiting and len(self._waiting) + len(data) > limits.log_waiting_bytes_max:
            self._lost += 1
        else:
            self._waiting += data

    def flush(self) -> None:
        """Send what there is room for. Raises OSError if the reader is gone; nothing waits for it then."""
        try:
            while self._waiting:
                del self._waiting[: self._send(self._waiting)]
        except BlockingIOError:
            return
        except OSError:
            self._waiting.clear()
            raise
        if self._lost:
            lost, self._lost = self._lost, 0
            self._tell_lost(lost)


def without_waiting(stream: TextIO, *, lost: Callable[[int], None]) -> TextIO | UnreadLog:
    """A stream to write the log to in place of a standard stream: itself, if writing to it never waits for a reader."""
    # Closed, nothing with a number, or a system that does not let it be opened again.
    with suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        mode = os.fstat(number).st_mode
        if stat.S_ISSOCK(mode):
            # Told with each call: a flag of the socket would be one for every program that shares it.
            told = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            connected = socket.socket(fileno=os.dup(number))
            return UnreadLog(
                lambda data: connected.send(data, told), close=connected.close, lost=lost
            )
        if stat.S_ISFIFO(mode) or stream.isatty():
            # Opened again for the same reason.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            opened = os.open(f"/dev/fd/{number}", flags)
            return UnreadLog(partial(os.write, opened), close=partial(os.close, opened), lost=lost)
    return stream
