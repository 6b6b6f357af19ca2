"""A world for each test, with its servers started: one on a file, two replicas on one database, or two workers."""

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


def worlds_and(name: str, first: object, *others: object) -> pytest.MarkDecorator:
    """The same with several values, all of them on one server, and on replicas the first: how requests are carried out
    there does not depend on how they differ."""
    cases: list[object] = [
        *(("one", value) for value in (first, *others)),
        pytest.param("replicas", first, marks=pytest.mark.slow),
        *(pytest.param("replicas", each, marks=pytest.mark.thorough) for each in others),
    ]
    return pytest.mark.parametrize(("world", name), cases, indirect=["world"])


REPLICAS = pytest.mark.parametrize("world", ["replicas"], indirect=True)

SEVERAL = pytest.mark.parametrize("world", ["replicas", "workers"], indirect=True)
"""For tests about several processes: two replicas on a database, or two workers on a file."""

WORKERS = pytest.mark.parametrize("world", ["workers"], indirect=True)


@cache
def database() -> str:
    """One for all worlds of this process."""
    return shared_database()


@pytest.fixture
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    shared, kind = None, getattr(request, "param", "one")
    if kind in ("replicas", "workers on a database"):
        shared = await asyncio.to_thread(database)
        await wipe(shared)
    workers = 2 if kind.startswith("workers") else 1
    async with new_world(tmp_path, database=shared, workers=workers) as found:
        await found.start()
        yield found
