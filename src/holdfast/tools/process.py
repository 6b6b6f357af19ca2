"""Runs a shell command so that none of its processes is left behind.

1. In a sandbox a command has a launcher (`sandbox/launcher.py`), which ends every process of the command before it
   exits itself. SIGTERM asks it to do so with a moment of grace, SIGQUIT at once.
2. Without a sandbox a command gets a process group of its own, which is killed when the command exits, when its time
   is up, or when the turn is cancelled: SIGTERM first, SIGKILL after a moment of grace. Processes that have left the
   group are found by the mark in their environment (Linux) and killed too, unless the command exited by itself.
3. The group's leader is reaped only after its group has been killed, so the group's number cannot be reused before.
4. Memory is bounded while reading: of too much output, the beginning and the end are kept.
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
"""The environment variable that holds a command's call key, and by which its processes are found."""

_READ_BYTES = 64 * 1024
_ENDS_BYTES = 16 * 1024
_SEARCHES_MAX = 10
"""How often to look again for processes that fork while they are being killed."""


class Exit(Value):
    """The outcome of a command."""

    output: bytes
    """Standard output and standard error, interleaved. If `left_out`, only the beginning and the end."""
    errors: bytes = b""
    """Standard error, if the command had a standard input: then `output` does not contain it."""
    left_out: int = 0
    """How many bytes in the middle were dropped."""
    code: int | None = None
    """None if we stopped the command."""
    killed_by: int = 0
    """The signal that ended the command; 0 if none did."""
    why_stopped: str = ""


class Capture:
    """Collects output: all of it up to a bound, then its beginning and its end."""

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
        """The collected output, with a line in the middle if something was dropped."""
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
    """Run a shell command and wait for its end. Cancelling this ends all of its processes before this returns.

    `given`: the command's standard input; its standard error is then collected separately.
    `cell`: what the command may use of this machine, if there is a sandbox; `tenant`: the turn's tenant.
    Raises OSError if the command cannot be started.
    """
    running = await started_command(
        command,
        environment=environment,
        directory=directory,
        mark=mark,
        given=given,
        cell=cell,
        tenant=tenant,
        flood_bytes_max=limits.script_flood_bytes_max,
    )
    try:
        async with asyncio.timeout(timeout_s):
            why_stopped = await running.wait_end()
    except TimeoutError:
        why_stopped = f"did not finish within {timeout_s:g} s"
    finally:
        await running.close()
    return running.outcome(why_stopped)


async def started_command(
    command: str,
    *,
    environment: Mapping[str, str],
    directory: Path,
    mark: str,
    given: bytes | None = None,
    cell: ConfinedCommand | None = None,
    tenant: str = "",
    flood_bytes_max: int | None = None,
    kept_bytes_max: int | None = None,
) -> RunningCommand:
    """A shell command that has been started; see `run_command`. The caller has to close it.

    `flood_bytes_max`: a command that prints more is to be stopped; None: it may print for ever.
    `kept_bytes_max`: of a longer output both ends are kept; None: as much as of every tool.
    """
    argv, environment = ["/bin/sh", "-c", command], {**environment, MARK: mark}
    launched = None if cell is None else await cell.launched(argv, environment, tenant=tenant)
    return RunningCommand(
        launched or argv,
        environment,
        directory,
        mark,
        given,
        is_launched=launched is not None,
        flood_bytes_max=flood_bytes_max,
        kept_bytes_max=kept_bytes_max or limits.tool_output_bytes_max,
    )


class _Listener:
    """Reads a pipe until its end, or until the output is too much."""

    def __init__(
        self,
        pipe: IO[bytes],
        on_end: Callable[[], None],
        *,
        flood_bytes_max: int | None,
        kept_bytes_max: int,
    ) -> None:
        self._flood_bytes_max = flood_bytes_max
        self.capture = Capture(whole_max=kept_bytes_max, ends_max=_ENDS_BYTES)
        self.has_ended = False
        self._on_end = on_end
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    @property
    def is_flood(self) -> bool:
        return self._flood_bytes_max is not None and self.capture.total > self._flood_bytes_max

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


class RunningCommand:
    """A command that runs until it has exited or is closed."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        mark: str,
        given: bytes | None,
        *,
        is_launched: bool,
        flood_bytes_max: int | None,
        kept_bytes_max: int,
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
        self._listeners = [
            _Listener(
                pipe,
                self._has_ended,
                flood_bytes_max=flood_bytes_max,
                kept_bytes_max=kept_bytes_max,
            )
            for pipe in pipes
            if pipe is not None
        ]
        self._exited = asyncio.ensure_future(in_thread(self._wait_exit, name="holdfast command"))

    def _wait_exit(self) -> None:
        try:
            # WNOWAIT leaves a zombie, which keeps the group's number from being reused until the group is killed.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return  # reaped meanwhile
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
        """Wait until the command has exited (returns ``) or has to be stopped (returns why)."""
        await asyncio.wait((self._read_to_end, self._exited), return_when=asyncio.FIRST_COMPLETED)
        if self._is_flood:
            return f"printed more than {limits.script_flood_bytes_max} bytes"
        await asyncio.wait((self._exited,))
        # A process that is still in the group holds the pipe open, perhaps for ever.
        self._signal_group(signal.SIGKILL)
        # A process that has left the group may hold the pipe open, too: what it prints from now on is not collected.
        await asyncio.wait((self._read_to_end,), timeout=limits.script_kill_grace_s)
        self._process.wait()
        return ""

    async def close(self) -> None:
        """End every process of the command: with a moment of grace, or at once if this is cancelled."""
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
            # is dead by now, otherwise by the thread that waits for it, even after the loop has gone.
            self._left = True
            self._process.poll()

    @property
    def printed(self) -> bytes:
        """The output so far."""
        return self._listeners[0].capture.bytes()

    def outcome(self, why_stopped: str) -> Exit:
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
        """Signal the group, and marked processes outside of it, including those that are just being forked."""
        if self._is_launched:
            os.kill(
                self._process.pid, signal.SIGQUIT if number == signal.SIGKILL else signal.SIGTERM
            )
            return
        self._signal_group(number)
        for _ in range(_SEARCHES_MAX if number == signal.SIGKILL else 1):
            if not self._signal_marked(number):
                return

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process.returncode is None, "a reaped leader's number may be anybody's"
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # the group is empty; or, on macOS, has only zombies

    def _signal_marked(self, number: signal.Signals) -> int:
        """Signal the processes that carry our mark, in any group. Returns how many."""
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
    """A standard input with this content. It is a file, not a pipe: no task has to feed it or handle a broken pipe."""
    if given is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        yield file


def kill_marked(mark: str, *, variable: str = MARK) -> None:
    """Kill every process whose environment carries this mark, including those that are just being forked."""
    for _ in range(_SEARCHES_MAX):
        found = list(_marked(mark, variable))
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        if not found:
            return


def _marked(mark: str, variable: str = MARK) -> Iterator[int]:
    """Living processes whose environment carries this mark. Empty without /proc."""
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
            continue  # gone, or not readable for us
