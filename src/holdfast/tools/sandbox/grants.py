"""The launcher's order (its command line), and the paths that it grants on this machine now."""

from __future__ import annotations

import os
import stat

from holdfast.tools.sandbox.system import SystemCallRefused

PROGRAMS = """
    /usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /sys/devices/system/cpu
    /etc/alternatives /etc/bash.bashrc /etc/ca-certificates /etc/ca-certificates.conf /etc/debian_version /etc/fonts
    /etc/gai.conf /etc/gitconfig /etc/group /etc/host.conf /etc/hostname /etc/hosts /etc/inputrc /etc/ld.so.cache
    /etc/ld.so.conf /etc/ld.so.conf.d /etc/locale.alias /etc/locale.conf /etc/localtime /etc/magic /etc/mime.types
    /etc/networks /etc/nsswitch.conf /etc/os-release /etc/passwd /etc/pki/ca-trust /etc/pki/tls/cert.pem
    /etc/pki/tls/certs /etc/profile /etc/protocols /etc/resolv.conf /etc/services /etc/shells /etc/ssl/cert.pem
    /etc/ssl/certs /etc/ssl/openssl.cnf /etc/terminfo /etc/timezone /etc/xattr.conf
""".split()
"""Paths that every command may read: programs, libraries, and the files of /etc that hold no secrets."""

ENTRIES_MAX = 5000
"""The most entries of a directory that has to be granted entry by entry."""

SEARCHED_MAX = 200_000
"""The most entries below granted directories to search for other names of a protected file."""


class Order:
    """The command to run and the bounds of its sandbox, parsed from the arguments."""

    def __init__(self, arguments: list[str]) -> None:
        self.bwrap = self.home = self.scratch = ""
        self.network = False
        self.parent = 0
        self.grace_s = 2.0
        self.memory = self.file_bytes = 1 << 40
        self.memory_left = self.disk_left = 0
        self.processes = self.files = 1 << 20
        self.abi = 1 << 10
        """Use at most this version of Landlock."""
        self.programs: list[str] = []
        self.read: list[str] = []
        self.write: list[str] = []
        self.hide: list[str] = []
        self.hide_named: list[str] = []
        """A directory, then how hidden names in it begin and end: `/data/holdfast.db/`, `/agents//.yaml`."""
        self.keep: list[str] = []
        self.searched: list[str] = []
        """Directories of programs: their files can be read, and none can be added."""
        words = iter(arguments)
        for word in words:
            if word == "--":
                break
            if word == "--network":
                self.network = True
                continue
            name, known = word[2:].replace("-", "_"), self.__dict__
            if not word.startswith("--") or name not in known:
                raise SystemCallRefused(f"no such option: {word}")
            value, old = next(words), known[name]
            if isinstance(old, list):
                old.append(value)
            else:
                setattr(self, name, type(old)(value))
        self.argv = list(words)


class SandboxGrants:
    """The paths that a command may use: real paths, none of them a link."""

    def __init__(self, order: Order) -> None:
        self._named = [each.rsplit("/", 2) for each in order.hide_named]
        # A path that matches the pattern: its directory gains no entries, whether such a file exists or not.
        self._hidden = [*order.hide, *(f"{each[0]}/{each[1]}{each[2]}" for each in self._named)]
        self._kept = list(order.keep)
        tops = [os.path.realpath(each) for each in order.write]
        for each in order.searched:
            if any(is_in(each, top) for top in tops):
                files = (entry.path for entry in entries_of(each) if not entry.is_dir())
                # A name that no program has: it keeps the directory from gaining entries, even an empty one.
                self._kept += [os.path.join(each, " "), *files]
        self._find_links(order)
        self.read: list[str] = []
        self.write: list[str] = []
        self.frozen: list[str] = []
        """Directories that were granted entry by entry, outer ones first."""
        for path in (*order.write, *order.read):
            if os.path.realpath(path) != path:
                raise SystemCallRefused(
                    f"{path} leads elsewhere than when the agent file was read: there is a link on the way by now; "
                    "put the directory back, or have the file read again"
                )
        for path in order.write:
            self._grant(path, self.write)
        for path in (*order.read, *map(os.path.realpath, (*PROGRAMS, *order.programs))):
            self._grant(path, self.read)

    def _grant(self, path: str, to: list[str]) -> None:
        if not os.path.lexists(path) or any(is_in(path, each) for each in self._hidden):
            return
        if self._is_named(path):
            return
        # /dev/shm is memory; a root may lie there.
        if is_in(path, "/dev") and not is_in(path, "/dev/shm"):
            return
        if any(is_in(path, each) for each in self._kept):
            to = self.read
        elif any(is_in(each, path) for each in self._protected(to)):
            self.frozen.append(path)
            entries = entries_of(path)
            if len(entries) > ENTRIES_MAX:
                raise SystemCallRefused(
                    f"{path} holds what the server uses, and more than {ENTRIES_MAX} entries beside it; "
                    "give the command a directory of its own"
                )
            for entry in entries:
                if not entry.is_symlink():  # the link's target is granted by itself, or not at all
                    self._grant(entry.path, to)
            return
        to.append(path)

    def _is_named(self, path: str) -> bool:
        folder, name = os.path.split(path)
        name = name.casefold()
        return any(
            folder == where and name.startswith(begin) and name.endswith(end)
            for where, begin, end in self._named
        )

    def _find_links(self, order: Order) -> None:
        """Protect the other names (hard links) of protected files below the granted directories, too."""
        named = [each.path for where, _, _ in self._named for each in entries_of(where)]
        hidden = _linked([*self._hidden, *filter(self._is_named, named)])
        either = hidden | _linked(self._kept)
        for roots, wanted in ((order.write, either), (order.read, hidden)):
            for path, found in _names_below(roots, wanted):
                (self._hidden if found in hidden else self._kept).append(path)

    def _protected(self, to: list[str]) -> list[str]:
        """The paths that must not be granted, or must not be writable."""
        return ["/dev", *self._hidden, *(() if to is self.read else self._kept)]


def entries_of(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a directory, sorted by name; empty if it cannot be read."""
    try:
        return sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        return []


def _linked(paths: list[str]) -> set[tuple[int, int]]:
    """Device and inode of the files that have several names."""
    found = set()
    for path in paths:
        try:
            at = os.lstat(path)
        except OSError:
            continue
        if at.st_nlink > 1 and stat.S_ISREG(at.st_mode):
            found.add((at.st_dev, at.st_ino))
    return found


def _names_below(
    roots: list[str], wanted: set[tuple[int, int]]
) -> list[tuple[str, tuple[int, int]]]:
    """Every name of these files below these directories."""
    found: list[tuple[str, tuple[int, int]]] = []
    real = {os.path.realpath(each) for each in roots} if wanted else set()
    left, seen = [each for each in real if not any(is_in(each, top) for top in PROGRAMS)], 0
    while left:
        entries = entries_of(left.pop())
        seen += len(entries)
        if seen > SEARCHED_MAX:
            raise SystemCallRefused(
                f"a file that the server uses has several names, and there are more than {SEARCHED_MAX} files to look "
                "for them in; give the command a directory of its own"
            )
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                at = entry.stat(follow_symlinks=False)
                if (at.st_dev, at.st_ino) in wanted:
                    found.append((entry.path, (at.st_dev, at.st_ino)))
    return found


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
