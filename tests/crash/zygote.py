"""Fresh processes by the hundred: one process that has everything imported, and forks on request.

A child is a real process with its own locks, connections and death; only the start of the interpreter is
saved, which is most of the time. The zygote itself never opens a store, so nothing is inherited.

    with Zygote() as zygote:
        child = zygote.start("play", path, 7)
        child.read_line(); child.kill()
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

ROOT = Path(__file__).parents[2]


class Zygote:
    """The one that forks. Leaving it ends what is left of its children, too."""

    def __init__(self, module: str = "tests.crash.worker") -> None:
        """`module` has the commands that its children can run."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
                pass_fds=(theirs.fileno(),),
            )
        self._socket = ours
        self._children: list[Child] = []

    def start(self, command: str, *arguments: str | int | float | Path) -> Child:
        """A new process that runs a command of the module."""
        told_read, told_write = os.pipe()
        said_read, said_write = os.pipe()
        message = msgspec.json.encode((command, [str(each) for each in arguments]))
        socket.send_fds(self._socket, [message], [told_read, said_write])
        os.close(told_read)
        os.close(said_write)
        child = Child(int(self._socket.recv(64)), said_read, told_write)
        self._children.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        self._socket.close()
        self._process.wait()


class Child:
    """A process that says lines and is told lines; the end of what it says is its death."""

    def __init__(self, pid: int, said: int, told: int) -> None:
        self.pid = pid
        self._said = os.fdopen(said, "rb")
        self._told = os.fdopen(told, "wb", buffering=0)
        self._dead = False

    def read_line(self) -> str:
        """The next whole line; empty if it has died, also if that was in the middle of a line."""
        line = self._said.readline()
        if line.endswith(b"\n"):
            return line[:-1].decode()
        self._dead = True
        return ""

    def lines(self) -> Iterator[str]:
        """All that it says until it dies."""
        while line := self.read_line():
            yield line

    def expect(self, line: str) -> None:
        found = self.read_line()
        assert found == line, f"it said {found!r}, not {line!r}"

    def tell(self, line: str = "") -> None:
        self._told.write(f"{line}\n".encode())

    def send(self, number: signal.Signals) -> None:
        # Until we have seen its end it is not reaped by a stranger: the zygote's children are not
        # waited for by anybody else, and a pid is not reused while its pipe is open to us.
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`. What it had said before can still be read."""
        if not self._dead:
            self.send(signal.SIGKILL)

    def wait_stopped(self) -> None:
        """Until SIGSTOP has taken effect."""
        stat = Path(f"/proc/{self.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] not in "Tt":
            os.sched_yield()

    def end(self) -> None:
        if not self._said.closed:
            self.kill()
            for _ in self.lines():
                pass
            self._said.close()
            self._told.close()
