"""When the log is copied into the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from apsw import Connection

from holdfast.store.sqlite.engine.writer import PASSIVE, TRUNCATE, Bounds, wanted_checkpoint
from tests.store.sqlite.conftest import OpenEngine
from tests.store.sqlite.disk import Disk
from tests.store.sqlite.rows import add, count

BOUNDS = Bounds(step_pages=100, idle_pages=300, hard_pages=1000)


@pytest.mark.parametrize(
    ("pages", "tried", "idle", "mode"),
    [
        (99, 0, False, None),
        (100, 0, False, PASSIVE),
        (150, 100, False, None),  # looked at a moment ago
        (200, 100, False, PASSIVE),
        (120, 900, False, PASSIVE),  # it has started over since
        (20, 900, False, None),
        (299, 250, True, None),
        (300, 300, True, TRUNCATE),
        (300, 300, False, None),
        (1000, 900, False, TRUNCATE),
        (1000, 950, False, None),
    ],
)
def test_what_is_done_depends_on_a_few_numbers(
    pages: int, tried: int, idle: bool, mode: int | None
) -> None:
    assert wanted_checkpoint(BOUNDS, pages=pages, tried=tried, idle=idle) == mode


async def test_a_log_that_grows_is_copied_between_batches_and_starts_over(
    open_engine: OpenEngine, path: Path, disk: Disk
) -> None:
    bounds = Bounds(step_pages=20, idle_pages=10_000)
    engine = await open_engine(bounds=bounds, vfs=disk.name)
    for index in range(100):
        await engine.write(add(f"{index} " + "x" * 3000))
    assert engine.stats.checkpoints >= 5
    assert engine.stats.log_pages < 60
    assert log_of(path).stat().st_size < 60 * 4200


async def test_an_idle_moment_empties_a_large_log_once(
    open_engine: OpenEngine, path: Path, disk: Disk
) -> None:
    bounds = Bounds(step_pages=10_000, idle_pages=20, idle_s=0.001)
    engine = await open_engine(bounds=bounds, vfs=disk.name)
    await engine.write(add("x" * 200_000))
    # The writer finds by itself that nobody writes; a read waits for nothing, so we look again.
    while log_of(path).stat().st_size:
        assert await engine.read(count) == 1
    assert engine.stats.checkpoints == 1


async def test_a_hard_bound_waits_for_readers_only_for_a_moment(
    open_engine: OpenEngine, path: Path
) -> None:
    """A reader that does not let go costs disk space; it stops nobody."""
    bounds = Bounds(step_pages=5, idle_pages=10_000, hard_pages=20)
    engine = await open_engine(bounds=bounds)
    reader = Connection(str(path))
    reader.execute("BEGIN")
    assert count(reader) == 0
    await engine.write(add("x" * 200_000))
    await engine.write(add("y" * 200_000))
    assert engine.stats.log_pages >= 100
    reader.close(force=True)

    await engine.write(add("z" * 200_000))
    await engine.close()
    assert not log_of(path).exists() or log_of(path).stat().st_size == 0


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
