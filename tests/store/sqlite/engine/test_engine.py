"""Whole functions in, durable answers out."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StoreClosed, StorePoisoned, StoreUnavailable
from holdfast.store.sqlite.connection import identity
from holdfast.store.sqlite.engine import engine as engine_module
from holdfast.store.sqlite.engine import writer
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.writer import Bounds
from tests.store.sqlite.conftest import OpenEngine
from tests.store.sqlite.disk import Disk
from tests.store.sqlite.opened import opened
from tests.store.sqlite.rows import add, count, make_table, texts

PATIENT = Bounds(batch_s=3600)
"""For tests that count batches: however slow the machine is, time does not end one."""


@asynccontextmanager
async def busy(
    engine: SqliteEngine, timeout_s: float | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """The writer is in the middle of a job until the block is left."""
    inside, go_on = threading.Event(), threading.Event()

    def work(connection: Connection) -> None:
        add("held")(connection)
        inside.set()
        go_on.wait()

    held = asyncio.create_task(engine.write(work))
    try:
        await asyncio.to_thread(inside.wait)
        yield held
    finally:
        go_on.set()
        await asyncio.gather(held, return_exceptions=True)


async def begin(engine: SqliteEngine, text: str, timeout_s: float = 10) -> asyncio.Task[int]:
    """A write that has been handed in."""
    task = asyncio.create_task(engine.write(add(text), timeout_s=timeout_s))
    await asyncio.sleep(0)
    return task


async def test_a_write_returns_the_functions_value_and_can_be_read(engine: SqliteEngine) -> None:
    assert await engine.write(add("a")) == 1
    assert await engine.read(texts) == ["a"]


async def test_what_a_function_raises_comes_back_and_leaves_nothing(engine: SqliteEngine) -> None:
    def work(connection: Connection) -> None:
        add("a")(connection)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await engine.write(work)
    with pytest.raises(apsw.ConstraintError):
        await engine.write(lambda c: [add("b")(c), add("b")(c)])
    assert await engine.read(texts) == []


async def test_what_was_written_is_there_after_opening_again(
    path: Path, engine: SqliteEngine
) -> None:
    await engine.write(add("a"))
    await engine.close()
    assert not path.with_name("store.db-wal").exists()
    async with opened(path) as again:
        assert await again.read(texts) == ["a"]


async def test_an_answer_comes_only_after_the_sync(open_engine: OpenEngine, disk: Disk) -> None:
    engine = await open_engine(vfs=disk.name)
    syncing, go_on = threading.Event(), threading.Event()

    def before_sync() -> None:
        syncing.set()
        go_on.wait()

    disk.events.clear()
    disk.before_sync = before_sync
    task = await begin(engine, "a")
    await asyncio.to_thread(syncing.wait)
    await asyncio.sleep(0)
    assert not task.done()
    assert await engine.read(texts) == []
    go_on.set()
    assert await task == 1
    assert disk.events[-1] == "sync"
    assert disk.events.count("sync") == 1


async def test_what_goes_along_costs_no_sync_of_its_own(
    open_engine: OpenEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "COMPANY_S", 3600.0)
    engine = await open_engine(vfs=disk.name, bounds=PATIENT)
    disk.events.clear()
    along = asyncio.create_task(engine.write_along(add("a")))
    await asyncio.sleep(0)
    assert await engine.write(add("b")) == 2, "what was asked for first comes first"
    assert await along == 1
    assert disk.events.count("sync") == 1


async def test_what_finds_no_company_goes_alone(engine: SqliteEngine) -> None:
    assert await engine.write_along(add("a")) == 1
    assert await engine.read(texts) == ["a"]


async def test_closing_writes_what_waits_for_company(
    path: Path, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "COMPANY_S", 3600.0)
    along = asyncio.create_task(engine.write_along(add("a")))
    await asyncio.sleep(0)
    await engine.close()
    assert await along == 1
    async with opened(path) as again:
        assert await again.read(texts) == ["a"]


async def test_what_queues_during_a_sync_shares_the_next_one(
    open_engine: OpenEngine, disk: Disk
) -> None:
    engine = await open_engine(vfs=disk.name, bounds=PATIENT)
    syncing, go_on = threading.Event(), threading.Event()

    def before_sync() -> None:
        syncing.set()
        go_on.wait()

    before = engine.stats
    disk.events.clear()
    disk.before_sync = before_sync
    tasks = [await begin(engine, "first")]
    await asyncio.to_thread(syncing.wait)
    tasks += [await begin(engine, f"{index}") for index in range(40)]
    assert engine.stats.queue_length == 40
    go_on.set()
    await asyncio.gather(*tasks)
    after = engine.stats
    assert after.batches - before.batches == 2
    assert disk.events.count("sync") == 2
    assert after.queue_length == 0


async def test_one_wake_up_tells_all_callers_of_a_batch(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await open_engine(bounds=PATIENT)
    loop = asyncio.get_running_loop()
    calls = 0
    call_soon_threadsafe = loop.call_soon_threadsafe

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return call_soon_threadsafe(*arguments, **options)  # type: ignore[arg-type]

    async with busy(engine) as held:
        tasks = [await begin(engine, f"{index}") for index in range(20)]
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await asyncio.gather(held, *tasks)
    assert calls == 1


async def test_a_write_that_is_not_begun_in_time_never_runs(engine: SqliteEngine) -> None:
    async with busy(engine):
        task = await begin(engine, "late", timeout_s=0.01)
        with pytest.raises(StoreUnavailable, match="nothing changed"):
            await task
    await engine.write(add("next"))
    assert await engine.read(texts) == ["held", "next"]


async def test_a_write_that_has_begun_is_waited_for(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is true, however long it takes: to report a failure would be a guess."""
    loop = asyncio.get_running_loop()
    time_s = loop.time
    engine = await open_engine(clock=lambda: loop.time())
    async with busy(engine) as held:
        late = await begin(engine, "late")
        monkeypatch.setattr(loop, "time", lambda: time_s() + 3600)
        with pytest.raises(StoreUnavailable):
            await late
        assert not held.done()
    assert held.exception() is None
    assert await engine.read(texts) == ["held"]


