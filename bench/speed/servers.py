"""Servers that run: each in a process of its own, on loopback, before one upstream, in a folder on a real disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import msgspec
from _names import DIRECT
from serving.load import Found, Job
from serving.process import cpu_s, rss_mb

from speed.subjects import BENCH, Past, Subject

READY_S = 60.0
SETTLE_S = 16.0
"""Longer than the upstream's slowest stream, which some go on reading when nobody listens."""


class DoesNotStart(RuntimeError):
    """A server has ended, or has not answered in time. Says what it has printed."""


class CannotMeasure(RuntimeError):
    """A client has failed on a server. Says how."""


class Server(msgspec.Struct, frozen=True):
    """A server that runs. `pid` is 0 for the upstream."""

    name: str
    port: int
    pid: int = 0
    request: str = "serving.requests:chat"
    past: Past = "sent again"
    ready_s: float = 0.0
    rest_mb: float = 0.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def on_disk() -> Iterator[Path]:
    """A folder beside the code, since `/tmp` may be in memory, and a sync there costs nothing."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=BENCH) as folder:
        yield Path(folder)


@contextmanager
def upstream() -> Iterator[Server]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(BENCH / "serving" / "upstream.py"), str(port)])
    try:
        until = time.perf_counter() + 10
        while time.perf_counter() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield Server(DIRECT, port)
    finally:
        process.kill()
        process.wait()


@contextmanager
def started(subject: Subject, behind: Server, folder: Path) -> Iterator[Server]:
    """A server process that answers, until the end of the context. Raises DoesNotStart."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = subject.command(port, behind.port, folder)
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**_plain_environment(), **command.environment},
            start_new_session=True,  # so that whatever it starts can be ended with it
        )
        try:
            while not answers(port):
                if process.poll() is not None or time.perf_counter() - began > READY_S:
                    said.seek(0)
                    raise DoesNotStart(f"{subject.name} does not start: {_end_of(said.read())}")
                time.sleep(0.005)
            ready_s = time.perf_counter() - began
            yield Server(
                subject.name,
                port,
                process.pid,
                subject.request,
                subject.past,
                ready_s,
                rss_mb(process.pid),
            )
        finally:
            _stop(process)


def _plain_environment() -> dict[str, str]:
    """Ours, without what would have others import our modules, or call home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    quiet = {"OPENAI_API_KEY": "bench", "DO_NOT_TRACK": "1", "NO_PROXY": "127.0.0.1,localhost"}
    return {**kept, **quiet}


def _end_of(said: bytes) -> str:
    return said.decode(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The server first, as an operator would; then all that it has started, whether it lives or not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        pass  # it is killed with its group
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of them have gone, as they should
    process.wait()


def answers(port: int) -> bool:
    """Whether a server speaks HTTP there, whatever it says."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
    except HTTPError:
        return True
    except (URLError, OSError):
        return False


class Cast:
    """Everybody at once, each in a folder of its own; those that do not start are left out, with their reason."""

    def __init__(self, subjects: Sequence[Subject], behind: Server, folder: Path) -> None:
        self.direct = behind
        self.skipped: dict[str, str] = {}
        self._subjects = {each.name: each for each in subjects}
        self._folder = folder
        self._restless: Counter[str] = Counter()
        """How often each has not come to rest."""
        self._running: dict[str, tuple[Server, ExitStack]] = {}
        for name in self._subjects:
            self._start(name)

    @property
    def servers(self) -> list[Server]:
        return [server for server, _ in self._running.values()]

    def get(self, name: str) -> Server | None:
        """The server of that name as it runs now."""
        if name == self.direct.name:
            return self.direct
        found = self._running.get(name)
        return found[0] if found else None

    def calm(self, server: Server, *, overtaxed: bool) -> None:
        """Wait until what clients have left behind is cleaned up; who was overtaxed and finds no end is started anew.

        Some never rest, whatever they are asked: for those we soon stop waiting.
        """
        name = server.name
        if settle(server, SETTLE_S if self._restless[name] < 2 else 1.0):
            return
        self._restless[name] += 1
        if overtaxed:
            self._running.pop(name)[1].close()
            self._start(name)

    def close(self) -> None:
        for _, stack in self._running.values():
            stack.close()

    def _start(self, name: str) -> None:
        stack = ExitStack()
        try:
            running = started(self._subjects[name], self.direct, self._folder / name)
            self._running[name] = stack.enter_context(running), stack
        except DoesNotStart as failure:
            self.skipped[name] = str(failure)


def measured(server: Server, job: Job) -> Found:
    """What a client in a process of its own finds out. Raises CannotMeasure."""
    job = msgspec.structs.replace(job, port=server.port, pid=server.pid, request=server.request)
    command = [sys.executable, "-m", "serving.load", msgspec.json.encode(job).decode()]
    patience_s = job.limit_s + 120
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience_s, check=False, cwd=BENCH
        )
    except subprocess.TimeoutExpired as failure:
        raise CannotMeasure(f"{server.name} has not answered in {patience_s:.0f} s") from failure
    if done.returncode:
        raise CannotMeasure(done.stderr.strip()[-2000:])
    return msgspec.json.decode(done.stdout, type=Found)


def settle(server: Server, patience_s: float = 10.0) -> bool:
    """Wait until it has nothing to do: what clients have left behind is not the next one's cost. False if it never has."""
    until = time.perf_counter() + patience_s
    while server.pid and time.perf_counter() < until:
        before = cpu_s(server.pid)
        time.sleep(0.1)
        if cpu_s(server.pid) - before < 0.01:
            return True
    return not server.pid
