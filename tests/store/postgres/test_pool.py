"""Connections are handed on, whoever stops waiting for one."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import asyncpg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.pool import IDLE_KEPT, Pool, PooledConnection

LATER = float("inf")


class FakeConnection:
    """A connection that is as good as new until it is thrown away."""

    def __init__(self) -> None:
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return False

    def terminate(self) -> None:
        self.closed = True

    async def close(self, *, timeout: float) -> None:
        self.closed = True


async def connect() -> PooledConnection:
    await asyncio.sleep(0)
    return PooledConnection(
        cast("asyncpg.Connection[asyncpg.Record]", FakeConnection()), named=True
    )


async def settle() -> None:
    """Let everything happen that can happen without anybody doing something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_leave_to_make_a_connection_is_passed_on_by_a_waiter_that_is_cancelled() -> None:
    """Else the one behind it waits until its time is up, while a connection could be made."""
    pool = Pool(connect, size=1)
    link = await pool.take(until=LATER)
    first = asyncio.create_task(pool.take(until=LATER))
    second = asyncio.create_task(pool.take(until=LATER))
    await settle()
    pool.drop(link)  # the first waiter is told that it may make one
    first.cancel()
    await settle()
    assert second.done(), "the second was never told"


async def test_leave_to_make_a_connection_is_passed_on_by_a_waiter_that_is_out_of_time() -> None:
    loop = asyncio.get_running_loop()
    pool = Pool(connect, size=1)
    link = await pool.take(until=LATER)
    first = asyncio.create_task(pool.take(until=loop.time()))
    second = asyncio.create_task(pool.take(until=LATER))
    loop.call_soon(pool.drop, link)  # just before the first one's time is up
    with pytest.raises(StoreUnavailable):
        await first
    await settle()
    assert second.done(), "the second was never told"


async def test_connections_that_load_has_made_are_closed_once_they_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(connect, size=10)
    links = [await pool.take(until=LATER) for _ in range(10)]
    for each in links:
        pool.give(each)
    await settle()
    assert all(each.usable for each in links), "load may come back"
    monkeypatch.setattr("holdfast.store.postgres.pool.IDLE_S", 0.0)
    for _ in range(10):  # as a server at rest asks one question after the other
        pool.give(await pool.take(until=LATER))
    await settle()
    assert sum(each.usable for each in links) == IDLE_KEPT
    assert pool.dropped == 0, "nothing that was written on them is in doubt"
    more = [await pool.take(until=LATER) for _ in range(10)]
    assert len({id(each) for each in more}) == 10


async def test_no_caller_waits_while_a_connection_can_be_had() -> None:
    for seed in range(200):
        await _nobody_waits(random.Random(seed))


async def _nobody_waits(chance: random.Random) -> None:
    """Whatever the order in which callers come, give back, throw away and are cancelled."""
    pool = Pool(connect, size=2)
    callers: list[asyncio.Task[PooledConnection]] = []
    for _ in range(60):
        held = [each for each in callers if each.done() and not each.cancelled()]
        match chance.randrange(5):
            case 0 | 1:
                callers.append(asyncio.create_task(pool.take(until=LATER)))
            case 2 if held:
                callers.remove(one := chance.choice(held))
                pool.give(one.result())
            case 3 if held:
                callers.remove(one := chance.choice(held))
                pool.drop(one.result())
            case 4 if callers:
                one = chance.choice(callers)
                if not one.done():
                    callers.remove(one)
                    one.cancel()
            case _:
                pass
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    await settle()
    held = [each for each in callers if each.done()]
    waiting = [each for each in callers if not each.done()]
    assert len(held) == 2 or not waiting, f"{len(held)} are held, and {len(waiting)} wait for one"
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
