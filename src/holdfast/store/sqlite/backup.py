"""Backups: a copy of the database as it stood at one moment, made while turns go on.

1. The copy is one state of the store: all pages are read in one read transaction, on a connection of its own.
   Without it SQLite would start again after every commit, and on a busy store never end.
2. Writers do not wait for the copy. Only the log cannot start over until the copy is done.
3. Under the target's name there is no file, or the whole copy, synced. An existing file is never replaced.
4. The copy is a single file without a log, and is opened like any other store.

`docs/decisions/0004-backups-copy-pages.md` says what else we considered.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
from apsw import Connection

from holdfast.core.codec import Value
from holdfast.errors import StorageFull, StoreUnavailable, StoreUnusable
from holdfast.store.sqlite.connection import CHECKSUM_BYTES, open_reader, unusable
from holdfast.store.sqlite.faults import described
from holdfast.store.sqlite.migration import has_checksums, step_of

STEP_PAGES = 256
"""1 MiB: a few milliseconds of copying, after which `progress` is called, and may stop the backup by raising."""

OnProgress = Callable[[int, int], None]
"""Called with the number of copied pages, and the number of all pages."""


class FinishedBackup(Value):
    """A finished backup."""

    path: Path
    pages: int
    bytes: int


def back_up(source: Path, target: Path, *, progress: OnProgress | None = None) -> FinishedBackup:
    """Copy the store at `source` into a new file. Blocks until it is durable: give it a thread.

    Raises StoreUnusable if `source` is no store or `target` exists or cannot be written, StorageFull if there is
    no room, and StoreUnavailable if a file cannot be read or written. Then, and if `progress` raises, nothing is
    left behind.
    """
    source, target = source.resolve(), target.resolve()
    if not source.exists():
        raise StoreUnusable(f"there is no database at {source}")
    if os.path.lexists(target):
        raise _taken(target)
    with _unfinished(target) as copy:
        with _told(source, target):
            with closing(open_reader(source)) as reader:
                pages = copy_pages(reader, copy, progress or (lambda done, of: None))
        with _unwritable(target):
            _sync(copy)
            _publish(copy, target)
            _sync(target.parent)
            return FinishedBackup(path=target, pages=pages, bytes=target.stat().st_size)


def copy_pages(reader: Connection, copy: Path, progress: OnProgress) -> int:
    """Copy every page into an empty file; returns how many there are."""
    with closing(Connection(str(copy))) as writer:
        # No other process uses the file yet, and it is synced as a whole, so it needs neither journal nor syncs.
        writer.execute("PRAGMA journal_mode = OFF").fetchall()
        writer.execute("PRAGMA synchronous = OFF")
        if has_checksums(reader):
            # Pages in the log have none yet. They are made as pages are written, once the first page says so; and of a
            # large file, others would be written before it.
            writer.reserve_bytes("main", CHECKSUM_BYTES)
            writer.execute("PRAGMA user_version = 1")
        reader.execute("BEGIN")
        step_of(reader)  # refuses a foreign database, and begins the snapshot
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(STEP_PAGES)
                progress(copying.page_count - copying.remaining, copying.page_count)
            pages = copying.page_count
        # The copied header says that there is a log. This makes the file complete without one.
        writer.execute("PRAGMA journal_mode = DELETE").fetchall()
        reader.execute("ROLLBACK")
    return pages


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """A new private file beside the target, which is removed afterwards."""
    with _unwritable(target):
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
        os.close(fd)
    copy = Path(name)
    try:
        yield copy
    finally:
        for each in (copy, *(copy.with_name(f"{copy.name}{end}") for end in _BESIDE)):
            each.unlink(missing_ok=True)


_BESIDE = ("-journal", "-wal", "-shm")


def _publish(copy: Path, target: Path) -> None:
    """Give the copy its name, unless a file of that name was made meanwhile. A rename would replace that file."""
    try:
        os.link(copy, target)
    except FileExistsError:
        raise _taken(target) from None
    except OSError:
        # Not every file system has links. Without them, the moment between these two lines is not guarded.
        if os.path.lexists(target):
            raise _taken(target) from None
        copy.rename(target)


def _sync(path: Path) -> None:
    """Sync a file's bytes, or a directory's names. No connection has the copy open by now."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _taken(target: Path) -> StoreUnusable:
    return StoreUnusable(f"{target} exists already; name a file that does not, nothing was copied")


@contextmanager
def _told(source: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except apsw.FullError as error:
        raise StorageFull(f"no space is left for {target}; nothing is left behind") from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise unusable(source, error) from error
    except apsw.Error as error:
        raise StoreUnavailable(
            f"the backup broke off ({described(error)}); nothing is left behind, and the store is as it was"
        ) from error


@contextmanager
def _unwritable(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnusable(f"{target} cannot be written ({error.strerror})") from error
