"""The launcher's answers to system calls that seccomp passes on to it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from holdfast.tools.sandbox.grants import Order, SandboxGrants, is_in
from holdfast.tools.sandbox.processes import descendants, group_of
from holdfast.tools.sandbox.seccomp import NUMBER, SIGNALS
from holdfast.tools.sandbox.system import call


class Answers:
    """Answers the system calls that seccomp passes on: changes of modes and times, and signals."""

    RECEIVE, SEND, STILL = 0xC0502100, 0xC0182101, 0x40082102

    def __init__(self, listener: int, order: Order, grants: SandboxGrants) -> None:
        self.listener = listener
        self._writable = [order.scratch, *grants.write]
        self._names = {number: name for name, number in NUMBER.items()}

    def next(self) -> None:
        """Answer one system call."""
        question = bytearray(80)
        try:
            fcntl.ioctl(self.listener, self.RECEIVE, question)
        except OSError:
            return  # the process was killed meanwhile
        key, pid, _, number, _, _, *given = struct.unpack("<QIIiIQ6Q", question)
        name = self._names.get(number, "")
        try:
            goes_on = name in SIGNALS
            if goes_on:
                _check_target(pid, _signed(given[0]))
            else:
                self._change(key, pid, name, given)
            error = 0
        except OSError as refused:
            goes_on, error = False, refused.errno or errno.EPERM
        except (OverflowError, ValueError):  # an invalid address or number
            goes_on, error = False, errno.EFAULT
        answer = bytearray(struct.pack("<QqiI", key, 0, -error, 1 if goes_on else 0))
        try:
            fcntl.ioctl(self.listener, self.SEND, answer)
        except OSError:
            pass

    def _change(self, key: int, pid: int, name: str, given: list[int]) -> None:
        """Do the change in the command's place: the path is our copy, the file is open, so neither can be swapped."""
        where, path, value, flags = given[:4]
        if name in ("chmod", "fchmod"):
            where, path, value, flags = (
                (_AT_CWD, where, path, 0) if name == "chmod" else (where, 0, path, 0)
            )
        elif name == "fchmodat":
            flags = 0
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            text = _text_at(memory.fileno(), path) if path else b""
            times = os.pread(memory.fileno(), 32, value) if name == "utimensat" and value else None
        opened = _opened(pid, _signed(where), text, follow=not flags & 0x100)
        try:
            fcntl.ioctl(self.listener, self.STILL, struct.pack("<Q", key))
            found = os.readlink(f"/proc/self/fd/{opened}")
            if not any(is_in(found, each) for each in self._writable):
                raise PermissionError(errno.EPERM, "outside")
            if name == "utimensat":
                call(
                    {"x86_64": 280, "aarch64": 88}[os.uname().machine],
                    _AT_CWD_,
                    f"/proc/self/fd/{opened}".encode(),
                    times,
                    0,
                )
            else:
                if value & 0o6000:
                    raise PermissionError(errno.EPERM, "another's rights")
                os.chmod(f"/proc/self/fd/{opened}", value & 0o1777)
        finally:
            os.close(opened)


def _check_target(sender: int, target: int) -> None:
    """Allow a signal between processes, or to a process group, of the command. Raises PermissionError otherwise."""
    own = set(descendants())
    if target == 0:
        target = -os.getpgid(sender)
    if target == -1 or (target > 0 and target not in own):
        raise PermissionError(errno.EPERM, "not its own")
    if target < 0 and not group_of(-target) <= own:
        raise PermissionError(errno.EPERM, "not all its own")


_AT_CWD_ = -100
_AT_CWD = _AT_CWD_ & 0xFFFFFFFF


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _text_at(memory: int, address: int) -> bytes:
    """The path at an address of another process. It may end just before an unreadable page."""
    text = b""
    while b"\0" not in text:
        step = 4096 - (address + len(text)) % 4096
        text += os.pread(memory, step, address + len(text))
        if len(text) > 2 * 4096:
            raise OSError(errno.ENAMETOOLONG, "too long")
    return text.split(b"\0")[0]


def _opened(pid: int, where: int, path: bytes, *, follow: bool) -> int:
    """The file that a path means to another process, opened so that no other file can take its place."""
    how = os.O_PATH | os.O_CLOEXEC
    base = f"/proc/{pid}/cwd" if where == _AT_CWD_ else f"/proc/{pid}/fd/{where}"
    if not path:
        return os.open(base, how)
    how |= 0 if follow else os.O_NOFOLLOW
    if path.startswith(b"/"):
        return os.open(path, how)
    folder = os.open(base, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(path, how, dir_fd=folder)
    finally:
        os.close(folder)
