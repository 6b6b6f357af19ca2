"""Bad moments between two system calls: strace kills the process at the nth one, or makes it fail.

The child waits until strace has attached, then plays a short run without threads, so that the nth call is the
same one in every run. Only calls on the store's own files count.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tests.crash.kills import Ledger, Tally, settle
from tests.crash.zygote import Child, Zygote
from tests.means import skip_without

CALLS = (
    "pwrite64",
    "fdatasync",
    "ftruncate",
    "unlink",
    "pread64",
    "openat",
    *("write", "fsync", "fallocate", "rename", "read"),
)
"""All that might touch a file. The last ones are not used by the SQLite that we know; another one may."""

KEYS = 2

Fault = Literal["signal=KILL", "error=EIO", "error=ENOSPC"]


def why_not() -> str | None:
    """What is missing here for this; None if nothing is."""
    if shutil.which("strace") is None:
        return "strace"
    probe = subprocess.run(
        ["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return None if probe.returncode == 0 else "permission to trace processes"


def need_strace() -> None:
    """Skip the running test where there is no strace, or no permission to use it."""
    missing = why_not()
    if missing == "strace":
        skip_without(missing, enable="apt-get install strace")
    elif missing is not None:
        skip_without(missing, enable="docker run --cap-add=SYS_PTRACE …")


class Faults(Struct):
    """What a campaign of faults did."""

    tally: Tally
    answers: Counter[str]
    """By call, what the runs said about their faults: `full`, `poisoned`, `refused`, `end`, or nothing if killed."""


def break_every_call(
    zygote: Zygote,
    folder: Path,
    fault: Fault,
    *,
    calls: Iterable[str] = CALLS,
    step: int = 1,
) -> Faults:
    """Break the nth call of a short run on a new file, for every nth, until a run has no more of them.

    strace counts each kind of call by itself, so we do, too.
    """
    found = Faults(Tally(), Counter())
    for call in calls:
        for nth in count(1, step):
            place = folder / f"{fault.replace('=', '-')}-{call}-{nth}"
            place.mkdir()
            said, struck = _run(zygote, place, fault, call, nth, found.tally)
            shutil.rmtree(place)
            if struck:
                found.tally.kills += 1
                found.answers[f"{call}: {_outcome(said)}"] += 1
                found.tally.violations += _unfit(fault, said, f"{call} {nth}")
            if not struck or found.tally.violations:
                break
    return found


def _run(
    zygote: Zygote, place: Path, fault: Fault, call: str, nth: int, tally: Tally
) -> tuple[list[str], bool]:
    """One run with its nth call broken; what it said, and whether it came to that call."""
    path, ledger = place / "store.db", Ledger(KEYS)
    child = zygote.start("suffer", path, nth)
    child.expect("ready to suffer")
    report = place / "strace"
    with _attached(child, place, path, f"inject={call}:{fault}:when={nth}", report):
        try:
            child.tell("go")
            said = list(child.lines())
        finally:
            child.kill()  # strace waits for its end
    tally.violations += ledger.hear(said)
    settle(zygote, path, child, ledger, tally)
    tally.acked += sum(line.startswith("ack") for line in said)
    trace = report.read_text()
    return said, "(INJECTED)" in trace or "+++ killed by SIGKILL" in trace


def _attached(
    child: Child, place: Path, path: Path, injection: str, report: Path
) -> subprocess.Popen[str]:
    """A strace on the child, which has begun when this returns."""
    names = [place, *(path.with_name(path.name + end) for end in ("", "-wal", "-journal", "-shm"))]
    strace = subprocess.Popen(
        ["strace", "-f", "-o", str(report), "-p", str(child.pid), "-e", injection]
        + [option for name in names for option in ("-P", str(name))],
        stderr=subprocess.PIPE,
        text=True,
    )
    # The kernel names the tracer before the child is stopped: what the child does between the two is not seen.
    assert strace.stderr is not None
    said = ""
    while "attached" not in said:
        line = strace.stderr.readline()
        assert line, said
        said += line
    return strace


def _outcome(said: Iterable[str]) -> str:
    words = [line.split()[0] for line in said]
    known = [word for word in ("full", "poisoned", "refused", "failed", "end") if word in words]
    return " + ".join(known) or "killed"


def _unfit(fault: Fault, said: list[str], where: str) -> list[str]:
    """What a run may not say about its fault, whatever the call was."""
    outcome = _outcome(said)
    if "failed" in outcome:
        return []  # the ledger has it already
    allowed = {
        "signal=KILL": {"killed", "end"},
        "error=EIO": {"poisoned", "refused", "end"},
        "error=ENOSPC": {"full + end", "poisoned", "refused", "full + refused", "end"},
    }
    return [] if outcome in allowed[fault] else [f"{fault} at {where}: it said {said}"]
