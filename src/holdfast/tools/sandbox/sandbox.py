"""Decides which commands are confined, and what each of them may use.

1. The operator decides: `required` refuses a command that cannot be confined, `auto` runs it unconfined after one
   warning, `off` confines none. No request, session or model changes that.
2. A command reads programs and libraries, reads and writes its roots, and has a home and a /tmp of its own.
   Network and more roots are declared in an agent file of the operator.
3. Files that the server reads, reloads or runs (`tools/files/reserved_files.py`) are out of reach for any
   roots: they are hidden, or cannot be changed.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.sandbox.backend import WAY_OUT, Backend, find_backend, launcher
from holdfast.tools.threads import in_thread

log = logging.getLogger("holdfast.sandbox")

Mode: TypeAlias = Literal["required", "auto", "off"]

MODES: tuple[Mode, ...] = ("required", "auto", "off")


class NotConfined(OSError):
    """A command must not run unconfined here, and there is no sandbox."""


class Sandbox:
    """The sandbox of one server."""

    def __init__(self, mode: Mode = "auto", *, find: Callable[[], Backend] = find_backend) -> None:
        self.mode: Mode = mode
        self._find = find
        self._backend: Backend | None = None
        self._tenants: set[str] = set()
        self._warned = False
        self.reserved: Callable[[], ReservedFiles] = ReservedFiles
        """The files that the server reads, reloads or runs now, besides those of every process."""

    def require(self) -> None:
        """From now on no command runs unconfined, unless the operator has set `off`."""
        if self.mode == "auto":
            self.mode = "required"

    def backend(self) -> Backend:
        """How this machine confines commands. The first call is slow."""
        if self._backend is None:
            self._backend = self._find()
        return self._backend

    def refusal(self) -> str:
        """Why no command may run here; empty if commands may run."""
        if self.mode != "required" or self.backend().kind != "none":
            return ""
        return f"commands have to be confined here, and there is {self.backend().words}; {WAY_OUT}"

    def cell(
        self,
        *roots: str | Path,
        read_roots: Iterable[str | Path] = (),
        own: frozenset[str] = frozenset(),
        network: bool = False,
        home: str = "",
    ) -> ConfinedCommand:
        """What one kind of command may use: where it may write, and what else it may read or reach. `own` are files
        that its words name but do not run: reserved because of this command, which may change them itself.

        No path may be a link or lie behind one: links were resolved when the agent file was read. When a command
        starts, another command may have changed what a link leads to, so links are refused."""
        return ConfinedCommand(
            self, tuple(map(str, roots)), tuple(map(str, read_roots)), own, network, home
        )

    async def chosen(self, tenant: str) -> Backend:
        """The backend to run a tenant's command with now. Raises NotConfined."""
        if self.mode == "off":
            return Backend(kind="none", why="it is switched off")
        self._tenants.add(tenant)
        if len(self._tenants - {""}) > 1:
            self.require()
        if self._backend is None:
            await in_thread(self.backend, name="holdfast sandbox")
        found = self.backend()
        if refused := self.refusal():
            raise NotConfined(refused)
        if found.kind == "none" and not self._warned:
            self._warned = True
            log.warning("commands run unconfined, since there is %s; %s", found.words, WAY_OUT)
        return found

    def __repr__(self) -> str:
        return f"<Sandbox {self.mode} {self._backend.kind if self._backend else 'not looked for'}>"


