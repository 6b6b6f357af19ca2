"""The watch over file descriptors: whether this process can still open files. Sockets are files, too.

When there are none left, the event loop accepts a new connection with a descriptor that it keeps in reserve, and closes
it at once. That keeps the server from spinning, but hides the cause: clients see connections that break, and the log
has nothing. So the server tries every second to open a file, and logs once when none are left, and once when there are
some again.
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
"""Whose limit was reached, by error number."""


class FileDescriptors:
    """Logs when there are no file descriptors left, and when there are some again."""

    def __init__(self, exhausted: Counter[str], *, probe: Callable[[], int] | None = None) -> None:
        """`exhausted` counts how often there were none left, by cause. `probe` opens a file, closes it, and returns its
        number."""
        self._exhausted = exhausted
        self._probe = probe or _open_one
        self._cause: str | None = None

    def look(self) -> None:
        """Check now."""
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
            # Any other error, such as too little memory, says nothing about files.
            return CAUSES.get(error.errno or 0, self._cause)
        # The system hands out the smallest free number: a large one means that all below it are taken.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return CAUSES[errno.EMFILE] if number >= soft - limits.files_spare else None


def _open_one() -> int:
    opened = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(opened)
    return opened
