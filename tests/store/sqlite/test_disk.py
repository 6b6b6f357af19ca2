"""A full disk is a nuisance; a broken one is the end."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StorageFull, StoreDamaged, StoreError, StorePoisoned, StoreUnusable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.writer import Bounds
from tests.store.sqlite.conftest import OpenEngine
from tests.store.sqlite.disk import Disk
from tests.store.sqlite.opened import opened
from tests.store.sqlite.rows import add, count, texts


async def test_a_full_disk_refuses_writes_and_goes_on_reading(
    open_engine: OpenEngine, disk: Disk
) -> None:
    poisoned: list[StorePoisoned] = []
    engine = await open_engine(vfs=disk.name, on_poison=poisoned.append)
    await engine.write(add("before"))
    disk.break_next("write", "-wal", apsw.FullError)
    results = await asyncio.gather(
        *(engine.write(add(f"{index}")) for index in range(5)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StorageFull] * 5
    assert await engine.read(texts) == ["before"]

    disk.mend()
    await engine.write(add("after"))
    assert await engine.read(texts) == ["before", "after"]
    assert poisoned == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system lets no file of this process grow beyond this. A quota refuses a write in the same way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_quota_is_a_full_disk(open_engine: OpenEngine, path: Path) -> None:
    """SQLite itself takes only ENOSPC for a full disk, and any other refusal for a broken one."""
    poisoned: list[StorePoisoned] = []
    notes = [f"{n}{'x' * 3_000}" for n in range(60)]
    engine = await open_engine(on_poison=poisoned.append, bounds=Bounds(step_pages=1))
    for note in notes[:20]:
        await engine.write(add(note))
    held = notes[:20]
    size = (await asyncio.to_thread(path.stat)).st_size
    with largest_file(size):  # first the check-point has no room, then the log
        for note in notes[20:]:
            try:
                await engine.write(add(note))
            except StorageFull:
                break
            held.append(note)
        assert await engine.read(texts) == held
    assert 20 < len(held) < len(notes)
    await engine.write(add("after"))
    assert await engine.read(texts) == [*held, "after"]
    assert poisoned == []


async def test_a_disk_too_full_to_check_point_keeps_the_log(
    open_engine: OpenEngine, disk: Disk
) -> None:
    engine = await open_engine(vfs=disk.name, bounds=Bounds(step_pages=1, hard_pages=2))
    disk.break_next("write", ".db", apsw.FullError)
    await engine.write(add("a"))
    await engine.write(add("b"))
    assert await engine.read(texts) == ["a", "b"]
    assert engine.stats.checkpoints >= 1


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_a_failed_write_or_sync_stops_the_store(
    open_engine: OpenEngine, disk: Disk, operation: str
) -> None:
    told: list[StorePoisoned] = []
    engine = await open_engine(vfs=disk.name, on_poison=told.append)
    await engine.write(add("acknowledged"))
    disk.break_next(operation, "-wal", apsw.IOError)

    results = await asyncio.gather(
        *(engine.write(add(f"{index}")) for index in range(5)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StorePoisoned] * 5
    # A second sync may report success for pages that the kernel has dropped: nobody tries one.
    disk.mend()
    for _ in range(2):
        with pytest.raises(StorePoisoned):
            await engine.write(add("later"))
        with pytest.raises(StorePoisoned):
            await engine.read(count)
    events = list(disk.events)
    await engine.close()
    assert len(told) == 1
    assert disk.events == events
    assert disk.events[-1] == f"{operation} failed"


async def test_recovery_keeps_what_was_acknowledged(
    open_engine: OpenEngine, disk: Disk, path: Path
) -> None:
    engine = await open_engine(vfs=disk.name)
    await engine.write(add("acknowledged"))
    disk.break_next("sync", "-wal", apsw.IOError)
    with pytest.raises(StorePoisoned):
        await engine.write(add("unknown"))
    await engine.close()
    disk.mend()
    async with opened(path) as again:
        assert (await again.read(texts))[0] == "acknowledged"
        await again.write(add("after"))
        assert (await again.read(texts))[-1] == "after"


async def test_those_who_wait_are_told_before_the_alarm_is_raised(
    open_engine: OpenEngine, disk: Disk
) -> None:
    """The alarm may well end the process."""
    failed: list[type[BaseException]] = []
    alarmed = asyncio.Event()
    failed_at_alarm: list[type[BaseException]] = []
    loop = asyncio.get_running_loop()

    def alarm(_: StorePoisoned) -> None:
        loop.call_soon_threadsafe(failed_at_alarm.extend, failed)
        loop.call_soon_threadsafe(alarmed.set)

    engine = await open_engine(vfs=disk.name, on_poison=alarm, bounds=Bounds(batch_jobs=1))
    disk.break_next("sync", "-wal", apsw.IOError)

    async def write(text: str) -> None:
        try:
            await engine.write(add(text))
        except StorePoisoned as error:
            failed.append(type(error))

    await asyncio.gather(*(write(f"{index}") for index in range(5)))
    await alarmed.wait()
    assert failed == [StorePoisoned] * 5


async def test_a_failed_read_stops_the_store_too(open_engine: OpenEngine, disk: Disk) -> None:
    told: list[StorePoisoned] = []
    engine = await open_engine(vfs=disk.name, on_poison=told.append, readers=1)
    await engine.write(add("x" * 50_000))
    disk.break_next("read", "-wal", apsw.IOError)
    with pytest.raises(StorePoisoned, match="IOError"):
        await engine.read(texts)
    disk.mend()
    with pytest.raises(StorePoisoned):
        await engine.write(add("later"))
    with pytest.raises(StorePoisoned):
        await engine.read(count)
    await engine.close()  # the alarm comes after all callers have been told
    assert len(told) == 1


async def test_a_reader_that_cannot_be_replaced_is_tried_again_with_the_next_read(
    open_engine: OpenEngine, path: Path
) -> None:
    engine = await open_engine(readers=1)
    cursors: list[apsw.Cursor] = []
    elsewhere = path.with_name("elsewhere.db")

    def work(connection: Connection) -> None:
        cursors.append(connection.execute("select * from note, (select 1 union select 2)"))
        path.rename(elsewhere)

    await engine.write(add("a"))
    with pytest.raises(RuntimeError, match="left a cursor open"):
        await engine.read(work)
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        await engine.read(count)
    await asyncio.to_thread(elsewhere.rename, path)
    assert await engine.read(count) == 1


async def test_a_check_point_that_fails_stops_the_store(
    open_engine: OpenEngine, disk: Disk
) -> None:
    told: list[StorePoisoned] = []
    engine = await open_engine(vfs=disk.name, on_poison=told.append, bounds=Bounds(step_pages=1))

    def work(connection: Connection) -> None:
        add("durable in the log")(connection)
        disk.break_next("sync", ".db", apsw.IOError)

    await engine.write(work)  # it is acknowledged: the log has it
    await engine.close()
    assert len(told) == 1
    assert "check-point" in str(told[0])


@pytest.mark.parametrize("error", [apsw.CorruptError, apsw.NotADBError])
async def test_a_damaged_page_stops_what_needs_it(
    engine: SqliteEngine, error: Callable[[], Exception]
) -> None:
    def work(connection: Connection) -> None:
        raise error()

    for ask in (engine.write, engine.read):
        with pytest.raises(StoreDamaged):
            await ask(work)
    await engine.write(add("a"))
    assert await engine.read(count) == 1


async def test_a_bug_in_the_writer_tells_everybody(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that has died without a word would leave its callers waiting."""
    monkeypatch.setattr(engine._writer, "_still_there", lambda: 1 / 0)
    with pytest.raises(StorePoisoned, match="ZeroDivisionError"):
        await engine.write(add("a"))
    with pytest.raises(StorePoisoned, match="ZeroDivisionError"):
        await engine.write(add("b"))
    await engine.close()  # until the thread has ended, its last words are still to come


async def test_a_disk_that_fails_at_the_last_look_of_an_opening_is_told_as_ours(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr("holdfast.store.sqlite.engine.engine.check_whole", fail)
    with pytest.raises(StoreError):
        await open_engine()
