from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks fresh processes, quickly."""
    with Zygote() as started:
        yield started


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk: what these tests are about is what a disk keeps."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
