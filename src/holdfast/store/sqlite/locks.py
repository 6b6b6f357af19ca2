"""Locks between processes, on files beside the database.

1. The *write turn* (`PATH-writer`): a process holds it around each batch. It blocks instead of
   polling, so no process starves, as one can with SQLite's own busy handler.
2. *Liveness* (`PATH-live`): a node locks the byte of its slot for as long as its process lives.
   A free byte means that the process is dead, without asking a clock.

Both are POSIX record locks, because the kernel frees those at the moment their process dies, even
if a forked child lives on; `flock` and open-file-description locks stay with the child. They come
with a trap: they belong to the process, and closing *any* descriptor of the file drops them all.
Hence one descriptor per file and process, kept in a registry and shared by all its users.

A forked child inherits the objects but not the locks. There, every call raises StoreClosed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, lockf
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.errors import StoreClosed, StoreUnavailable, StoreUnusable
from holdfast.store.sqlite.faults import inherited

# struct flock, as fcntl takes it. Python has no wrapper for F_GETLK.
if sys.platform == "darwin":
    _FLOCK = struct.Struct("@qqihh")

    def _packed(kind: int, start: int) -> bytes:
        return _FLOCK.pack(start, 1, 0, kind, os.SEEK_SET)

    def _kind(packed: bytes) -> int:
        return int(_FLOCK.unpack(packed)[3])
else:
    _FLOCK = struct.Struct("@hhqqi4x")

    def _packed(kind: int, start: int) -> bytes:
        return _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0)

    def _kind(packed: bytes) -> int:
        return int(_FLOCK.unpack(packed)[0])


_TURN, _NEXT = 0, 1
"""Two bytes of the writer file: locked by the process that writes, and by the process that is next."""

_OTHERS_PAUSE_S = 0.001


class WriteTurn:
    """A process's right to write, for one batch at a time: `with turn: …`.

    Entering waits, without bound, for other processes and for other users in this one.
    After leaving, the process that waits next goes first, before the one that has just left.
    """

    def __init__(self, path: Path) -> None:
        self._side = SideFile.share(path)
        self._closed = False

    def __enter__(self) -> Self:
        side = self._side
        side.check()
        side.mutex.acquire()
        try:
            # The process that holds _NEXT writes next; the others queue behind it. With one byte alone
            # a process that has just left could take it again before the woken processes run.
            _lock(side.fd, _NEXT)
            try:
                _lock(side.fd, _TURN)
            finally:
                lockf(side.fd, LOCK_UN, 1, _NEXT)
        except BaseException:
            side.mutex.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        side = self._side
        if not side.forked:
            lockf(side.fd, LOCK_UN, 1, _TURN)
            side.mutex.release()

    def wait(
        self,
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Enter within `timeout_s`, or raise StoreUnavailable. For the few callers that cannot wait without bound.

        It polls, and is therefore served after callers that block. Leave with `release()`.
        """
        side = self._side
        side.check()
        until = clock() + timeout_s
        while True:
            if side.mutex.acquire(blocking=False):
                if _lock_nowait(side.fd, _TURN):
                    return
                side.mutex.release()
            if clock() >= until:
                raise StoreUnavailable(
                    f"another process has held {side.path} for {timeout_s:g} s; "
                    "see whether one is stopped, and continue or end it"
                )
            pause(0.01)

    def release(self) -> None:
        """Leave what `wait` entered."""
        self.__exit__(None, None, None)

    def close(self) -> None:
        """Let the file go. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._side.leave()

    def __repr__(self) -> str:
        return f"<WriteTurn {self._side.path}>"


class Liveness:
    """Which slots belong to a live process. A slot is any number from 0 on."""

    def __init__(self, path: Path) -> None:
        self._side = SideFile.share(path)
        self._mine: set[int] = set()
        self._closed = False

    def hold_nowait(self, slot: int) -> bool:
        """Hold `slot` until it is released or this process ends; False if it is held already."""
        side = self._side
        side.check()
        with side.mutex:
            if slot in side.slots or not _lock_nowait(side.fd, slot):
                return False
            side.slots.add(slot)
            self._mine.add(slot)
            return True

    def release(self, slot: int) -> None:
        """Release a slot; nothing happens if this object does not hold it."""
        side = self._side
        side.check()
        with side.mutex:
            if slot in self._mine:
                self._mine.discard(slot)
                side.slots.discard(slot)
                lockf(side.fd, LOCK_UN, 1, slot)

    def is_held(self, slot: int) -> bool:
        """Whether a live process holds `slot`, this one included."""
        side = self._side
        side.check()
        # The kernel never reports a process's own locks to it.
        if slot in side.slots:
            return True
        answer = fcntl.fcntl(side.fd, fcntl.F_GETLK, _packed(fcntl.F_WRLCK, slot))
        return _kind(answer) != fcntl.F_UNLCK

    def close(self) -> None:
        """Release what this object holds, and let the file go. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        if not self._side.forked:
            for slot in tuple(self._mine):
                self.release(slot)
        self._side.leave()

    def __repr__(self) -> str:
        return f"<Liveness {self._side.path} holding={sorted(self._mine)}>"


class SideFile:
    """The one descriptor that this process has of a lock file. Obtained by `share`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.mutex = threading.Lock()
        """Excludes users in this process from each other; the kernel cannot tell them apart."""
        self.slots: set[int] = set()
        self.users = 0
        self.closed = False
        self.forked = False

    @classmethod
    def share(cls, path: Path) -> SideFile:
        """The side file at `path`, made if there is none; call `leave` once for each `share`."""
        with _registry.guard:
            # Looked up before it is opened: closing a second descriptor would drop the locks.
            side = _registry.find(path)
            if side is None:
                side = cls(path, _open(path))
                _registry.files.append(side)
            side.users += 1
            return side

    def leave(self) -> None:
        """One user fewer; the last one closes the file."""
        with _registry.guard:
            self.users -= 1
            if self.users == 0 and not self.forked:
                self.closed = True
                _registry.files.remove(self)
                os.close(self.fd)

    def check(self) -> None:
        """Raise StoreClosed if the file is closed, or was inherited by a fork."""
        if self.forked:
            raise inherited(self.path)
        if self.closed:
            raise StoreClosed(f"{self.path} is closed")


class _Registry:
    """The side files that this process has open: a handful at most."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.files: list[SideFile] = []

    def find(self, path: Path) -> SideFile | None:
        """By device and inode, since a file can have several names."""
        try:
            wanted = path.stat()
        except FileNotFoundError:
            return None
        for side in self.files:
            if os.path.samestat(wanted, os.fstat(side.fd)):
                return side
        return None

    def disown(self) -> None:
        """In a forked child: forget the inherited side files; they and their locks are the parent's.

        Closing the descriptors here frees nothing of the parent's: the child never had a lock.
        """
        inherited, self.files = self.files, []
        self.guard = threading.Lock()  # another thread may have held it when we forked
        for side in inherited:
            side.forked = True
            os.close(side.fd)


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.disown)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(
            f"the lock file {path} cannot be opened ({error.strerror}); "
            "change its owner or permissions"
        ) from error


def _lock(fd: int, byte: int) -> None:
    while True:
        try:
            lockf(fd, LOCK_EX, 1, byte)
            return
        except OSError as error:
            # The kernel sees processes where we have threads: two processes with two databases
            # each can look like a deadlock without being one.
            if error.errno != errno.EDEADLK:
                raise
        time.sleep(_OTHERS_PAUSE_S)


def _lock_nowait(fd: int, byte: int) -> bool:
    try:
        lockf(fd, LOCK_EX | LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows
        return False
    return True
