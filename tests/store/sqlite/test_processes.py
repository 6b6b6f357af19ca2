"""Several real processes on one file: they take turns, and the dead hold nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.writer import Bounds
from holdfast.store.sqlite.locks import WriteTurn
from tests.store.sqlite.children import Child
from tests.store.sqlite.rows import add, count, texts

Start = Callable[..., Child]

AT_ONCE_S = 30
"""Generous: the machine may be busy. What it stands against is a wait without end."""

WORST_S = 10
"""For one turn among those that take some seconds together. Where they take longer, it may be half of that."""


@pytest.mark.parametrize(("processes", "callers"), [(4, 8), (8, 1)])
async def test_processes_take_turns_and_none_starves(
    start: Start, engine: SqliteEngine, processes: int, callers: int
) -> None:
    each = 150
    children = [start("write", f"p{index}", each, callers) for index in range(processes)]
    for child in children:
        assert await asyncio.to_thread(child.wait_line) == "ready"
    began = time.monotonic()
    for child in children:
        child.tell("go")
    worst = [float(await asyncio.to_thread(child.wait_line)) for child in children]
    assert max(worst) < max(WORST_S, (time.monotonic() - began) / 2)
    assert [await asyncio.to_thread(child.wait) for child in children] == [0] * processes
    assert await engine.read(count) == processes * each


async def test_processes_that_start_together_agree_on_a_new_file(start: Start, path: Path) -> None:
    children = [start("live", slot) for slot in range(6)]
    assert [await asyncio.to_thread(child.wait_line) for child in children] == ["True"] * 6


async def test_a_killed_writer_leaves_nothing_behind_and_nobody_waiting(
    start: Start, engine: SqliteEngine
) -> None:
    other = start("hold")
    assert await asyncio.to_thread(other.wait_line) == "inside"
    waiting = asyncio.create_task(engine.write(add("mine"), timeout_s=60))
    await engine.read(count)
    assert not waiting.done()

    other.kill()
    assert await asyncio.wait_for(waiting, AT_ONCE_S) == 1
    assert await engine.read(texts) == ["mine"]


async def test_a_stopped_writer_costs_time_and_nothing_else(
    start: Start, engine: SqliteEngine
) -> None:
    other = start("hold")
    assert await asyncio.to_thread(other.wait_line) == "inside"
    other.send(signal.SIGSTOP)
    await asyncio.to_thread(other.wait_stopped)
    with pytest.raises(StoreUnavailable, match="nothing changed"):
        await engine.write(add("too early"), timeout_s=0.05)
    assert await engine.read(texts) == []

    other.send(signal.SIGCONT)
    other.tell("go on")
    assert await engine.write(add("mine"), timeout_s=60) == 2
    assert await engine.read(texts) == ["half", "mine"]


async def test_closing_does_not_wait_for_a_stopped_process_for_ever(
    start: Start, path: Path, engine: SqliteEngine
) -> None:
    other = start("hold")
    assert await asyncio.to_thread(other.wait_line) == "inside"
    impatient = SqliteEngine.open(path, bounds=Bounds(close_s=0.01))
    await impatient.close()
    other.tell("go on")
    assert await asyncio.to_thread(other.wait_line) == "done"
    assert await engine.write(add("mine"), timeout_s=60) == 2


async def test_the_locks_of_a_killed_process_are_free_though_its_forked_child_lives(
    start: Start, engine: SqliteEngine
) -> None:
    owner = start("fork", 7)
    forked = int(await asyncio.to_thread(owner.wait_line))
    try:
        assert engine.liveness.is_held(7)
        waiting = asyncio.create_task(engine.write(add("mine"), timeout_s=60))
        await engine.read(count)
        assert not waiting.done()

        owner.kill()
        assert not engine.liveness.is_held(7)
        assert await asyncio.wait_for(waiting, AT_ONCE_S) == 1
        os.kill(forked, 0)  # it lives
    finally:
        os.kill(forked, signal.SIGKILL)


async def test_a_forked_child_can_use_nothing_and_harms_nothing(
    start: Start, engine: SqliteEngine, path: Path
) -> None:
    parent = start("exit_fork")
    said = [await asyncio.to_thread(parent.wait_line) for _ in range(7)]
    assert said == [
        "write: StoreClosed",
        "read: StoreClosed",
        "is_held: StoreClosed",
        "hold: StoreClosed",
        "close: nothing",
        "open: StoreUnusable",
        "child ended",  # and it has not touched a file through SQLite, not even to close it
    ]
    # The parent is still in the middle of its transaction, and holds both locks.
    turn = WriteTurn(path.with_name("store.db-writer"))
    with pytest.raises(StoreUnavailable):
        turn.wait(timeout_s=0)
    turn.close()
    stranger = Connection(str(path))
    with pytest.raises(apsw.BusyError):
        stranger.execute("BEGIN IMMEDIATE")
    stranger.close()

    parent.tell("go on")
    assert await asyncio.to_thread(parent.wait_line) == "parent done"
    assert await engine.read(texts) == ["by the parent"]


async def test_a_forked_child_that_forgets_the_engine_does_not_close_it(
    start: Start, engine: SqliteEngine
) -> None:
    """Python would finalise the connections, and SQLite would tidy up files that are in use."""
    parent = start("drop_fork")
    assert await asyncio.to_thread(parent.wait_line) == "child ended"
    assert await asyncio.to_thread(parent.wait_line) == "parent done"
    assert await engine.read(texts) == ["by the parent", "and again"]
