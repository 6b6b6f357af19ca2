"""Searches take turns, and end with their clients."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from holdfast import limits
from holdfast.ids import Tenant
from holdfast.server.api.search_queue import SearchQueue
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Query, Results
from holdfast.testing import ScriptedModel
from holdfast.wire.problems import Refused
from tests.server.stubs import agent, serving, until

ACME, RIVAL = Tenant("acme"), Tenant("rival")


async def test_a_tenant_that_searches_all_the_time_makes_another_wait_for_one_page() -> None:
    queue, order = SearchQueue(), []

    async def search(tenant: Tenant, name: str) -> None:
        async with queue.turn(tenant):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for n in range(5):
            tasks.create_task(search(ACME, f"a{n}"))
        for n in range(2):
            tasks.create_task(search(RIVAL, f"b{n}"))
    assert order == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]


async def test_only_so_many_searches_of_a_tenant_wait() -> None:
    queue = SearchQueue()
    async with queue.turn(ACME), AsyncExitStack() as others:
        waiting = [
            asyncio.create_task(others.enter_async_context(queue.turn(ACME)))
            for _ in range(limits.searches_waiting_max)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="wait"):
            async with queue.turn(ACME):
                pass
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(5):
            again = asyncio.create_task(others.enter_async_context(queue.turn(RIVAL)))
            await asyncio.sleep(0)
            assert not again.done(), "one search runs at a time"
            again.cancel()


async def test_a_search_ends_with_its_client() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class Searched(MemoryStore):
        async def search(self, tenant: Tenant, query: Query, **_: object) -> Results:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

    async with serving(agent(ScriptedModel()), store=Searched()) as server:
        asking = asyncio.create_task(server.get("/api/sessions?q=oslo"))
        await begun.wait()
        asking.cancel()
        async with asyncio.timeout(10):
            await ended.wait()
            await until(lambda: True)
