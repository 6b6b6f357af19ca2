"""What a server's processes use: the one that was started, and all that it has started in turn."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGESIZE")


def family(pid: int) -> list[int]:
    """A process and its descendants that are alive. Nobody for 0."""
    found = [pid] if pid else []
    for each in found:
        for listed in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):  # a thread that has ended meanwhile
                found += map(int, listed.read_text().split())
    return found


def cpu_s(pid: int) -> float:
    """CPU time, to the nanosecond: Linux has a clock for each process, named after its id."""
    total = 0.0
    for each in family(pid):
        with suppress(OSError):
            total += time.clock_gettime((~each << 3) | 2)
    return total


def rss_mb(pid: int) -> float:
    """Memory that is resident; what several processes share counts for each."""
    total = 0
    for each in family(pid):
        with suppress(OSError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return total * _PAGE / 1e6


def written_bytes(pid: int) -> int:
    """What was handed to the disk, by the kernel's account."""
    total = 0
    for each in family(pid):
        with suppress(OSError):
            fields = dict(
                line.split(": ") for line in Path(f"/proc/{each}/io").read_text().splitlines()
            )
            total += int(fields["write_bytes"])
    return total
