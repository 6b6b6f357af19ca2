"""Where the store refuses to live."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreUnusable
from holdfast.store.sqlite import location_checks
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.location_checks import Mount
from tests.store.sqlite.opened import opened


@pytest.mark.parametrize(
    "version", ["3.51.3", "3.51.4", "3.52.0", "3.54.1", "4.0.0", "3.50.7", "3.50.9", "3.44.6"]
)
def test_a_library_without_the_bug_passes(version: str) -> None:
    location_checks.check_library(version)


@pytest.mark.parametrize(
    "version",
    ["3.51.2", "3.51.0", "3.50.6", "3.50.0", "3.49.9", "3.45.7", "3.44.5", "3.43.9", "3.7.0"],
)
def test_a_library_with_the_bug_is_refused_by_its_number(version: str) -> None:
    with pytest.raises(StoreUnusable, match=version.replace(".", r"\.")):
        location_checks.check_library(version)


def test_the_library_that_we_ship_passes() -> None:
    location_checks.check_library(apsw.sqlite_lib_version())


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("folder", "name a file in it"),
        ("pipe", "not a plain file"),
        ("none/x", "create it first"),
        ("file/x", "create it first"),
        ("locked/x", "not writable"),
        ("locked/file", "not writable"),
        ("secret", "permissions"),
    ],
)
def test_a_place_that_cannot_hold_a_database_is_refused(
    place: Path, name: str, because: str
) -> None:
    with pytest.raises(StoreUnusable, match=because):
        location_checks.check_place(place / name)


@pytest.mark.parametrize("name", ["absent", "file", "folder/absent"])
def test_a_plain_or_future_file_passes(place: Path, name: str) -> None:
    location_checks.check_place(place / name)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with something of every kind; what is `locked` or `secret` is so for root as well."""
    for name in ("folder", "locked"):
        (tmp_path / name).mkdir()
    for name in ("file", "secret", "locked/file"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: path.name not in ("locked", "secret"))
    return tmp_path


MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /data rw,relatime - nfs4 nas:/data rw,vers=4.2
31 30 8:1 / /data/local rw,noatime master:2 propagate_from:3 - xfs /dev/sda1 rw
32 22 0:40 / /people/me/remote\040files rw - fuse.sshfs me@host: rw
33 22 0:41 / /disk/c rw - 9p C:\134 rw
34 22 0:42 / /disk/share rw - cifs //nas/share rw
35 22 0:43 / /covered rw - nfs nas:/covered rw
36 35 8:2 / /covered rw - btrfs /dev/sdb1 rw
37 22 0:44 / /box rw - fuse.fuse-overlayfs fuse-overlayfs rw
this line is not one of them
""".splitlines()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/x.db", "nfs4"),
        ("/data/deep/er/x.db", "nfs4"),
        ("/people/me/remote files/x.db", "fuse.sshfs"),
        ("/disk/c/Users/x.db", "9p"),
        ("/disk/share/x.db", "cifs"),
    ],
)
def test_a_network_file_system_is_refused_by_name(path: str, kind: str) -> None:
    with pytest.raises(StoreUnusable, match=kind):
        location_checks.check_file_system(Path(path), location_checks.parse_mounts(MOUNTINFO))


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/x.db",
        "/data/local/x.db",  # the longest mount point wins
        "/datax/x.db",  # a prefix of names, not of letters
        "/covered/x.db",  # the last mount on a point covers the others
        "/box/x.db",
    ],
)
def test_a_local_file_system_passes(path: str) -> None:
    location_checks.check_file_system(Path(path), location_checks.parse_mounts(MOUNTINFO))


@pytest.mark.parametrize(
    "kind", ["nfs", "smb3", "ceph", "fuse.glusterfs", "glusterfs", "lustre", "afs", "fuse.s3fs"]
)
def test_more_network_file_systems_are_known(kind: str) -> None:
    with pytest.raises(StoreUnusable):
        location_checks.check_file_system(Path("/x"), [Mount("/", kind)])


def test_a_system_that_tells_nothing_is_allowed() -> None:
    location_checks.check_file_system(Path("/x"), [])


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreUnusable, match="is no SQLite database"):
        SqliteEngine.open(path)
    assert path.read_text() == "Dear diary, " * 100


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="is a directory"):
        SqliteEngine.open(tmp_path)


@pytest.mark.parametrize("name", ["", ":memory:"])
def test_a_database_without_a_file_is_refused(name: str) -> None:
    with pytest.raises(StoreUnusable, match="needs a file"):
        SqliteEngine.open(name)


async def test_a_new_database_is_its_owners_alone(path: Path) -> None:
    async with opened(path):
        files = [path, *path.parent.glob("store.db-*")]
        assert {file.name for file in files} >= {
            "store.db",
            "store.db-wal",
            "store.db-shm",
            "store.db-writer",
            "store.db-live",
        }
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
