"""Reserved files: the server reads, reloads or runs them, and no tool may change them, whichever roots it has.

1. A reserved file is recognised by its identity (device and inode) and by its location (a name in a directory), so
   no link, second name or file that does not exist yet leads to one.
2. Every link on the way to a reserved file is reserved, too: moving the link would move the file.
3. Files of the process are always reserved: the package and its environment, modules that would be imported in
   place of installed ones, its log files, and the file systems through which the kernel shows its memory.
4. A file toolset reaches no reserved file. A command (`sandbox/`) may read the `readable` ones, because nothing runs
   without programs, packages and scripts; the others are hidden from it.

`ReservedFiles` holds paths. `now` and `for_commands` compare them with the disk, which changes: each tool call uses
one of them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value

Identity: TypeAlias = tuple[int, int]
"""A file's device and inode number."""

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
_MODULES = ("py", "pyc", "so")


class NamePattern(Value):
    """Every file in a directory whose name has this beginning and end, also one that does not exist yet."""

    directory: str
    begin: str = ""
    end: str = ""

    @property
    def folded(self) -> tuple[str, str]:
        return _folded(self.begin), _folded(self.end)


class ReservedFiles(Value):
    """Reserved files and directories, existing or not. A path both in `readable` and in another set is hidden."""

    files: frozenset[str] = frozenset()
    names: frozenset[NamePattern] = frozenset()
    trees: frozenset[str] = frozenset()
    readable: frozenset[str] = frozenset()
    """Files and whole directories that a command may read."""
    searched: frozenset[str] = frozenset()
    """Directories in which the system searches for programs. A command may read what lies directly in them, and can
    add nothing; deeper files are not searched."""

    def __or__(self, other: ReservedFiles) -> ReservedFiles:
        return ReservedFiles(
            files=self.files | other.files,
            names=self.names | other.names,
            trees=self.trees | other.trees,
            readable=self.readable | other.readable,
            searched=self.searched | other.searched,
        )

    def now(self) -> ReservedState:
        """The reserved files as the disk is now."""
        return ReservedState(self | of_process())

    def for_commands(self, *, own: Iterable[str] = ()) -> WithheldFiles:
        """What a command must not reach as the disk is now. It may change the readable files among its `own`."""
        every = self | of_process()
        secret, shown = every.files | every.trees, every.readable.difference(own)
        steps = [step for path in secret | shown for step in _steps(path)]
        steps += [step for each in every.names for step in _links(each.directory)]
        steps += [step for each in every.searched for step in _links(each)]
        named = {(os.path.realpath(each.directory), *each.folded) for each in every.names}
        return WithheldFiles(
            hidden=frozenset(map(os.path.realpath, secret)),
            named=frozenset(named),
            kept=frozenset(os.path.join(*each) for each in steps) | _imported_now(),
            searched=frozenset(map(os.path.realpath, every.searched)),
        )


class WithheldFiles(Value):
    """Files and directories that a command must not reach, existing or not; no path leads through a link."""

    hidden: frozenset[str]
    named: frozenset[tuple[str, str, str]]
    """Hidden files by pattern: the directory, and how a file's name begins and ends."""
    kept: frozenset[str]
    """The command can read these, not change them; a path that is also hidden stays hidden."""
    searched: frozenset[str]
    """The command can read what lies directly in these directories, not change it."""


class ReservedState:
    """The reserved files, as the disk was at one moment."""

    def __init__(self, reserved: ReservedFiles) -> None:
        paths = reserved.files | reserved.trees | reserved.readable
        steps = [step for path in paths for step in _steps(path)]
        steps += [step for each in reserved.names for step in _links(each.directory)]
        for each in reserved.searched:
            steps += _links(each) if os.path.isdir(each) else _steps(each)
        self._searched = {identity_at(each) for each in reserved.searched}
        self._names = {(identity_at(directory), _folded(name)) for directory, name in steps}
        self._named = [(identity_at(each.directory), *each.folded) for each in reserved.names]
        named = (path for each in reserved.names for path in _named(each))
        self._there = {identity_at(path) for path in (*paths, *named)}

    def has_file(self, there: os.stat_result) -> bool:
        """Whether this file is reserved, or this directory with everything below it."""
        return identity(there) in self._there

    def has_name(self, directory: os.stat_result, name: str) -> bool:
        """Whether a file of this name in this directory would be reserved."""
        where, folded = identity(directory), _folded(name)
        return (
            where in self._searched
            or (where, folded) in self._names
            or any(
                where == found and _is_named(folded, begin, end)
                for found, begin, end in self._named
            )
        )

    def has_any_above(self, path: Path) -> bool:
        """Whether a path lies below a reserved directory."""
        above = (identity_at(str(each)) for each in Path(os.path.realpath(path)).parents)
        return any(each in self._there for each in above if each is not None)


def is_imported(directory: os.stat_result, name: str) -> bool:
    """Whether a file of this name in this directory would be imported in place of an installed module."""
    module, _, suffix = _folded(name).partition(".")
    if not suffix.endswith(_MODULES):
        return False
    where = identity(directory)
    for place in _import_places():
        if identity_at(place) == where and module in _installed():
            return True
        packages = _installed() & frozenset(_entries(place)) if module == "__init__" else ()
        if any(identity_at(os.path.join(place, each)) == where for each in packages):
            return True
    return False


def identity(there: os.stat_result) -> Identity:
    return there.st_dev, there.st_ino


def identity_at(path: str) -> Identity | None:
    """The identity of the file at a path, links followed; None if no file is there."""
    try:
        return identity(os.stat(path))
    except (OSError, ValueError):
        return None


