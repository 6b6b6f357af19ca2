"""Files that the server reads, reloads or runs: no toolset reaches them, whatever its roots.

1. They are told apart by what they are (device and number) and by where they would be (a name in a directory), so
   neither a link, another name nor a file that is not there yet leads to one.
2. Every link on the way to such a file is reserved, too: who can move a link moves the file.
3. What belongs to the process is always reserved: the package and its environment, modules that would be imported in
   place of installed ones, its log files, and the file systems through which the kernel shows its memory.

A `Reserved` says it in paths. `now` looks at the disk, which changes: it is asked for every call of a tool.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value

Identity: TypeAlias = tuple[int, int]
"""A file's device and number."""

_SCRIPTS = (
    ".sh",
    ".bash",
    ".py",
    ".pl",
    ".rb",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".lua",
    ".php",
    ".jar",
)
_KERNEL = ("/proc", "/sys")


class Reserved(Value):
    """Files, names in directories, and whole directories."""

    files: frozenset[str] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()
    """A directory and a pattern: every file of such a name in it, also one that is not there yet."""
    trees: frozenset[str] = frozenset()

    def __or__(self, other: Reserved) -> Reserved:
        return Reserved(
            files=self.files | other.files,
            names=self.names | other.names,
            trees=self.trees | other.trees,
        )

    def now(self) -> Held:
        """What is reserved as the disk is now."""
        return Held(self | of_process())


class Held:
    """What is reserved, as the disk is at one moment."""

    def __init__(self, reserved: Reserved) -> None:
        self._files: set[Identity] = set()
        self._names: dict[Identity, list[str]] = {}
        self._trees = {found for each in reserved.trees if (found := identity_at(each))}
        for path in reserved.files:
            for directory, name in _steps(path):
                self._add_name(directory, name)
            self._add_file(path)
        for directory, pattern in reserved.names:
            self._add_name(directory, pattern)
            for path in _named(directory, pattern):
                self._add_file(path)

    def _add_file(self, path: str) -> None:
        found = identity_at(path)
        if found is not None:
            self._files.add(found)

    def _add_name(self, directory: str, pattern: str) -> None:
        found = identity_at(directory)
        if found is not None:
            self._names.setdefault(found, []).append(_folded(pattern))

    def has_file(self, there: os.stat_result) -> bool:
        """Whether this file is reserved, or this directory with all that is below it."""
        return identity(there) in (self._trees if stat.S_ISDIR(there.st_mode) else self._files)

    def has_name(self, directory: os.stat_result, name: str) -> bool:
        """Whether a file of this name in this directory would be one."""
        folded = _folded(name)
        return any(fnmatchcase(folded, each) for each in self._names.get(identity(directory), ()))

    def has_any_above(self, path: Path) -> bool:
        """Whether a directory lies below one that is reserved."""
        above = (identity_at(str(each)) for each in Path(os.path.realpath(path)).parents)
        return any(each in self._trees for each in above)


def is_imported(directory: os.stat_result, name: str) -> bool:
    """Whether a file of this name in this directory would be imported in place of an installed module."""
    module, _, suffix = _folded(name).partition(".")
    if not suffix.endswith(("py", "pyc", "so")):
        return False
    where = identity(directory)
    for place in _import_places():
        if identity_at(place) == where and module in _installed():
            return True
        packages = _installed() & frozenset(os.listdir(place)) if module == "__init__" else ()
        if any(identity_at(os.path.join(place, each)) == where for each in packages):
            return True
    return False


def identity(there: os.stat_result) -> Identity:
    return there.st_dev, there.st_ino


def identity_at(path: str) -> Identity | None:
    """What is at a path, links followed; None if nothing is."""
    try:
        return identity(os.stat(path))
    except (OSError, ValueError):
        return None


def _folded(name: str) -> str:
    """A name as a file system that ignores case and composition has it: one that does not is none the worse."""
    return unicodedata.normalize("NFC", name).casefold()


def _steps(path: str) -> Iterator[tuple[str, str]]:
    """The names that lead to a file: its own, and those of the links on the way. What is not there is no link."""
    here, left, links = "/", deque(PurePosixPath(path).parts[1:]), 0
    while left:
        name = left.popleft()
        if name == "..":
            here = os.path.dirname(here)
            continue
        try:
            target = os.readlink(os.path.join(here, name))
        except OSError:
            if not left:
                yield here, name
            here = os.path.join(here, name)
            continue
        yield here, name
        links += 1
        if links > limits.file_links_max:
            return
        parts = PurePosixPath(target).parts
        if target.startswith("/"):
            here, parts = "/", parts[1:]
        left.extendleft(reversed(parts))


