"""Log files, reopened after a rotation.

The log goes to the process's standard streams. If such a stream is a file that has been moved away, as `logrotate`
does, a new file of the old name takes its place: nothing is lost, and nothing has to be copied.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from msgspec import Struct


class LogFile(Struct, frozen=True):
    """A standard stream that is a file."""

    fd: int
    path: str

    def reopen(self) -> bool:
        """Continue in a new file of this name, if the open file was moved away; True if it was. Raises OSError."""
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
    """Those of standard output and error that are files with a name."""
    return tuple(file for fd in (1, 2) if (file := log_file(fd)) is not None)


def log_file(fd: int) -> LogFile | None:
    """The file that a stream is; None for terminals, pipes, and systems that do not tell."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        path = Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return None
    return LogFile(fd=fd, path=str(path)) if path.exists() else None


def reopen_all(files: tuple[LogFile, ...]) -> int:
    """Reopen the files that were moved away; returns how many. Raises OSError for the first that fails."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return sum(file.reopen() for file in files)
