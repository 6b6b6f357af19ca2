"""Folders for files that need not outlive anything: in memory where there is room, because it is fast.

Not for tests of durability by `kill -9` or by faults of real files: those use the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM_BYTES = 2 << 30
"""What the tests of one run write at the most, with a wide margin. Containers often have 64 MB."""


def _memory() -> Path | None:
    shared = Path("/dev/shm")
    usable = os.access(shared, os.W_OK | os.X_OK)
    return shared if usable and shutil.disk_usage(shared).free > ROOM_BYTES else None


MEMORY = _memory()
"""A folder in memory; None where there is none, or too little of it."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, gone afterwards with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=MEMORY) as folder:
        yield Path(folder)
