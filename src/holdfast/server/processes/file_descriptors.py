"""Whether this process can still open files: sockets are files, too.

When it is out of them, the event loop takes a new connection by a file that it keeps for this, and closes it at once. That
keeps a server from spinning, and tells nobody: clients see connections that break, and the log has nothing. So it is
looked every second, by opening one. It is told once when they have run out, and once when there are some again.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import Counter
from collections.abc import Callable

from holdfast import limits
from holdfast.observe.events import warn

CAUSES = {errno.EMFILE: "process", errno.ENFILE: "system"}
"""Whose files have run out."""


class FileDescriptors:
    """Tells when there are no files left, and when there are some again."""

    def __init__(self, exhausted: Counter[str], *, probe: Callable[[], int] | None = None) -> None:
        """`exhausted` counts how often they have run out, by cause. `probe` opens a file, closes it, and says which
        number it had."""
        self._exhausted = exhausted
        self._probe = probe or _open_one
        self._cause: str | None = None

    def look(self) -> None:
        """Look now."""
        cause = self._find_cause()
        if cause == self._cause:
            return
        if cause is None:
            warn("files.available", cause=self._cause)
        else:
            self._exhausted[cause] += 1
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            warn("files.exhausted", cause=cause, limit=soft)
        self._cause = cause

    def _find_cause(self) -> str | None:
        try:
            number = self._probe()
        except OSError as error:
            if error.errno in CAUSES:
                return CAUSES[error.errno]
            raise
        # The system hands out the smallest number that is free: a large one means that all others are taken.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return CAUSES[errno.EMFILE] if number >= soft - limits.files_spare else None


def _open_one() -> int:
    opened = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(opened)
    return opened
