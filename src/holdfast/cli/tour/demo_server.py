"""The server of the tour: a real process, on a port and a file of its own, that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

import msgspec

from holdfast.environment import PREFIX
from holdfast.errors import HoldfastError

AGENT = """\
version: "7"
agents:
  guide:
    model: demo/parrot
    description: Shows what Holdfast does.
    instruction: You are the guide of a tour.
    toolsets:
      - type: script
        shell:
          send_letter:
            cmd: echo "$to" >> post/letters.txt; echo "sent to $to"
            description: Sends a letter. It cannot be called back.
            args:
              to: {type: string}
          send_by_ship:
            cmd: echo "$to" >> post/letters.txt; sleep 30; echo "sent to $to"
            description: Sends a letter, and takes half a minute.
            args:
              to: {type: string}
permissions:
  allow: [send_letter, send_by_ship]
"""


class NotStarted(HoldfastError):
    """The tour's server did not start; the message has its output."""


class ServerHost(Protocol):
    """Runs the server of the tour."""

    here: Path

    @property
    def url(self) -> str: ...

    def kill(self) -> None:
        """Kill the process without a signal that it could handle, like a power cut."""

    def start(self) -> None: ...


class _Ready(msgspec.Struct):
    event: str = ""
    url: str = ""


class DemoServer:
    """`holdfast serve` in a directory, on a free port."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        (here / "guide.yaml").write_text(AGENT, encoding="utf-8")
        (here / "post").mkdir(exist_ok=True)  # tools may not write beside the server's own files

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "guide.yaml", "--log-format", "json"]
        self._process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--store", "sqlite:///tour.db", "--auth", "off"],
            cwd=self.here,
            env=_without_settings(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.url = self._wait_ready(self._process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.decode(errors="replace"))
            try:
                told = msgspec.json.decode(line, type=_Ready)
            except msgspec.DecodeError:
                continue  # perhaps a warning of Python's; it is shown if the server does not start
            if told.event == "server.ready":
                return told.url
        raise NotStarted(f"the server of the tour ended before it was ready: {''.join(said)}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings: the tour shows a server with its defaults."""
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


@contextmanager
def launched() -> Iterator[ServerHost]:
    """A freshly started server, in a directory that is removed at the end, also if the terminal is closed."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _leave)
    with tempfile.TemporaryDirectory(prefix="holdfast-tour-") as folder:
        server = DemoServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
