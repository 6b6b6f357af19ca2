"""Other processes that use the same file, and how a test talks with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


class Child:
    """A process that runs a command of `child.py`: it says lines, and is told lines."""

    def __init__(self, command: str, path: Path, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.sqlite.child", command, str(path)]
            + [str(argument) for argument in arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_line(self) -> str:
        """The next line that it says; empty if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_stopped(self) -> None:
        """Until SIGSTOP has taken effect."""
        found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        return self._process.wait()

    def end(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # what we told it last, it did not live to hear
