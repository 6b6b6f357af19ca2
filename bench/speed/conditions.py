"""Under what a group is measured."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import apsw
from _figures import Conditions

from speed.servers import on_disk
from speed.subjects import Subject

SYNCS = 60


def conditions(subjects: Sequence[Subject]) -> Conditions:
    load = os.getloadavg()[0]
    with on_disk() as folder:
        sync_ms = _sync_ms(folder)
    return Conditions(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{_found('/proc/cpuinfo', r'model name.*: (.*)') or platform.machine()}",
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(int(_found("/proc/meminfo", r"MemTotal: *(\d+)") or 0) / 1e6, 1),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=apsw.sqlite_lib_version(),
        sync_ms=sync_ms,
        load=load,
        counting_ms=_counting_ms(),
        versions={each.name: said for each in subjects if (said := each.version())},
    )


def _sync_ms(folder: Path) -> float:
    """A page that is added to a file, and synced."""
    file = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT)
    taken: list[float] = []
    for _ in range(SYNCS):
        began = time.perf_counter()
        os.write(file, bytes(4096))
        os.fdatasync(file)
        taken.append((time.perf_counter() - began) * 1e3)
    os.close(file)
    return median(taken)


def _counting_ms() -> float:
    """A loop that adds up a million numbers; the best of a few, since only neighbours make it longer."""
    return min(_summed_ms() for _ in range(5))


def _summed_ms() -> float:
    began, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    return (time.perf_counter() - began) * 1e3


def _found(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, Path(path).read_text(encoding="ascii", errors="replace"))
    except OSError:
        return ""
    return found[1].strip() if found else ""
