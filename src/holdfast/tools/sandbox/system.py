"""System calls that the standard library lacks, for the launcher."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class SystemCallRefused(Exception):
    """The sandbox cannot be made; the message says why."""


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call by its number. Raises OSError."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    found: int = libc.syscall(ctypes.c_long(number), *given)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def print_message(words: str) -> None:
    os.write(2, f"[sandbox] {words}\n".encode())
