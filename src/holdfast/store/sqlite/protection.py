"""A damaged store is only read, until it was verified.

A file beside the database says so and says why, so that it stays so over restarts and for every process. It goes when
`holdfast db verify` finds nothing wrong. A copy or a backup is another file, and has none.

A page that everything meets at protects the store: `pages/survey.py` looks for such pages whenever damage was met.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from holdfast.core.codec import Value
from holdfast.errors import StoreReadOnly
from holdfast.observe.events import warn

REASON_BYTES_MAX = 10_000

SURVEY_EVERY_S = 5.0
"""Many conversations may be damaged and asked for at once; one survey takes some milliseconds a gigabyte."""


class Notice(Value):
    """What the file says."""

    reason: str
    at_ms: int = 0


class Protection:
    """Whether a store may be written. Any thread may ask, and any may protect it."""

    def __init__(self, path: Path, *, quiet: bool = False) -> None:
        """`quiet`: a command that only reads logs nothing."""
        self.path = path
        self.reason: str | None = _read(path)
        """Why the store is only read; None while it may be written."""
        self._is_told = False
        """The file says so, and not this process alone."""
        self._surveyed_s = {True: -inf, False: -inf}
        """When damage was last looked for, after a write had met it and after a read had."""
        if self.reason is not None and not quiet:
            self._tell()

    def is_to_survey(self, *, writing: bool) -> bool:
        """Whether it is time to look again for damage that everything meets; from now on, it is not for a while."""
        now = time.monotonic()
        due = now - self._surveyed_s[writing] >= SURVEY_EVERY_S
        if due:
            self._surveyed_s[writing] = now
        return due

    def protect(self, reason: str) -> None:
        """Only read from now on. The first reason counts."""
        if self.reason is None:
            self.reason = reason
            with suppress(OSError):  # a disk that takes nothing any more: then this process knows
                _write(self.path, Notice(reason=reason, at_ms=time.time_ns() // 1_000_000))
            self._tell()

    def demand_writable(self) -> None:
        """Raises StoreReadOnly, unless the store was verified meanwhile."""
        if self.reason is None:
            return
        if self._is_told and not self.path.exists():
            self.reason, self._is_told = None, False
            warn("store.writable", path=str(self.path))
            return
        raise StoreReadOnly(self.reason)

    def lift(self) -> None:
        """The store was found sound. Lifting it again does nothing."""
        self.path.unlink(missing_ok=True)
        self.reason, self._is_told = None, False

    def _tell(self) -> None:
        self._is_told = self.path.exists()
        warn("store.read_only", reason=self.reason, path=str(self.path))


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            notice = file.read(REASON_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(notice, type=Notice).reason
    except msgspec.DecodeError:
        return "it was found damaged before"


def _write(path: Path, notice: Notice) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, msgspec.json.encode(notice))
        os.fsync(fd)
    finally:
        os.close(fd)
