"""`holdfast` that tells what its memory is made of: python -m tests.torture.soaked SHARE FILE serve …

All caches get this share of their bounds, before anything that reads them is loaded. On SIGRTMIN the process appends a
line to the file: what Python's objects and SQLite's pages take, what each cache has in it by its own count, and what
the C library's allocator holds for others and for later.
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
    *("snapshot_cache_bytes", "history_cache_bytes", "page_cache_bytes", "ended_turns_bytes"),
    *("known_keys_max", "known_rows_max", "gauge_entries_max", "key_cache_max"),
)

COUNTED = {
    "SnapshotCache": (("snapshots", "_bytes"), ("keys", "_keys")),
    "EncodedHistories": (("histories", "_bytes"),),
    "Owner": (("ended", "_ended_bytes"),),
    "PromptSizes": (("gauged", "_known"),),
}
"""The caches of a server that has SQLite for a store, by their types: what their content is called here, and where they
count it, or have it. The pages of SQLite are counted by itself."""


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
    """What memory is made of, in megabytes; and how many blocks Python has, how many objects in reach of cycles, and
    how many names are known."""
    objects = gc.get_objects()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found: dict[str, float] = {
        "at_s": time.monotonic(),
        "rss": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "blocks": sys.getallocatedblocks(),
        "objects": len(objects),
        "sqlite": apsw.memory_used() / 1e6,
        "malloc_used": 0.0,
        "malloc_free": 0.0,
    }
    for each in objects:
        for name, where in COUNTED.get(type(each).__name__, ()):
            held = getattr(each, where)
            found[name] = held / 1e6 if isinstance(held, int) else len(held)
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

    signal.signal(signal.SIGRTMIN, tell)
    runpy.run_module("holdfast", run_name="__main__")


if __name__ == "__main__":
    main()
