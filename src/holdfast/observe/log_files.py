"""The files that a log goes to, opened anew after a rotation.

We write to the streams that we were started with. Where such a stream is a file that was moved away since, as `logrotate`
does it, a file of the old name takes its place: nothing is lost, and nothing has to be copied.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from msgspec import Struct


class LogFile(Struct, frozen=True):
    """A stream of ours that is a file."""

    fd: int
    path: str

    def reopen(self) -> bool:
        """Go on in a file of this name, if the one that is open has another by now; whether it has. Raises OSError."""
        before = os.fstat(self.fd)
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        if found is not None and (found.st_dev, found.st_ino) == (before.st_dev, before.st_ino):
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        opened = os.open(self.path, flags, stat.S_IMODE(before.st_mode))
        try:
            os.dup2(opened, self.fd)
        finally:
            os.close(opened)
        return True


def standard_files() -> tuple[LogFile, ...]:
    """Our standard output and error, as far as they are files with a name."""
    return tuple(file for fd in (1, 2) if (file := log_file(fd)) is not None)


def log_file(fd: int) -> LogFile | None:
    """What a stream is called, if it is a file; None for terminals, pipes, and where the system does not say."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        path = Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return None
    return LogFile(fd=fd, path=str(path)) if path.exists() else None


def reopen_all(files: tuple[LogFile, ...]) -> int:
    """Open those anew that were moved away; how many were. Raises OSError for the first that cannot be."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return sum(file.reopen() for file in files)
