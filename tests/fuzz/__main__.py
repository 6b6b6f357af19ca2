"""Bytes that a fuzzer makes, for every reader of what others have written: `make fuzz`.

    make fuzz SECONDS=60                    so long for each target
    make fuzz EXECUTIONS=1000000            so often for each target
    python -m tests.fuzz --only sse frames  some of them
    python -m tests.fuzz --blind            guided by nothing, and several times as fast

Progress is on stderr, a line of figures for each target on stdout; the exit status is 1 if something was found.
What was found is kept in `.venv-fuzz`, and belongs into the tests of its reader as a case.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import deque

from tests.fuzz.targets import Target, targets

_COUNT = re.compile(r"#(\d+)\s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, default=0, help="for each target")
    parser.add_argument("--executions", type=int, default=0, help="of each target")
    parser.add_argument("--blind", action="store_true", help="faster, and guided by nothing")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    asked = parser.parse_args()
    seconds = asked.seconds or (0 if asked.executions else 60)
    chosen = [each for each in targets() if not asked.only or each.name in asked.only]
    how = ["blind"] if asked.blind else []
    found = [each.name for each in chosen if not _run(each, seconds, asked.executions, how)]
    if found:
        sys.stdout.write(f"fuzz: something was found in {', '.join(found)}; see .venv-fuzz\n")
    return 1 if found else 0


def _run(target: Target, seconds: int, executions: int, how: list[str]) -> bool:
    """Try one target, and say what came of it. False if something was found."""
    began = time.monotonic()
    numbers = (str(seconds), str(executions))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.one", target.name, *numbers, *how],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    last: deque[str] = deque(maxlen=60)
    progress, count = _Progress(target.name), 0
    for line in process.stderr:
        last.append(line)
        if counted := _COUNT.match(line):
            count = max(count, int(counted[1]))
            progress(count, executions)
        if done := re.match(r"stat::number_of_executed_units:\s*(\d+)", line):
            count = int(done[1])
    ok = process.wait() == 0
    took = time.monotonic() - began
    progress.end()
    told = "nothing found" if ok else "".join(["something found\n", *last])
    sys.stdout.write(
        f"fuzz: {target.about} ({target.name}): {count:,} executions in {took:.0f} s, {told}\n"
    )
    sys.stdout.flush()
    return ok


class _Progress:
    """One line on stderr, now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._said > 0.5:
            self._said = now
            whole = f" of {of:,}" if of else ""
            sys.stderr.write(f"\rfuzz: {self._name}, {done:,}{whole} executions ")
            sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\r" if self._said else "")


if __name__ == "__main__":
    sys.exit(main())
