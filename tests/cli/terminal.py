"""A terminal with somebody at it: a process on a pseudo-terminal, what it shows, and what is typed."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

from tests.cli.conftest import SOURCES

PATIENCE_S = 60.0
"""Only ever waited for by a test that fails."""

AGAIN_S = 10.0
"""After that a person would press a key again."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>]|[\x00\x01\x02\x0f]")


_AT_THE_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Who leads a session and opens a terminal has it for their own, and gets its Ctrl-C: also below a shell that has
told everything in the background not to listen to it."""


class Terminal:
    """`holdfast …`, as a person runs it."""

    def __init__(
        self, *arguments: str, rows: int = 40, columns: int = 120, **environment: str
    ) -> None:
        self._keyboard, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AT_THE_TERMINAL, sys.executable, "-m", "holdfast", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"PYTHONPATH": str(SOURCES), "TERM": "xterm-256color"} | environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._keyboard)

    @property
    def shown(self) -> str:
        """Everything that was ever shown, without colours and movements."""
        return _ESCAPES.sub("", self.raw)

    def expect(self, text: str) -> str:
        """Wait until this is shown, after what was expected before; what was shown until then."""
        before = self._find(text, time.monotonic() + PATIENCE_S)
        assert before is not None, f"{text!r} was never shown after {self.shown[self._seen :]!r}"
        return before

    def interrupt(self, text: str) -> None:
        """Press Ctrl-C at a prompt until this is shown.

        One that comes when the prompt is drawn and its reader does not wait yet is noted, and heard with the next.
        """
        for _ in range(round(PATIENCE_S / AGAIN_S)):
            self.press(CTRL_C)
            if self._find(text, time.monotonic() + AGAIN_S) is not None:
                return
        raise AssertionError(f"{text!r} was never shown after {self.shown[self._seen :]!r}")

    def _find(self, text: str, until: float) -> str | None:
        """What was shown before this, after what was expected before; None if it is not shown until then."""
        while (at := self.shown.find(text, self._seen)) < 0:
            if not self._read(until):
                return None
        before = self.shown[self._seen : at]
        self._seen = at + len(text)
        return before

    def type(self, line: str) -> None:
        """Type a line, and Enter."""
        self.press(line + "\r")

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def end(self) -> int:
        """Wait until it has ended, and say how."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until):
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self, until: float) -> bool:
        """Take in what is shown next. False if nothing will be, or patience is at its end."""
        ready, _, _ = select.select([self._keyboard], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            piece = os.read(self._keyboard, 65536)
        except OSError:  # how Linux says that nobody is left at the other end
            return False
        self.raw += self._decode(piece)
        return bool(piece)


CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"
