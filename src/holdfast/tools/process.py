"""Running a command so that nothing of it is left behind.

1. In a sandbox a command has a launcher (`sandbox/launcher.py`), which ends everything that the command has started
   before it ends itself. It is asked to: SIGTERM gives time, SIGQUIT does not.
2. Without a sandbox a command gets a process group of its own, which is ended with it: when it exits, when time is up,
   when the turn is cancelled. SIGTERM first, SIGKILL after a moment of grace. Processes that have left the group are
   found by the mark in their environment (Linux) and ended too; after a command that exits by itself they are not.
3. The group's leader is not reaped before its group has been killed, so its number cannot be somebody else's.
4. Memory is bounded while reading: of too much output the two ends are kept.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.environment import CALL_KEY
from holdfast.tools.sandbox.sandbox import ConfinedCommand
from holdfast.tools.threads import in_thread

MARK = CALL_KEY
"""The variable by which a command knows its call, and by which its processes are found."""

_READ_BYTES = 64 * 1024
_ENDS_BYTES = 16 * 1024
_HUNTS_MAX = 10
"""How often to look again for processes that fork while they are being ended."""


class Exit(Value):
    """What came of a command."""

    output: bytes
    """Standard output and standard error, as they came. If `left_out`, only the two ends of it."""
    errors: bytes = b""
    """Standard error, of a command that was given something to read: then `output` is without it."""
    left_out: int = 0
    """Bytes in the middle that were not kept."""
    code: int | None = None
    """None if it was stopped by us."""
    killed_by: int = 0
    """The signal that ended it, if one did."""
    why_stopped: str = ""


class Capture:
    """Output being read: the whole of it as long as that is affordable, then its beginning and its end."""

    def __init__(self, *, whole_max: int, ends_max: int) -> None:
        self._whole_max = whole_max
        self._ends_max = ends_max
        self._head = bytearray()
        self._tail = bytearray()
        self._overflowed = False
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if not self._overflowed:
            self._head += data
            if len(self._head) <= self._whole_max:
                return
            self._overflowed = True
            data = bytes(self._head[self._ends_max :])
            del self._head[self._ends_max :]
        self._tail += data
        if len(self._tail) > 2 * self._ends_max:  # trimmed now and then, not at every read
            del self._tail[: -self._ends_max]

    @property
    def left_out(self) -> int:
        return self.total - len(self._head) - min(len(self._tail), self._ends_max)

    def bytes(self) -> bytes:
        """What was kept; with a line in the middle if something was not."""
        tail = bytes(self._tail[-self._ends_max :])
        gap = f"\n[… {self.left_out} bytes left out …]\n".encode() if self.left_out else b""
        return bytes(self._head) + gap + tail


async def run_command(
    command: str,
    *,
    environment: Mapping[str, str],
    directory: Path,
    mark: str,
    timeout_s: float,
    given: bytes | None = None,
    cell: ConfinedCommand | None = None,
    tenant: str = "",
) -> Exit:
    """Run a shell command and wait for its end. Cancelling this ends it, all of it, before this returns.

    `given`: what it can read from its standard input; what it says to its standard error is then kept apart.
    `cell`: what it may use of this machine, if there is a sandbox; `tenant` is whose turn it is.
    Raises OSError if it cannot be started.
    """
    argv, environment = ["/bin/sh", "-c", command], {**environment, MARK: mark}
    launched = None if cell is None else await cell.launched(argv, environment, tenant=tenant)
    running = _Running(
        launched or argv, environment, directory, mark, given, is_launched=launched is not None
    )
    try:
        async with asyncio.timeout(timeout_s):
            why_stopped = await running.wait_end()
    except TimeoutError:
        why_stopped = f"did not finish within {timeout_s:g} s"
    finally:
        await running.close()
    return running.told(why_stopped)


class _Listener:
    """Reads what comes out of a pipe, until its end, or until it is too much."""

    def __init__(self, pipe: IO[bytes], on_end: Callable[[], None]) -> None:
        self.capture = Capture(whole_max=limits.tool_output_bytes_max, ends_max=_ENDS_BYTES)
        self.has_ended = False
        self._on_end = on_end
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    @property
    def is_flood(self) -> bool:
        return self.capture.total > limits.script_flood_bytes_max

    def _read(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        self.capture.add(data)
        if not data or self.is_flood:
            self._end()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._loop.remove_reader(self._pipe.fileno())
            self._on_end()

    def close(self) -> None:
        self._end()
        self._pipe.close()


class _Running:
    """A command under way."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        mark: str,
        given: bytes | None,
        *,
        is_launched: bool,
    ) -> None:
        self._mark = mark
        self._is_launched = is_launched
        self._loop = asyncio.get_running_loop()
        self._read_to_end: asyncio.Future[None] = self._loop.create_future()
        self._left = False
        with _readable(given) as reading:
            self._process = subprocess.Popen(
                argv,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if given is None else subprocess.PIPE,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        pipes = (self._process.stdout, self._process.stderr)
        self._listeners = [_Listener(pipe, self._has_ended) for pipe in pipes if pipe is not None]
        self._exited = asyncio.ensure_future(in_thread(self._wait_exit, name="holdfast command"))

    def _wait_exit(self) -> None:
        try:
            # WNOWAIT leaves a zombie, which keeps the group's number ours until we have used it.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return  # it has been reaped meanwhile
        if self._left:
            self._process.poll()

    @property
    def _is_flood(self) -> bool:
        return any(each.is_flood for each in self._listeners)

    def _has_ended(self) -> None:
        all_said = self._is_flood or all(each.has_ended for each in self._listeners)
        if all_said and not self._read_to_end.done():
            self._read_to_end.set_result(None)

    async def wait_end(self) -> str:
        """Wait until the command has exited by itself (``), or has to be stopped, and why."""
        await asyncio.wait((self._read_to_end, self._exited), return_when=asyncio.FIRST_COMPLETED)
        if self._is_flood:
            return f"printed more than {limits.script_flood_bytes_max} bytes"
        await asyncio.wait((self._exited,))
        # Whoever is still in the group holds the pipe open, perhaps for ever.
        self._signal_group(signal.SIGKILL)
        # Somebody who has left the group may do so too: then we go without what they still say.
        await asyncio.wait((self._read_to_end,), timeout=limits.script_kill_grace_s)
        self._process.wait()
        return ""

    async def close(self) -> None:
        """See to it that nothing is left; at once if this is cancelled, else with a moment of grace."""
        try:
            if self._process.returncode is None:
                self._signal_all(signal.SIGTERM)
                await asyncio.wait(
                    (self._exited, self._read_to_end), timeout=limits.script_kill_grace_s
                )
                self._kill()
                await asyncio.wait((self._exited,), timeout=limits.script_kill_grace_s)
                if self._is_launched and not self._exited.done():
                    self._process.kill()  # the command dies with its launcher
        finally:
            self._kill()
            for listener in self._listeners:
                listener.close()
            # Not waited for, since a process can be slow to die in the kernel: it is reaped here if it
            # is dead by now, else by the thread that waits for it, also after the loop has gone.
            self._left = True
            self._process.poll()

    def told(self, why_stopped: str) -> Exit:
        code = self._process.poll()
        output, *errors = (each.capture for each in self._listeners)
        return Exit(
            output=output.bytes(),
            errors=b"".join(each.bytes() for each in errors),
            left_out=output.left_out,
            code=None if why_stopped or code is None else max(code, 0),
            killed_by=max(-(code or 0), 0),
            why_stopped=why_stopped,
        )

    def _kill(self) -> None:
        if self._process.returncode is None:
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal the group, and processes that carry our mark elsewhere, also those that are just being forked."""
        if self._is_launched:
            os.kill(
                self._process.pid, signal.SIGQUIT if number == signal.SIGKILL else signal.SIGTERM
            )
            return
        self._signal_group(number)
        for _ in range(_HUNTS_MAX if number == signal.SIGKILL else 1):
            if not self._hunt(number):
                return

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process.returncode is None, "a reaped leader's number may be anybody's"
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody there; or, on macOS, nobody but zombies

    def _hunt(self, number: signal.Signals) -> int:
        """Signal processes that carry our mark, whatever group they are in. Returns how many."""
        found = 0
        for pid in _marked(self._mark):
            if pid != self._process.pid:
                try:
                    os.kill(pid, number)
                    found += 1
                except (ProcessLookupError, PermissionError):
                    pass
        return found


@contextmanager
def _readable(given: bytes | None) -> Iterator[IO[bytes] | int]:
    """A standard input with this in it. A file: nobody has to keep feeding it, or to hear that nobody reads."""
    if given is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        yield file


def kill_marked(mark: str, *, variable: str = MARK) -> None:
    """End every process whose environment carries this mark, also those that are just being forked."""
    for _ in range(_HUNTS_MAX):
        found = list(_marked(mark, variable))
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        if not found:
            return


def _marked(mark: str, variable: str = MARK) -> Iterator[int]:
    """Living processes whose environment carries this mark. None where there is no /proc."""
    entry = f"{variable}={mark}".encode()
    if not mark or not os.path.isdir("/proc/self"):
        return
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environ:
                if entry in environ.read().split(b"\0"):
                    yield int(name)
        except OSError:
            continue  # gone, or not ours to read
