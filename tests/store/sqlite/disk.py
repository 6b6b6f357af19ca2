"""A disk that fails when told to, and remembers what was done to it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import apsw

_names = itertools.count(1)


class Disk(apsw.VFS):
    """SQLite's own file system with faults on top; give `name` to `Engine.open(vfs=…)`.

    `break_next("sync", "-wal", apsw.IOError)` makes the next sync of the log fail, and every
    later one until `mend()`. `events` has what happened to the log, in order.
    """

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        self.events: list[str] = []
        self.before_sync: Callable[[], None] = lambda: None
        """Called before the log is synced, in the thread that syncs."""
        self.log_bytes_max: int | None = None
        """The log does not grow beyond this: the disk is full."""
        self._faults: dict[tuple[str, str], Callable[[], Exception]] = {}
        self._guard = threading.Lock()
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def break_next(self, operation: str, file: str, error: Callable[[], Exception]) -> None:
        """From now on `operation` (read, write, sync, truncate) on `-wal` or `.db` files fails."""
        with self._guard:
            self._faults[operation, file] = error

    def mend(self) -> None:
        with self._guard:
            self._faults.clear()

    def happens(self, operation: str, file: str) -> None:
        with self._guard:
            fault = self._faults.get((operation, file))
        if file == "-wal":
            self.events.append(operation if fault is None else f"{operation} failed")
        if fault is not None:
            raise fault()


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "")
        self._kind = next((kind for kind in ("-wal", ".db") if path.endswith(kind)), "other")
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.happens("read", self._kind)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.happens("write", self._kind)
        limit = self._disk.log_bytes_max
        if self._kind == "-wal" and limit is not None and offset + len(data) > limit:
            raise apsw.FullError("no space")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._kind == "-wal":
            self._disk.before_sync()
        self._disk.happens("sync", self._kind)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        self._disk.happens("truncate", self._kind)
        super().xTruncate(newsize)
