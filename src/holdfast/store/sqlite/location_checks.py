"""Checks of the place of a database file, before it is opened.

Four things make a SQLite file unsafe in ways that no later check would notice:

1. a SQLite library with the WAL-reset bug, which can lose committed pages;
2. a network file system, where POSIX locks and the shared memory of WAL do not hold;
3. a place that we cannot write to, or that is no plain file;
4. a log whose database is gone: opening it would make a new database, and remove the log with its commits.

Each is checked by a function that raises StoreUnusable with the way out.
Whether the file *is* a database is left to SQLite: opening it by other means in a process that
has it open would, on closing, drop the locks that SQLite holds on it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import apsw
from msgspec import Struct

from holdfast.errors import StoreUnusable


def check_all(path: Path) -> None:
    """Pass if `path`, already resolved, can be our database; raise StoreUnusable if not."""
    check_library(apsw.sqlite_lib_version())
    check_place(path)
    check_log(path)
    check_file_system(path, read_mounts())


def check_library(version: str) -> None:
    """Refuse versions that may lose committed pages when the WAL starts over."""
    found = tuple(map(int, version.split(".")[:3]))
    # The fix was carried back to two older lines, and to no other.
    if found >= (3, 51, 3) or (3, 50, 7) <= found < (3, 51) or (3, 44, 6) <= found < (3, 45):
        return
    raise StoreUnusable(
        f"SQLite {version} can lose committed data when its write-ahead log starts over; "
        "install apsw 3.51.3.0 or later, which brings a SQLite without that bug"
    )


def check_log(path: Path) -> None:
    """Refuse to make a database beside the log of another one."""
    log = path.with_name(path.name + "-wal")
    if not path.exists() and log.exists() and log.stat().st_size:
        raise StoreUnusable(
            f"{path} is gone, but its log {log.name} is there, so it was deleted or moved while in use; put it back, or "
            "move the log away and restore a backup: see `holdfast db verify --help`"
        )


def check_not_gone(path: Path) -> None:
    """Refuse to look after a database that was here and is not any more: files that a server leaves beside it are."""
    check_log(path)
    left = path.with_name(path.name + "-writer")
    if left.exists() and not (path.exists() and path.stat().st_size):
        happened = "is empty" if path.exists() else "is gone"
        raise StoreUnusable(
            f"{path} {happened}, but {left.name} is there, so it was cut, deleted or moved; put it back, or restore a "
            "backup: see `holdfast db verify --help`"
        )


def check_place(path: Path) -> None:
    """Refuse a path that cannot hold a database of ours. Nothing is opened."""
    folder = path.parent
    if path.is_dir():
        raise StoreUnusable(f"{path} is a directory; name a file in it, such as {path}/holdfast.db")
    if path.exists() and not path.is_file():
        raise StoreUnusable(f"{path} is not a plain file; name another path for the database")
    if not folder.is_dir():
        raise StoreUnusable(f"the directory {folder} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnusable(
            f"the directory {folder} is not writable, and SQLite keeps its log beside the "
            "database; change its permissions or choose another directory"
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnusable(f"{path} cannot be read and written; change its owner or permissions")


NETWORK_FILE_SYSTEMS = frozenset(
    """
    9p afs beegfs blobfuse blobfuse2 ceph ceph-fuse cephfs cifs coda curvefs davfs davfs2 gcsfuse
    glusterfs goofys gpfs juicefs lizardfs lustre mfs mount-s3 mountpoint-s3 ncp ncpfs
    nfs nfs4 orangefs pvfs2 rclone s3fs s3ql seaweedfs smb smb2 smb3 smbfs smbnetfs sshfs vmhgfs
    vmhgfs-fuse weed
    """.split()
)
"""By the names in mountinfo, with and without `fuse.` before them.

Any other file system is allowed: local ones are many, and new ones appear each year.
"""


class Mount(Struct, frozen=True):
    """One mounted file system."""

    point: str
    kind: str


def parse_mounts(lines: Iterable[str]) -> list[Mount]:
    """The mounts in `/proc/self/mountinfo`, in its order; lines of another form are left out."""
    mounts = []
    for line in lines:
        # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw
        left, dash, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if dash and len(fields) >= 5 and kinds:
            mounts.append(Mount(_unescaped(fields[4]), kinds[0]))
    return mounts


def _unescaped(text: str) -> str:
    r"""Spaces, tabs, line ends and backslashes are written as `\040` and so on."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that holds `path`: the longest prefix; among equals the last, which covers."""
    place = PurePosixPath(path)
    found: Mount | None = None
    for mount in mounts:
        if not place.is_relative_to(mount.point):
            continue
        if found is None or len(mount.point) >= len(found.point):
            found = mount
    return found


def check_file_system(path: Path, mounts: Iterable[Mount]) -> None:
    """Refuse network file systems. A mount table that says nothing about `path` allows it."""
    mount = mount_of(path, mounts)
    if mount is None:
        return
    if mount.kind.lower().removeprefix("fuse.") in NETWORK_FILE_SYSTEMS:
        raise StoreUnusable(
            f"{path} is on {mount.kind} (mounted at {mount.point}), where SQLite's locks do not "
            "hold; put the database on a local disk, or use PostgreSQL to share it"
        )


def read_mounts() -> list[Mount]:
    """The mounts that this process sees; none on systems without a mount table."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:  # no /proc in this container
        return []
    return parse_mounts(text.splitlines())
