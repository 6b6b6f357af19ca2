"""Folders for files that need not outlive anything: in memory where there is such a place, because it is fast.

Not for tests of durability by `kill -9` or by faults of real files: those use the disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, gone afterwards with all that is in it."""
    usable = os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(
        prefix="holdfast-", dir=_SHARED_MEMORY if usable else None
    ) as folder:
        yield Path(folder)
