"""The standard streams of a command as they are: closed, full, or full of bytes that are not UTF-8.

1. A command whose output cannot be written ends with one sentence and code 74, also in the middle of its work.
2. A file descriptor below 3 is never another file's: a store that was opened as number 1 would be written by the next
   `print`.
3. Input that is not UTF-8 is read with a replacement for what cannot be read, and that is said.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import BinaryIO

from holdfast.cli import output

UNWRITABLE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS, errno.EPERM}
)
"""Errors of a device, not of ours. A closed pipe is none of them: click ends such a command without a word."""


def hold_places() -> None:
    """Put something in the place of closed streams: nothing to read, and an output that cannot be written."""
    closed = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    if all(stream is not None for stream in closed.values()):
        return
    while (place := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(place)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = TextIOWrapper(_Closed(), encoding="utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


class _Closed:
    """A stream in the place of one that was closed: a write to it raises an error."""

    readable = seekable = isatty = lambda self: False
    writable = lambda self: True  # noqa: E731
    closed = False

    def write(self, data: bytes) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def flush_output() -> OSError | None:
    """Write what is left to write, and return the error if that cannot be done."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    return None


def give_up_output() -> None:
    """Let what is left of the output vanish: Python would try once more when it ends, and complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass  # there was no file behind it


def input_text() -> str:
    """All of stdin."""
    return _decoded(_bytes_in().read())


def input_lines() -> Iterator[str]:
    """The lines of stdin as they come."""
    for line in _bytes_in():
        yield _decoded(line)


def _bytes_in() -> BinaryIO:
    return sys.stdin.buffer


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        output.say(
            "stdin is not UTF-8: what cannot be read is passed on as \N{REPLACEMENT CHARACTER}",
            err=True,
        )
        return data.decode(errors="replace")


def not_text(arguments: list[str]) -> str | None:
    """The first argument that is not UTF-8, as far as it can be read."""
    for each in arguments:
        try:
            each.encode()
        except UnicodeEncodeError:
            return each.encode(errors="replace").decode()
    return None
