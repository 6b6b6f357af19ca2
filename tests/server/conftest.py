"""What every test of the server shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from tests.postgres import shared_database


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before the first word is a status, also on a machine that pauses for longer than a stream does."""
    monkeypatch.setattr(limits, "stream_patience_s", 60.0)


@cache
def database() -> str:
    return shared_database()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store on a file, and then one in a database, which other tests use as well."""
    found: Store
    if request.param == "sqlite":
        found = await SqliteStore.open(tmp_path / "store.db")
    else:
        url = await asyncio.to_thread(database)
        found = await PostgresStore.open(parse_address(url))
    yield found
    await found.close()
