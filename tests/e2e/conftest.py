"""A world for each test, with its servers started: one on a file, or two replicas on one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.world import World
from tests.e2e.world import world as new_world
from tests.postgres import shared_database, wipe

WORLDS = pytest.mark.parametrize(
    "world", ["one", pytest.param("replicas", marks=pytest.mark.slow)], indirect=True
)
"""For tests that hold for one server on a file and for two replicas on a database alike."""

REPLICAS = pytest.mark.parametrize("world", ["replicas"], indirect=True)


@cache
def database() -> str:
    """One for all worlds of this process."""
    return shared_database()


@pytest.fixture
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    shared = None
    if getattr(request, "param", "one") == "replicas":
        shared = await asyncio.to_thread(database)
        await wipe(shared)
    async with new_world(tmp_path, database=shared) as found:
        await found.start()
        yield found
