"""SQLite connections: their settings, and what happens to them in a forked child.

One writer connection and a few readers per engine. The settings are the ones that durability and
several processes need; the comments beside them say which.

A connection must not survive a fork: SQLite believes that it holds locks which the child does not have,
and closing it could check-point or reset a log that the parent is writing. So the child never
calls SQLite on an inherited connection, not even to close it at exit: it is leaked on purpose.
Nor may the child open the same file anew, because SQLite keeps its record of locks per process
and would trust the inherited one.

Every page of a file that we make ends with a checksum, which SQLite's own `cksumvfs` writes and checks: a flipped bit
makes the read fail, instead of changing a word in an answer. Older files have no checksums, and are used as they are;
`docs/decisions/0038-damage-is-local.md` tells what checksums cost.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import apsw
from apsw import Connection, sqlite_extra

from holdfast import limits
from holdfast.errors import ChecksumsWrong, StoreUnusable
from holdfast.store.sqlite.faults import described, is_damage, is_wrong_checksum, translated
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.pages.log_length import check_log_whole

STATEMENTS_CACHED = 256
"""More than the store has queries, so each is prepared once per connection."""

CONNECTIONS = 3
"""How many connections a server has open: a writer and two readers, which share the cache's size."""

LOG_BYTES_KEPT = 64 * 1024 * 1024
"""A log that starts over is cut to this, so one huge transaction does not keep its disk space."""

BUSY_BACKSTOP_S = 0.1
"""Our processes take turns by their own lock; this is for other programs, such as the sqlite3 shell."""

OPENING_BUSY_S = 5.0
"""Opening may meet another process that recovers the log, which takes as long as the log is."""


CHECKSUM_BYTES = 8
"""The size of a checksum at the end of each page."""

CHECKSUMS = sqlite_extra.has("cksumvfs") is not None
"""Whether this build of SQLite's driver has checksums; all builds on PyPI do."""

UNCHECKED = "unix"
"""SQLite's own way to its files, which knows no checksums: for a reader of a file that another program has written."""


