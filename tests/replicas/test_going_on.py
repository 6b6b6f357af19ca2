"""Servers and databases are replaced while people talk: nobody who retries notices, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.world import World
from tests.e2e.world import world as new_world
from tests.postgres import SAFE, Server, execute, shared_database
from tests.replicas.crowd import Crowd

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two servers on a database."""
    async with new_world(tmp_path, database=await asyncio.to_thread(shared_database)) as found:
        await found.start()
        yield found


async def test_replicas_are_restarted_one_after_the_other_and_no_client_notices(
    world: World,
) -> None:
    """The real SDK with the retries that it has by itself, streams among them, and clients with keys."""
    world.pace_s = 0.02
    async with Crowd.talking(world, keyed=4, sdk=4) as crowd:
        for at in (0, 1):
            await crowd.heard_more(2)
            await world.restart_one(at)
        await crowd.heard_more(2)
    await crowd.judge()


@pytest.fixture
def primary() -> Iterator[Server]:
    with Server.started({**SAFE, "max_wal_senders": "4", "wal_level": "replica"}) as found:
        yield found


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    with primary.followed() as found:
        yield found


@pytest.fixture
async def two_databases(
    primary: Server, standby: Server, tmp_path: Path
) -> AsyncIterator[tuple[World, Server, Server]]:
    """Two servers that know of a database and of its standby, and use the one that takes writes."""
    await execute(primary.url(), 'create database "talk"')
    place = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = primary.url("talk").replace(f"127.0.0.1:{primary.port}", place)
    database = f"{url}?target_session_attrs=read-write&sslmode=disable&timeout=10"
    async with new_world(tmp_path, database=database) as world:
        await world.start()
        yield world, primary, standby


async def test_a_standby_that_takes_over_has_everything_that_was_acknowledged(
    two_databases: tuple[World, Server, Server],
) -> None:
    """With synchronous replication: without it, a fail-over loses what the standby has not got."""
    world, primary, standby = two_databases
    async with Crowd.talking(world, keyed=6) as crowd:
        await crowd.heard_more(3)
        await asyncio.to_thread(primary.crash)
        await asyncio.to_thread(standby.promote)
        await crowd.heard_more(3)
    await crowd.judge()