async def test_cancelling_takes_a_write_back_before_it_has_begun(engine: SqliteEngine) -> None:
    async with busy(engine):
        task = await begin(engine, "taken back")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.stats.queue_length == 0
    await engine.write(add("next"))
    assert await engine.read(texts) == ["held", "next"]


async def test_cancelling_later_changes_nothing(engine: SqliteEngine) -> None:
    async with busy(engine) as held:
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
    await engine.write(add("next"))
    assert await engine.read(texts) == ["held", "next"]


async def test_a_read_sees_one_state_throughout(engine: SqliteEngine) -> None:
    looked, go_on = threading.Event(), threading.Event()

    def work(connection: Connection) -> tuple[int, int]:
        first = count(connection)
        looked.set()
        go_on.wait()
        return first, count(connection)

    task = asyncio.create_task(engine.read(work))
    await asyncio.to_thread(looked.wait)
    await engine.write(add("meanwhile"))
    go_on.set()
    assert await task == (0, 0)
    assert await engine.read(count) == 1


async def test_a_read_cannot_write(engine: SqliteEngine) -> None:
    with pytest.raises(StoreUnavailable, match="ReadOnlyError"):
        await engine.read(add("sly"))


async def test_a_read_that_leaves_a_cursor_open_is_told_so(engine: SqliteEngine) -> None:
    """Its snapshot would keep the log from ever starting over."""
    await engine.write(add("a"))
    await engine.write(add("b"))
    cursors: list[apsw.Cursor] = []

    def work(connection: Connection) -> None:
        cursor = connection.execute("select * from note")
        next(cursor)
        cursors.append(cursor)

    with pytest.raises(RuntimeError, match="left a cursor open"):
        await engine.read(work)
    for _ in range(4):
        assert await engine.read(count) == 2


async def test_reads_wait_for_a_reader_only_as_long_as_they_may(open_engine: OpenEngine) -> None:
    engine = await open_engine(readers=1)
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        inside.set()
        go_on.wait()

    task = asyncio.create_task(engine.read(slow))
    await asyncio.to_thread(inside.wait)
    with pytest.raises(StoreUnavailable):
        await engine.read(count, timeout_s=0.01)
    go_on.set()
    await task


async def test_two_loops_can_share_an_engine(engine: SqliteEngine) -> None:
    def elsewhere() -> int:
        return asyncio.run(engine.write(add("elsewhere")))

    async with busy(engine):
        other = asyncio.create_task(asyncio.to_thread(elsewhere))
        here = await begin(engine, "here")
    await asyncio.gather(other, here)
    assert sorted(await engine.read(texts)) == ["elsewhere", "held", "here"]


async def test_a_loop_that_is_gone_is_not_told(engine: SqliteEngine) -> None:
    """Its write had begun; it is durable, and the writer goes on."""
    inside, go_on = threading.Event(), threading.Event()

    def work(connection: Connection) -> None:
        add("orphan")(connection)
        inside.set()
        go_on.wait()

    async def give_up() -> None:
        task = asyncio.create_task(engine.write(work))
        await asyncio.to_thread(inside.wait)
        task.cancel()

    await asyncio.to_thread(asyncio.run, give_up())
    go_on.set()
    await engine.write(add("next"))
    assert await engine.read(texts) == ["orphan", "next"]