def open_writer(path: Path, *, vfs: str | None = None) -> Connection:
    """The connection that writes; makes the file if there is none.

    Raises StoreUnusable if the file cannot be opened as a database of ours.
    The log mode is set by `ensure_log`, which needs the write turn.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with _process.opening:
        _make_private(path)
        connection = _open(path, flags, vfs)
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns after the sync
    return connection


def open_reader(path: Path, *, vfs: str | None = None) -> Connection:
    """A connection that can only read."""
    with _process.opening:
        connection = _open(path, apsw.SQLITE_OPEN_READONLY, vfs)
    connection.execute("PRAGMA query_only = ON")
    connection.set_busy_timeout(round(OPENING_BUSY_S * 1000))
    return connection


def open_with_log(
    path: Path, turn: WriteTurn, *, timeout_s: float, vfs: str | None = None
) -> Connection:
    """`open_writer`, and WAL mode, which a new database is given under the write turn."""
    connection = open_writer(path, vfs=vfs)
    try:
        with told_as_ours(path):
            if connection.execute("PRAGMA journal_mode").get != "wal":
                turn.wait(timeout_s=timeout_s)
                try:
                    ensure_log(connection)
                finally:
                    turn.release()
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def ensure_log(connection: Connection) -> None:
    """Set WAL mode. Call it while no other process of ours uses the file."""
    mode = connection.execute("PRAGMA journal_mode = WAL").get
    if mode != "wal":
        raise StoreUnusable(
            f"SQLite cannot use a write-ahead log here (it stays with {mode!r}); "
            "put the database on a local disk"
        )


@contextmanager
def told_as_ours(path: Path) -> Iterator[None]:
    """Raise our errors for those of SQLite and of the system, while a file is opened."""
    try:
        yield
    except apsw.Error as error:
        raise unusable(path, error) from error
    except OSError as error:
        raise StoreUnusable(
            f"{error.filename or path} cannot be read ({error.strerror}); look at its permissions, and at the disk"
        ) from error


def _open(path: Path, flags: int, vfs: str | None) -> Connection:
    if identity(path) in _process.inherited:
        raise StoreUnusable(
            f"{path} was open when this process was forked, and SQLite cannot open it again here; "
            "start the process afresh (spawn instead of fork), or open the store after forking"
        )
    with told_as_ours(path):
        if identity(path) not in _process.open.values():  # closing it would drop our own locks
            check_log_whole(path)
        connection = Connection(
            str(path), flags=flags, vfs=vfs, statementcachesize=STATEMENTS_CACHED
        )
        if CHECKSUMS and path.stat().st_size == 0:
            connection.reserve_bytes("main", CHECKSUM_BYTES)
        _configure(connection)
    _process.open[connection] = identity(path)
    return connection


def _configure(connection: Connection) -> None:
    connection.set_busy_timeout(round(OPENING_BUSY_S * 1000))
    # Nothing in the file can make us run what we did not ask for, or corrupt it by plain SQL.
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # A query has one plan for all bound values. Otherwise SQLite prepares many of our queries anew
    # each time: it checks whether the values save it an ORDER BY.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # We check-point when we want to, and not at all after a failure.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.wal_autocheckpoint(0)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA mmap_size = 0")  # an I/O error would be a signal, not a result
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = -{limits.page_cache_bytes // CONNECTIONS // 1024}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}").fetchall()
    # The first read: here SQLite looks into the file, and recovers the log if it has to.
    connection.execute("PRAGMA schema_version").fetchall()


def unusable(path: Path, error: apsw.Error) -> Exception:
    """Our error for an error at opening: mostly StoreUnusable, because no retry can open this file."""
    if is_damage(error):
        what = described(error)
        if is_wrong_checksum(error) and _reads_unchecked(path):
            return ChecksumsWrong(str(path), what)
        return StoreUnusable(
            f"{path} is no SQLite database, or its beginning is damaged, or it was cut ({what}); name another file, or move this one "
            "away and restore a backup: see `holdfast db verify --help`"
        )
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreUnusable(f"{path} cannot be opened ({error}); look at its permissions")
    return translated(error)


def _reads_unchecked(path: Path) -> bool:
    """Whether SQLite finds the schema of a database, if it checks no checksums."""
    try:
        db = Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=UNCHECKED)
        try:
            return bool(db.execute("select count(*) from sqlite_schema").get)
        finally:
            db.close()
    except apsw.Error:
        return False


def _make_private(path: Path) -> None:
    """Make a new file that only its owner can read and write; SQLite gives its log the same permissions.

    Only a file that did not exist is touched. Opening and closing one that SQLite has open in
    this process would drop its locks.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be created ({error.strerror})") from error
    os.close(fd)


# Forking

Identity = tuple[int, int]
"""A file's device and inode."""


def identity(path: Path | str) -> Identity | None:
    """The identity of the file at `path`, found without opening it; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _Process:
    """The connections that this process has open, and those that it inherited and must not touch."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        """Held while a file is made and opened: see `_make_private`."""
        self.open: WeakKeyDictionary[Connection, Identity | None] = WeakKeyDictionary()
        self.inherited: set[Identity] = set()

    def park(self) -> None:
        """In a forked child: keep every inherited connection from ever being finalised."""
        self.opening = threading.Lock()  # another thread may have held it when we forked
        for connection, file in tuple(self.open.items()):
            if file is not None:
                self.inherited.add(file)
            # A reference from a list would not do: the interpreter clears those at exit.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


_process = _Process()
if CHECKSUMS:
    # For the whole process, and as what opens every file from now on: files without checksums are left as they are.
    sqlite_extra.load(Connection(":memory:"), "cksumvfs")
os.register_at_fork(after_in_child=_process.park)
