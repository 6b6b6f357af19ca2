"""Processes of `holdfast` that start at once: a launcher has all of it imported, and forks on request.

What is forked is a process like any other, with its own environment, folder, store, connections and death; only the
start of the interpreter is saved, which is most of what tests with servers would wait for. The launcher itself opens
nothing.

    process = await launched("serve", "demo", cwd=here, env=environment)
    process.send_signal(signal.SIGKILL); await process.wait()
"""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from tests.repository import ROOT


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and where."""

    arguments: tuple[str, ...]
    cwd: str
    env: dict[str, str]


class Launched:
    """A process of ours, as asyncio would show it."""

    def __init__(self, pid: int, said: Pipe, ended: Pipe) -> None:
        self.pid = pid
        self.stdout = said.reader
        """What it says, its errors included."""
        self.returncode: int | None = None
        self._said = said
        self._ended = ended

    def send_signal(self, which: signal.Signals) -> None:
        """Nothing, if it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    async def wait(self) -> int:
        """How it ended: its exit code, or minus the signal."""
        if self.returncode is None:
            self.returncode = int(await self._ended.reader.readline())
            self._ended.close()
            self._said.close()
        return self.returncode

    async def communicate(self) -> tuple[bytes, None]:
        said = await self.stdout.read()
        await self.wait()
        return said, None


async def launched(*arguments: str, cwd: Path, env: Mapping[str, str]) -> Launched:
    """Run `holdfast` with these arguments."""
    said, says = os.pipe()
    ended, ends = os.pipe()
    order = Order(arguments=arguments, cwd=str(cwd), env=dict(env))
    pid = await asyncio.to_thread(_launcher().launch, order, says, ends)
    return Launched(pid, await Pipe.connected(said), await Pipe.connected(ended))


class Pipe:
    """The end of a pipe that is read on the loop."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.reader = reader
        self._transport = transport

    @classmethod
    async def connected(cls, descriptor: int) -> Pipe:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        return cls(reader, transport)

    def close(self) -> None:
        """Take what is in it, and no more: children of the process may hold its other end for long."""
        if self._transport.is_closing():
            return
        self._transport.pause_reading()
        descriptor = self._transport.get_extra_info("pipe").fileno()
        with suppress(BlockingIOError):
            while piece := os.read(descriptor, 1 << 16):
                self.reader.feed_data(piece)
        self._transport.close()


class _Launcher:
    """Our end of the launcher."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.launcher", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
            )
        atexit.register(self.close)

    def launch(self, order: Order, says: int, ends: int) -> int:
        """The number of a process that writes to these two; they are ours no more."""
        socket.send_fds(self._socket, [msgspec.json.encode(order)], [says, ends])
        os.close(says)
        os.close(ends)
        return int(self._socket.recv(64))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _launcher() -> _Launcher:
    """One for this process."""
    return _Launcher()


# ── in the launcher ──────────────────────────────────────────────────────────────────────────


def _serve(control: socket.socket) -> None:
    """Fork for each order until our parent has gone."""
    ends: dict[int, int] = {}
    died, dies = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(dies, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready: list[int] = select.select([control.fileno(), died], [], [])[0]
        if died in ready:
            os.read(died, 1 << 16)
            _bury(ends)
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not message:
            return
        says, end = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            control.close()
            for each in (*ends.values(), end, died, dies):
                os.close(each)
            _become(msgspec.json.decode(message, type=Order), says)
        os.close(says)
        ends[pid] = end
        control.send(str(pid).encode())


def _bury(ends: dict[int, int]) -> None:
    """Tell of each process that has died how it did."""
    for pid in list(ends):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            end = ends.pop(pid)
            with suppress(BrokenPipeError):  # the test has ended, too
                os.write(end, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(end)


def _become(order: Order, says: int) -> None:
    """Be the process that was ordered."""
    from holdfast.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(says, 1)
    os.dup2(says, 2)
    os.close(says)
    os.environ.clear()
    os.environ.update(order.env)
    os.chdir(order.cwd)
    sys.argv = ["holdfast", *order.arguments]
    code: object = 70
    try:
        main(list(order.arguments), prog_name="holdfast")
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


MODULES = (
    "aiohttp asyncpg holdfast.cli.commands.db holdfast.cli.commands.serve holdfast.server.processes.worker_supervisor "
    "holdfast.store.postgres.store holdfast.store.sqlite"
)
"""What a server, or a look at its store, would import."""

if __name__ == "__main__":
    for each in MODULES.split():
        import_module(each)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who tests is stopped by it, and we with them
    _serve(socket.socket(fileno=int(sys.argv[1])))
