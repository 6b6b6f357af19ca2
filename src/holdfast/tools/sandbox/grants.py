"""What a command is given, for the launcher: its order, and which paths that means on this machine now."""

from __future__ import annotations

import os

from holdfast.tools.sandbox.system import Refused

PROGRAMS = """
    /usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /sys/devices/system/cpu
    /etc/alternatives /etc/bash.bashrc /etc/ca-certificates /etc/ca-certificates.conf /etc/debian_version /etc/fonts
    /etc/gai.conf /etc/gitconfig /etc/group /etc/host.conf /etc/hostname /etc/hosts /etc/inputrc /etc/ld.so.cache
    /etc/ld.so.conf /etc/ld.so.conf.d /etc/locale.alias /etc/locale.conf /etc/localtime /etc/magic /etc/mime.types
    /etc/networks /etc/nsswitch.conf /etc/os-release /etc/passwd /etc/pki/ca-trust /etc/pki/tls/cert.pem
    /etc/pki/tls/certs /etc/profile /etc/protocols /etc/resolv.conf /etc/services /etc/shells /etc/ssl/cert.pem
    /etc/ssl/certs /etc/ssl/openssl.cnf /etc/terminfo /etc/timezone /etc/xattr.conf
""".split()
"""What every command may read: programs, libraries, and those files of /etc that hold no secrets."""

ENTRIES_MAX = 5000
"""In a directory that has to be granted entry by entry."""


class Order:
    """What the server wants to be run, and how; from the arguments."""

    def __init__(self, arguments: list[str]) -> None:
        self.bwrap = self.home = self.scratch = ""
        self.network = False
        self.parent = 0
        self.grace_s = 2.0
        self.memory = self.file_bytes = 1 << 40
        self.processes = self.files = 1 << 20
        self.abi = 1 << 10
        """Of Landlock: at most this."""
        self.read: list[str] = []
        self.write: list[str] = []
        self.hide: list[str] = []
        self.keep: list[str] = []
        words = iter(arguments)
        for word in words:
            if word == "--":
                break
            if word == "--network":
                self.network = True
                continue
            name, known = word[2:].replace("-", "_"), self.__dict__
            if not word.startswith("--") or name not in known:
                raise Refused(f"no such option: {word}")
            value, old = next(words), known[name]
            if isinstance(old, list):
                old.append(value)
            else:
                setattr(self, name, type(old)(value))
        self.argv = list(words)


class Grants:
    """Which paths a command may use: all of them real, none of them a link."""

    def __init__(self, order: Order) -> None:
        self._hidden = ["/proc", *map(os.path.realpath, order.hide)]
        self._kept = [os.path.realpath(each) for each in order.keep]
        self.read: list[str] = []
        self.write: list[str] = []
        self.frozen: list[str] = []
        """Directories that were granted entry by entry; outer ones first."""
        for each in order.write:
            self._grant(os.path.realpath(each), self.write)
        for each in (*PROGRAMS, *order.read):
            self._grant(os.path.realpath(each), self.read)

    def _grant(self, path: str, to: list[str]) -> None:
        if not os.path.lexists(path) or any(is_in(path, each) for each in self._hidden):
            return
        if is_in(path, "/dev") and not is_in(path, "/dev/shm"):  # memory, which a root may be in
            return
        # What belongs to the store is named after it: its log, its locks, copies of it.
        if any(path.startswith((f"{each}-", f"{each}.")) for each in self._hidden):
            return
        if any(is_in(path, each) for each in self._kept):
            to = self.read
        elif any(is_in(each, path) for each in self._protected(to)):
            self.frozen.append(path)
            entries = sorted(os.scandir(path), key=lambda each: each.name)
            if len(entries) > ENTRIES_MAX:
                raise Refused(
                    f"{path} holds what the server uses, and more than {ENTRIES_MAX} entries beside it; "
                    "give the command a directory of its own"
                )
            for entry in entries:
                if not entry.is_symlink():  # where it leads to is granted, or it is not
                    self._grant(entry.path, to)
            return
        to.append(path)

    def _protected(self, to: list[str]) -> list[str]:
        """What must not be granted, or not to be written to."""
        return ["/dev", *self._hidden, *(() if to is self.read else self._kept)]


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
