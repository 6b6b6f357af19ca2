"""How many connections servers have to their PostgreSQL, as PostgreSQL counts them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast.store.postgres.address import POOL_SIZE
from holdfast.store.postgres.pool import IDLE_KEPT
from tests.e2e.conftest import REPLICAS
from tests.e2e.world import World

pytestmark = pytest.mark.slow

BESIDES_POOL = 2
"""Each server's heart has a connection, and the one that listens."""

OTHERS = """
    select count(*) from pg_stat_activity
     where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


@REPLICAS
async def test_a_server_has_few_connections_at_rest_and_makes_more_under_load(
    world: World,
) -> None:
    """PostgreSQL has a process for each: servers that wait for work shall not use up what it has."""
    at_rest, most = [(each + BESIDES_POOL) * world.replicas for each in (IDLE_KEPT, POOL_SIZE)]
    async with (
        asyncpg.create_pool(world.database, min_size=2, max_size=2) as ours,
        ours.acquire() as counting,
        ours.acquire() as holding,
    ):
        assert await counting.fetchval(OTHERS) - 1 <= at_rest
        async with holding.transaction():  # as if every statement took long
            await holding.execute("lock table holdfast.turn in access exclusive mode")
            asked = [
                asyncio.create_task(world.chat(f"trip-{number}", "Hello", at=number % 2))
                for number in range(most)
            ]
            async with asyncio.timeout(20):
                while await counting.fetchval(OTHERS) - 1 <= at_rest:
                    pass
        assert {each.status for each in await asyncio.gather(*asked)} == {200}
        assert await counting.fetchval(OTHERS) - 1 <= most