async def test_a_strangers_lock_is_waited_for(open_engine: OpenEngine, path: Path) -> None:
    engine = await open_engine()
    stranger = Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    task = await begin(engine, "patient")
    await engine.read(count)
    stranger.execute("COMMIT")
    assert await task == 1
    stranger.close()


async def test_a_strangers_lock_is_not_waited_for_without_end(
    open_engine: OpenEngine, path: Path
) -> None:
    engine = await open_engine(bounds=Bounds(busy_s=0))
    stranger = Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="BusyError"):
        await engine.write(add("a"))
    stranger.execute("ROLLBACK")
    stranger.close()
    assert await engine.write(add("b")) == 1
    assert await engine.read(texts) == ["b"]


@pytest.mark.parametrize("loss", ["moved", "deleted", "replaced", "mounted over"])
async def test_a_file_that_was_moved_away_is_no_place_for_success(
    open_engine: OpenEngine, path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """SQLite would go on writing to a file that no process will ever open again."""
    engine = await open_engine()
    backup = path.with_name("backup.db")
    device, inode = identity(path) or (0, 0)
    lose: dict[str, Callable[[], object]] = {
        "moved": lambda: path.rename(backup),
        "deleted": path.unlink,
        "replaced": lambda: shutil.copy(path, backup) and backup.rename(path),
        "mounted over": lambda: monkeypatch.setattr(
            writer, "identity", lambda _: (device + 1, inode)
        ),
    }
    await asyncio.to_thread(lose[loss])
    with pytest.raises(StorePoisoned, match=r"moved or deleted|replaced by another file"):
        await engine.write(add("a"))


async def test_closing_finishes_what_has_queued_and_refuses_the_rest(engine: SqliteEngine) -> None:
    async with busy(engine):
        task = await begin(engine, "queued")
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreClosed):
            await engine.write(add("too late"))
        with pytest.raises(StoreClosed):
            await engine.read(count)
    await closing
    assert await task == 2
    await engine.close()
    with pytest.raises(StoreClosed):
        await engine.write(add("too late"))


async def test_two_engines_on_one_file_take_turns(open_engine: OpenEngine) -> None:
    one, two = await open_engine(), await open_engine()
    await asyncio.gather(
        *(
            engine.write(add(f"{name} {index}"))
            for index in range(50)
            for name, engine in (("one", one), ("two", two))
        )
    )
    await one.close()
    await two.write(add("still here"))
    assert await two.read(count) == 101


@pytest.fixture
async def inline(open_engine: OpenEngine) -> SqliteEngine:
    return await open_engine(inline=True, bounds=PATIENT)


async def test_an_inline_engine_needs_no_thread(path: Path) -> None:
    before = threading.active_count()
    async with opened(path, inline=True) as engine:
        await engine.write(make_table)
        assert await engine.read(count) == 0
        assert threading.active_count() == before


async def test_an_inline_engine_groups_what_one_pass_of_the_loop_hands_in(
    inline: SqliteEngine,
) -> None:
    before = inline.stats.batches
    results = await asyncio.gather(
        inline.write(add("a")),
        inline.write(add("b")),
        inline.write(add("b")),
        return_exceptions=True,
    )
    assert list(results[:2]) == [1, 2]
    assert isinstance(results[2], apsw.ConstraintError)
    assert inline.stats.batches - before == 1
    assert await inline.read(texts) == ["a", "b"]


def test_an_inline_engine_outlives_a_loop_that_was_stopped(path: Path) -> None:
    """Else what that loop did not come to would keep every later job from being run."""
    engine = SqliteEngine.open(path, inline=True)

    async def ask_and_leave() -> None:
        asking = engine.read(lambda _: None)
        asking.send(None)
        asking.close()

    async def ask() -> None:
        await asyncio.wait_for(engine.read(lambda _: None), 5)
        await engine.close()

    stopped = asyncio.new_event_loop()
    leaving = stopped.create_task(ask_and_leave())
    leaving.add_done_callback(lambda _: stopped.stop())
    stopped.call_soon(stopped.stop)
    stopped.run_forever()
    stopped.close()
    asyncio.run(ask())


async def test_an_inline_write_is_a_point_where_others_may_go_first(inline: SqliteEngine) -> None:
    order: list[str] = []

    async def writes() -> None:
        await inline.write(lambda _: order.append("written"))

    async def passes() -> None:
        order.append("passed")

    await asyncio.gather(writes(), passes())
    assert order == ["passed", "written"]
