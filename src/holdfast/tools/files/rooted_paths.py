"""Opens files below some root directories and no others, even if a path lies or the disk changes meanwhile.

1. A path is walked one component at a time, each opened relative to the one before and never through a symbolic
   link: `..` goes back along the directories already opened, a link is read and walked like the rest of the path. The
   kernel never gets more than one name, so swapping a directory for a link between two steps leads nowhere.
2. A path that leads above a root is refused, even if it would come back.
3. A file is replaced by renaming: a concurrent reader sees the old file or the new one.
4. Files that the server reads, reloads or runs (`files/reserved_files.py`) are not reached, under any name.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path, PurePosixPath

from holdfast import limits
from holdfast.tools.files.reserved_files import ReservedFiles, ReservedState, is_imported

NOTHING = ReservedFiles()
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A directory on the way to a root need not be readable."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe without a writer must not wait for ever.
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class PathRefused(Exception):
    """A path is refused, or a file must not be touched; the message is for the model."""


class RootedPath:
    """A path's destination: a name in an open directory. `.` is the directory itself."""

    def __init__(self, directory: int, name: str, shown: str, held: ReservedState) -> None:
        self.held = held
        self.directory = directory
        self.name = name
        self.shown = shown
        """The path as messages show it: relative to its root."""

    def demand_free(self, *, writing: bool) -> None:
        """Raises PathRefused if the file is reserved, or would be."""
        there, held = self.status(), self.held
        if there is not None and held.has_file(there):
            raise reserved(self.shown)
        if self.name == ".":
            return
        directory = os.fstat(self.directory)
        if held.has_name(directory, self.name):
            raise reserved(self.shown)
        if writing and is_imported(directory, self.name):
            raise PathRefused(
                f"the server, which imports modules from there, would run {self.shown} in place of its own; "
                "choose another name"
            )

    def status(self) -> os.stat_result | None:
        """The file's status, or None if it does not exist. Never follows a link."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


class RootedDirectories:
    """Some root directories, and everything below them. Relative paths start in the first root."""

    def __init__(self, *roots: Path, reserved: ReservedFiles = NOTHING) -> None:
        """Links on the way to a root are followed now, and not again: a command could change them later."""
        assert roots, "there has to be at least one directory"
        self._roots = {Path(os.path.abspath(each)): Path(os.path.realpath(each)) for each in roots}
        self._reserved = reserved

    def keeping_off(self, reserved: ReservedFiles) -> RootedDirectories:
        """The same directories, with these files reserved, too."""
        kept = copy(self)
        kept._reserved = reserved
        return kept

    @property
    def roots(self) -> tuple[Path, ...]:
        return tuple(self._roots)

    @contextmanager
    def spot(
        self, path: str, *, writing: bool = False, make_parents: bool = False
    ) -> Iterator[RootedPath]:
        """A path's destination, open within the `with` block. Raises PathRefused or OSError."""
        walk = _Walk(self._roots, path, reserved=self._reserved, make_parents=make_parents)
        try:
            spot = walk.to_end()
            spot.demand_free(writing=writing)
            yield spot
        finally:
            walk.close()

    @contextmanager
    def directory(self, path: str) -> Iterator[tuple[int, str, ReservedState]]:
        """An open directory, its displayed path, and the reserved files. Raises PathRefused or OSError."""
        with self.spot(path) as spot:
            opened = os.open(spot.name, _DIRECTORY, dir_fd=spot.directory)
            try:
                yield opened, spot.shown, spot.held
            finally:
                os.close(opened)

    def read(self, path: str) -> bytes:
        """The bytes of a regular file. Raises PathRefused or OSError."""
        with self.spot(path) as spot:
            return read_in(spot.directory, spot.name, spot.held)

    def write(self, path: str, data: bytes, *, make_parents: bool = True) -> bool:
        """Write a file, replacing any that is there. True if the file is new. Raises PathRefused or OSError."""
        with self.spot(path, writing=True, make_parents=make_parents) as spot:
            there = spot.status()
            if there is not None and not stat.S_ISREG(there.st_mode):
                raise PathRefused(f"{spot.shown} is not a regular file")
            _replace(spot, data, mode=stat.S_IMODE(there.st_mode) if there else 0o644)
            return there is None

    def make_directory(self, path: str) -> bool:
        """Make a directory unless it exists. True if it is new. Raises PathRefused or OSError."""
        with self.spot(path, writing=True, make_parents=True) as spot:
            there = spot.status()
            if there is None:
                os.mkdir(spot.name, dir_fd=spot.directory)
            elif not stat.S_ISDIR(there.st_mode):
                raise PathRefused(f"{spot.shown} is there, and is not a directory")
            return there is None