class ConfinedCommand:
    """What one kind of command may use."""

    def __init__(
        self,
        sandbox: Sandbox,
        roots: tuple[str, ...],
        read_roots: tuple[str, ...],
        own: frozenset[str],
        network: bool,
        home: str,
    ) -> None:
        self._sandbox = sandbox
        self._roots = roots
        self._read_roots = read_roots
        self._own = own
        self._network = network
        # Reserved, with the links on the way to it.
        self._home = os.path.realpath(home) if home else ""

    async def launched(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        tenant: str = "",
        grace_s: float = 2 * limits.script_kill_grace_s,
    ) -> list[str] | None:
        """The command line that starts this command confined; None if it runs unconfined. Raises NotConfined."""
        backend = await self._sandbox.chosen(tenant)
        if backend.kind == "none":
            return None
        withheld = self._sandbox.reserved().for_commands(own=self._own)
        several = {
            "--write": self._roots,
            "--read": self._read_roots,
            "--programs": program_folders(environment),
            "--hide": sorted(withheld.hidden),
            "--hide-named": sorted(map("/".join, withheld.named)),
            "--keep": sorted(withheld.kept),
            "--searched": sorted(withheld.searched),
        }
        options = [
            word for name, paths in several.items() for path in paths for word in (name, path)
        ]
        bounds = {
            "--grace-s": grace_s,
            "--memory": limits.sandbox_memory_bytes_max,
            "--processes": limits.sandbox_processes_max,
            "--files": limits.sandbox_files_max,
            "--file-bytes": limits.sandbox_file_bytes_max,
            "--memory-left": limits.sandbox_memory_left_bytes,
            "--disk-left": limits.sandbox_disk_left_bytes,
        }
        options += [word for name, most in bounds.items() for word in (name, str(most))]
        options += ["--network"] if self._network else []
        options += ["--bwrap", backend.program] if backend.program else ["--abi", str(backend.abi)]
        if self._home:
            os.makedirs(self._home, mode=0o700, exist_ok=True)
            options += ["--home", self._home]
        return [*launcher(*options), "--", *argv]


_PROGRAMS = ("bin", "sbin", "shims")
_BESIDE = ("bin", "include", "lib", "lib64", "libexec", "versions")


def program_folders(environment: Mapping[str, str]) -> list[str]:
    """The folders of programs in a PATH, and the folders beside them that those programs need."""
    entries = [
        each for each in environment.get("PATH", "").split(os.pathsep) if each.startswith("/")
    ]
    found = [folder for each in entries for folder in _beside(each.rstrip("/"))]
    found += [environment.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
    return [each for each in dict.fromkeys(found) if os.path.exists(each)]


def _beside(folder: str) -> list[str]:
    """The folders that belong to the programs in a folder. The rest of a prefix such as ~/.local stays out of reach:
    people keep their data there."""
    prefix, name = os.path.split(folder)
    if name not in _PROGRAMS:
        return []
    prefixes = [prefix, sys.base_prefix] if prefix == sys.prefix else [prefix]
    return [os.path.join(each, name) for each in prefixes for name in (*_PROGRAMS, *_BESIDE)]


def cache_home(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """A home that a program of the operator keeps between its starts: `npx` and `uvx` store their downloads there."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(
        Path(base) / "holdfast" / "homes" / sha256(" ".join(words).encode()).hexdigest()[:16]
    )


_PROJECT = ("package.json", "pyproject.toml", "node_modules")


class NamedPaths(Value):
    """The paths that the words of an operator's command name."""

    files: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def projects(self) -> tuple[str, ...]:
        """The files, each with what belongs to it: the nearest directory that looks like a project, and for a program
        the folders beside it, also where a link leads to."""
        found: list[str] = []
        for each in map(Path, self.files):
            above = (up for up in each.parents if any((up / name).exists() for name in _PROJECT))
            found.append(str(next(above, each)))
            for path in (each, Path(os.path.realpath(each))):
                found += _beside(str(path.parent))
        return tuple(dict.fromkeys(map(os.path.realpath, found)))


def named_paths(directory: Path, *texts: str) -> NamedPaths:
    """The files and folders that these words and commands name, relative to a directory or absolute."""
    files, folders = [], []
    for word in dict.fromkeys(word for text in texts for word in (text, *_words(text))):
        path = os.path.join(directory, word)
        try:
            if os.path.isfile(path):
                files.append(path)
            elif "/" in word and os.path.isdir(path):
                folders.append(path)
        except ValueError:  # the word contains a NUL
            continue
    return NamedPaths(files=tuple(files), folders=tuple(folders))


def _words(command: str) -> list[str]:
    """The words of a shell command, as well as they can be found without running it."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