def _named(directory: str, pattern: str) -> list[str]:
    if not set("*?[") & set(pattern):
        return [os.path.join(directory, pattern)]
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    wanted = _folded(pattern)
    return [os.path.join(directory, each) for each in names if fnmatchcase(_folded(each), wanted)]


# ── what belongs to the process ──────────────────────────────────────────────────────────────


@cache
def of_process() -> Reserved:
    """What every process reserves. Its standard streams are looked at once: they stay what they are."""
    package, settings = Path(__file__).parents[1], os.path.join(sys.prefix, "pyvenv.cfg")
    files = {*_streams(), *([settings] if os.path.exists(settings) else ())}
    trees = {str(package), *_KERNEL, *_installation()}
    return Reserved(files=frozenset(files), trees=frozenset(trees))


def _installation() -> set[str]:
    """Python's own directories. Not its whole prefix: some people have an environment around their project."""
    programs = os.path.dirname(sys.executable) if sys.prefix != sys.base_prefix else ""
    return {os.path.dirname(os.__file__), *_packages(), *([programs] if programs else ())}


def _packages() -> set[str]:
    """The directories on the way to modules that hold what was installed."""
    kinds = ("site-packages", "dist-packages")
    return {each for each in sys.path if os.path.basename(each) in kinds and os.path.isdir(each)}


def _streams() -> Iterator[str]:
    """The files that a shell has given us for our output, where the system can tell their names."""
    for descriptor in (1, 2):
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue


def _import_places() -> list[str]:
    """The directories, besides those of the installation, that modules are imported from: mostly none, or our own."""
    ours = _installation()
    places = {os.path.abspath(each) for each in sys.path}
    return [
        each
        for each in sorted(places)
        if os.path.isdir(each) and not any(_is_below(each, top) for top in ours)
    ]


def _is_below(path: str, top: str) -> bool:
    return os.path.commonpath([path, os.path.abspath(top)]) == os.path.abspath(top)


@cache
def _installed() -> frozenset[str]:
    """The names of modules that a file elsewhere could be imported in place of."""
    names = (each for place in _packages() for each in os.listdir(place))
    return frozenset(sys.stdlib_module_names) | {each.partition(".")[0] for each in names}


# ── what a command runs ──────────────────────────────────────────────────────────────────────


def files_run_by(commands: Iterable[str], directory: Path, *, all_named: bool) -> frozenset[str]:
    """The files that these commands run, as far as their words tell; if `all_named`, every file that they name.

    A word may be meant from the directory or from one that the command names (`cd hooks && ./guard.sh`), and a module
    by its name (`python -m hooks.guard`). What a command finds by itself, such as a Makefile, its words do not tell.
    """
    found: set[str] = set()
    for command in commands:
        words = _words(command)
        for place in (directory, *_directories(words, directory)):
            for n, word in enumerate(words):
                path = _file_named(word, place, first=n == 0, all_named=all_named)
                if n and words[n - 1] == "-m":
                    path = place / f"{word.replace('.', '/')}.py"
                if path is not None:
                    found.add(str(path))
    return frozenset(found)


def _words(command: str) -> list[str]:
    """The words of a command, of a command that is quoted in it (`sh -c '…'`), and the values of variables."""
    words = [each for word in _split(command) for each in (_split(word) if " " in word else [word])]
    values = [word.rpartition("=")[2] for word in words if "=" in word]
    return [each for each in (*words, *values) if each and "\0" not in each]


def _split(command: str) -> list[str]:
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)
    except ValueError:
        return command.split()


def _directories(words: Iterable[str], directory: Path) -> list[Path]:
    places = (directory / word for word in words if len(word) <= limits.file_path_chars_max)
    return [each for each in places if _status(each, stat.S_ISDIR)]


def _file_named(word: str, directory: Path, *, first: bool, all_named: bool) -> Path | None:
    if word.startswith("-") or len(word) > limits.file_path_chars_max:
        return None
    path = Path(os.path.abspath(directory / os.path.expanduser(word)))
    runs = word.endswith(_SCRIPTS) or word.startswith("./") or (first and "/" in word)
    there = _status(path, stat.S_ISREG)
    if there is not None:
        return path if runs or all_named or there.st_mode & 0o111 else None
    if runs and _status(path, stat.S_ISDIR) is None:
        return path
    found = shutil.which(word) if first and "/" not in word else None
    return Path(found) if found else None


def _status(path: Path, is_kind: Callable[[int], bool]) -> os.stat_result | None:
    """What is at a path, if it is of this kind."""
    try:
        there = path.stat()
    except (OSError, ValueError):
        return None
    return there if is_kind(there.st_mode) else None
