"""Processes that are stopped, and come back later than anybody waited; and owners that leave a child behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.ids import SessionId, SessionKey
from holdfast.store.outcomes import HolderAlive, Taken
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine.engine import SqliteEngine
from tests.crash.audit import audit
from tests.crash.kills import AT_ONCE_S
from tests.crash.turn_server import ACME, Plan, Server, plans_in
from tests.crash.worker import new_minter
from tests.crash.zygote import Child, Zygote

LEASE_MS = 15_000


class Clock:
    """The wall's, and then some: how a lease passes without anybody waiting for it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def other(path: Path, clock: Clock) -> AsyncIterator[Server]:
    """Another node on the same file: this process."""
    engine = partial(SqliteEngine.open, timeout_s=60)
    store = await SqliteStore.open(path, now_ms=clock.now_ms, engine=engine)
    server = Server(store, new_minter(9))
    await server.enrol()
    yield server
    await store.close()


@pytest.fixture
def start(zygote: Zygote, path: Path) -> partial[Child]:
    return partial(_started, zygote, path)


def _started(zygote: Zygote, path: Path, command: str) -> Child:
    return zygote.start(command, path)


async def pass_lease(server: Server, clock: Clock) -> None:
    for _ in range(3):
        clock.ahead_ms += LEASE_MS // 2
        await server.enrol()


async def session_of(server: Server, key: str) -> SessionId:
    row = await server.store.resolve(ACME, SessionKey(key))
    assert row is not None
    return row.session_id


async def test_a_process_stopped_inside_a_transaction_costs_time_and_nothing_else(
    start: partial[Child], other: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start("stop_inside")
    assert await asyncio.to_thread(child.read_line) == "inside"
    await asyncio.to_thread(child.wait_stopped)
    clock.ahead_ms += 2 * LEASE_MS
    session_id = await session_of(other, "trip")
    assert isinstance(other.store, SqliteStore)
    # Nobody can write, so nobody can take over what the stopped one is about to commit.
    with monkeypatch.context() as impatient:
        impatient.setattr(other.store.engine, "_timeout_s", 0.2)
        with pytest.raises(StoreUnavailable):
            await other.enrol()
        with pytest.raises(StoreUnavailable):
            await other.recover(session_id)
    assert await plans_in(other.store, "trip") == []

    child.send(signal.SIGCONT)
    assert await asyncio.to_thread(child.read_line) == "committed 1"
    clock.ahead_ms = 0
    await other.enrol()
    await other.ask("trip", Plan(name="next"))
    assert await plans_in(other.store, "trip") == ["stopped", "next"]
    assert await audit(other.store) == []
    child.end()


async def test_a_process_that_slept_through_its_lease_cannot_write_any_more(
    start: partial[Child], other: Server, clock: Clock
) -> None:
    child = start("stop_outside")
    assert await asyncio.to_thread(child.read_line) == "outside"
    await asyncio.to_thread(child.wait_stopped)
    session_id = await session_of(other, "trip")
    assert isinstance(await other.recover(session_id), HolderAlive)

    await pass_lease(other, clock)
    assert isinstance(await other.recover(session_id), Taken)
    await other.ask("trip", Plan(name="meanwhile"))
    child.send(signal.SIGCONT)
    assert await asyncio.to_thread(child.read_line) == "superseded"
    assert await plans_in(other.store, "trip") == ["meanwhile"]
    assert await audit(other.store) == []
    child.end()


async def test_an_owner_that_is_killed_is_dead_though_its_forked_child_lives(
    start: partial[Child], other: Server
) -> None:
    owner = start("fork")
    forked = int(await asyncio.to_thread(owner.read_line))
    try:
        session_id = await session_of(other, "trip")
        assert isinstance(await other.recover(session_id), HolderAlive)
        owner.kill()
        assert await asyncio.to_thread(owner.read_line) == ""
        began = time.monotonic()
        assert isinstance(await other.recover(session_id), Taken)
        assert (await other.ask("trip", Plan(name="next"))).version == 1
        assert time.monotonic() - began < AT_ONCE_S
        os.kill(forked, 0)  # it lives
    finally:
        os.kill(forked, signal.SIGKILL)
        owner.end()