def _folded(name: str) -> str:
    """A name as a case-insensitive, normalising file system compares it; on other systems this does no harm."""
    return unicodedata.normalize("NFC", name).casefold()


def _steps(path: str) -> Iterator[tuple[str, str]]:
    """The (directory, name) pairs that lead to a file: its own, and those of the links on the way."""
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


def _links(path: str) -> Iterator[tuple[str, str]]:
    """The (directory, name) pairs of the links that lead to a directory."""
    return (each for each in _steps(path) if os.path.islink(os.path.join(*each)))


def _named(names: NamePattern) -> list[str]:
    return [
        os.path.join(names.directory, each)
        for each in _entries(names.directory)
        if _is_named(_folded(each), *names.folded)
    ]


def _is_named(folded: str, begin: str, end: str) -> bool:
    fits = len(folded) >= len(begin) + len(end)
    return fits and folded.startswith(begin) and folded.endswith(end)


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


# ── files of the process ─────────────────────────────────────────────────────────────────────


@cache
def of_process() -> ReservedFiles:
    """The files that every process reserves. The standard streams are looked up once: they do not change."""
    libraries = os.path.join(sys.base_prefix, "lib")
    python = [os.path.join(sys.prefix, "pyvenv.cfg"), sys.executable]
    python += _named(NamePattern(directory=libraries, begin="libpython"))
    there = (os.path.abspath(each) for each in python if os.path.exists(each))
    return ReservedFiles(
        files=frozenset(_streams()),
        trees=frozenset({"/proc"}),
        readable=frozenset({str(Path(__file__).parents[2]), "/sys", *there, *_installation()}),
        searched=search_path(os.environ),
    )


def search_path(environment: Mapping[str, str]) -> frozenset[str]:
    """The directories of PATH, existing or not: a program that a tool puts there would run in place of the one that
    a hook means."""
    entries = environment.get("PATH", "").split(os.pathsep)
    return frozenset(os.path.normpath(each) for each in entries if os.path.isabs(each))


def _installation() -> set[str]:
    """Python's own directories, but not the whole prefix: some users have the environment around their project."""
    programs = os.path.dirname(sys.executable) if sys.prefix != sys.base_prefix else ""
    return {os.path.dirname(os.__file__), *_packages(), *([programs] if programs else ())}


def _packages() -> set[str]:
    """The directories of the import path that hold installed packages."""
    kinds = ("site-packages", "dist-packages")
    return {each for each in sys.path if os.path.basename(each) in kinds and os.path.isdir(each)}


def _streams() -> Iterator[str]:
    """The files that stdout and stderr are redirected to, where the system can tell their names."""
    for descriptor in (1, 2):
        try:
            there, path = os.fstat(descriptor), os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if stat.S_ISREG(there.st_mode) and identity_at(path) == identity(there):
            yield path


def _import_places() -> list[str]:
    """The directories of the import path outside the installation: usually none, or the working directory."""
    ours = _installation()
    places = {os.path.abspath(each) for each in sys.path}
    return [
        each
        for each in sorted(places)
        if os.path.isdir(each) and not any(_is_below(each, top) for top in ours)
    ]


def _imported_now() -> frozenset[str]:
    """Files there that are, or would be, imported in place of installed modules; and compiled modules."""
    found = set()
    for place in _import_places():
        found.add(os.path.join(os.path.realpath(place), "__pycache__"))
        for name in _entries(place):
            module, _, suffix = _folded(name).partition(".")
            if module not in _installed():
                continue
            path = os.path.realpath(os.path.join(place, name))
            is_package = any(each.startswith("__init__.") for each in _entries(path))
            if is_package or suffix.endswith(_MODULES):
                found.add(path)
            elif os.path.isdir(path):
                found.add(os.path.join(path, "__init__.py"))
    return frozenset(found)


def _is_below(path: str, top: str) -> bool:
    return os.path.commonpath([path, os.path.abspath(top)]) == os.path.abspath(top)


@cache
def _installed() -> frozenset[str]:
    """The names of installed modules, which a file elsewhere could replace on import."""
    names = (each for place in _packages() for each in os.listdir(place))
    return frozenset(sys.stdlib_module_names) | {each.partition(".")[0] for each in names}


# ── files that a command runs ────────────────────────────────────────────────────────────────


def files_run_by(commands: Iterable[str], directory: Path, *, all_named: bool) -> frozenset[str]:
    """The files that these commands run, as far as their words tell; with `all_named`, every file that they name.

    A word may be relative to the directory or to one that the command names (`cd hooks && ./guard.sh`), or a module's
    name (`python -m hooks.guard`). Files that a command finds by itself, such as a Makefile, are not found here.
    """
    found: set[str] = set()
    for command in commands:
        words = _words(command)
        if " " in command and _status(directory / command, stat.S_ISREG):  # one path with spaces
            words.append(command)
        for place in (directory, *_directories(words, directory)):
            for n, word in enumerate(words):
                path = _file_named(word, place, first=n == 0, all_named=all_named)
                if n and words[n - 1] == "-m":
                    path = place / f"{word.replace('.', '/')}.py"
                if path is not None:
                    found.add(str(path))
    return frozenset(found)


def data_named_by(commands: Sequence[str], directory: Path) -> frozenset[str]:
    """The files that these commands name but do not run, as far as their words tell."""
    named = files_run_by(commands, directory, all_named=True)
    return named - files_run_by(commands, directory, all_named=False)


def _words(command: str) -> list[str]:
    """The words of a command, those of a command quoted in it (`sh -c '…'`), and the values of variables."""
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
    """The status of the file at a path, if it is of this kind."""
    try:
        there = path.stat()
    except (OSError, ValueError):
        return None
    return there if is_kind(there.st_mode) else None
