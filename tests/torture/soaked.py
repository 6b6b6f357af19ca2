"""`holdfast` that tells what its memory is made of: python -m tests.torture.soaked SHARE FILE serve …

All caches get this share of their bytes, before anything that reads them is loaded. On SIGUSR1 the process appends a
line to the file: what Python's objects and SQLite's pages take, and what the C library's allocator holds for others and
for later.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

import apsw

from holdfast import limits

CACHES = (
    *("snapshot_cache_bytes", "history_cache_bytes", "page_cache_bytes"),
    *("ended_turns_bytes", "known_names_bytes"),
)


class Allocator(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def figures() -> dict[str, float]:
    """What memory is made of, in megabytes; and how many blocks Python has, and how many objects in reach of cycles."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found: dict[str, float] = {
        "at_s": time.monotonic(),
        "rss": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "sqlite": apsw.memory_used() / 1e6,
        "malloc_used": 0.0,
        "malloc_free": 0.0,
    }
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is not None:
        ask.restype = Allocator
        told = ask()
        found["malloc_used"] = (told.uordblks + told.hblkhd) / 1e6
        found["malloc_free"] = told.fordblks / 1e6
    return found


def main() -> None:
    share, told = float(sys.argv.pop(1)), Path(sys.argv.pop(1))
    for name in CACHES:
        setattr(limits, name, int(getattr(limits, name) * share))

    def tell(*_: object) -> None:
        with told.open("a") as file:
            file.write(json.dumps(figures()) + "\n")

    signal.signal(signal.SIGUSR1, tell)
    runpy.run_module("holdfast", run_name="__main__")


if __name__ == "__main__":
    main()