class _Walk:
    """The walk along one path."""

    def __init__(
        self, roots: Mapping[Path, Path], path: str, *, reserved: ReservedFiles, make_parents: bool
    ) -> None:
        if not path or "\0" in path or len(path) > limits.file_path_chars_max:
            raise PathRefused("that is not a path")
        self._reserved = reserved
        self._held = reserved.now()
        self._roots = roots
        self._make_parents = make_parents
        self._links = 0
        self._trail: list[tuple[int, str]] = []
        """The open directories along the path, outermost first, each with its name."""
        self._left: deque[str] = deque()
        self._start(path)

    def _start(self, path: str) -> None:
        """Begin at a root; begin again if a link leads to an absolute path."""
        root, parts = self._placed(path)
        self.close()
        opened = _open_plain(self._roots[root])
        self._trail = [(opened, "")]
        if self._held.has_file(os.fstat(opened)) or self._held.has_any_above(root):
            self.close()
            raise reserved(str(root))
        self._left.extendleft(reversed(parts))

    def _placed(self, path: str) -> tuple[Path, tuple[str, ...]]:
        if not path.startswith("/"):
            return next(iter(self._roots)), PurePosixPath(path).parts
        parts = PurePosixPath(path).parts
        for root, real in self._roots.items():
            for base in (root.parts, real.parts):
                if parts[: len(base)] == base:
                    return root, parts[len(base) :]
        raise PathRefused(f"{path[:200]!r} is outside of {', '.join(map(str, self._roots))}")

    def to_end(self) -> RootedPath:
        while self._left:
            name = self._left.popleft()
            if name == "..":
                self._step_back()
            elif (target := self._link(name)) is not None:
                self._follow(target)
            elif not self._left:
                return RootedPath(self._trail[-1][0], name, self._shown(name), self._held)
            else:
                self._step_into(name)
        return RootedPath(self._trail[-1][0], ".", self._shown(""), self._held)

    def _step_back(self) -> None:
        if len(self._trail) == 1:
            raise PathRefused(f"the path leads out of {next(iter(self._roots))}")
        os.close(self._trail.pop()[0])

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._trail[-1][0])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # not a link, or no such file
                return None
            raise

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > limits.file_links_max:
            raise PathRefused("the path has too many symbolic links")
        if target.startswith("/"):
            self._start(target)
        else:
            self._left.extendleft(reversed(PurePosixPath(target).parts))

    def _step_into(self, name: str) -> None:
        top = self._trail[-1][0]
        try:
            opened = os.open(name, _DIRECTORY, dir_fd=top)
        except FileNotFoundError:
            if not self._make_parents:
                raise
            if self._held.has_name(os.fstat(top), name):
                raise reserved(self._shown(name)) from None
            os.mkdir(name, dir_fd=top)
            self._held = self._reserved.now()  # the directory is new: names in it may be reserved
            opened = os.open(name, _DIRECTORY, dir_fd=top)
        self._trail.append((opened, name))
        if self._held.has_file(os.fstat(opened)):
            raise reserved(self._shown(""))

    def _shown(self, name: str) -> str:
        return "/".join((*(each for _, each in self._trail[1:]), *([name] if name else []))) or "."

    def close(self) -> None:
        while self._trail:
            os.close(self._trail.pop()[0])


def reserved(shown: str) -> PathRefused:
    return PathRefused(
        f"{shown} is the server's own: it reads or runs that, so no tool can reach it"
    )


def _open_plain(path: Path) -> int:
    """Open a directory name by name, through no link. Raises PathRefused or OSError."""
    opened = os.open("/", _PASSING)
    try:
        for name in path.parts[1:]:
            inner = os.open(name, _PASSING, dir_fd=opened)
            os.close(opened)
            opened = inner
        return os.open(".", _DIRECTORY, dir_fd=opened)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathRefused(f"{path} is not the directory any more that it was") from error
        raise
    finally:
        os.close(opened)


def read_in(directory: int, name: str, held: ReservedState) -> bytes:
    """The bytes of a regular file in an open directory. Raises PathRefused or OSError."""
    opened = os.open(name, _READING, dir_fd=directory)
    try:
        there = os.fstat(opened)
        if held.has_file(there):
            raise reserved(name)
        if not stat.S_ISREG(there.st_mode):
            raise PathRefused(f"{name!r} is not a regular file")
        if there.st_size > limits.file_bytes_max:
            raise PathRefused(
                f"{name!r} has {there.st_size} bytes, and at most {limits.file_bytes_max} are read"
            )
        with open(opened, "rb", closefd=False) as file:
            return file.read(limits.file_bytes_max)  # some files report no size
    finally:
        os.close(opened)


def open_directory(directory: int, name: str) -> int:
    """Open a directory inside an open directory, not through a link. Raises OSError."""
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _replace(spot: RootedPath, data: bytes, *, mode: int) -> None:
    if spot.name == ".":
        raise PathRefused("that is a directory")
    fresh = f".holdfast-{secrets.token_hex(8)}"
    opened = os.open(fresh, _NEW_FILE, mode, dir_fd=spot.directory)
    try:
        with open(opened, "wb") as file:
            os.fchmod(opened, mode)
            file.write(data)
            file.flush()
            os.fsync(opened)
        os.rename(fresh, spot.name, src_dir_fd=spot.directory, dst_dir_fd=spot.directory)
    except BaseException:
        os.unlink(fresh, dir_fd=spot.directory)
        raise
