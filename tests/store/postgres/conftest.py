"""A database of its own for each test, empty, with the clock that it has by itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from holdfast.ids import Minter
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.postgres import shared_database, wipe
from tests.store.builders import Player

Open = Callable[..., Awaitable[PostgresStore]]

LONG_MS = 3_600_000
"""Time passes here by itself, and these tests are not about leases: none of them ends, however slow the machine is."""


@pytest.fixture(scope="session")
def database() -> str:
    return shared_database()


@pytest.fixture
async def url(database: str) -> str:
    await wipe(database)
    return database


@pytest.fixture
async def open_store(url: str) -> AsyncIterator[Open]:
    """Opens stores on the test's database, each with connections of its own, as processes would."""
    async with AsyncExitStack() as opened:

        async def open_one(**options: str) -> PostgresStore:
            query = "&".join(f"{name}={value}" for name, value in options.items())
            store = await PostgresStore.open(parse_address(f"{url}?{query}"))
            opened.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def postgres(open_store: Open) -> PostgresStore:
    return await open_store()


@contextmanager
def impatient(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In here the store waits for half a second, and not for as long as the machine may take."""
    assert isinstance(store, PostgresStore)
    with monkeypatch.context() as changed:
        changed.setattr(store.engine, "timeout_s", 0.5)
        yield


def random_mint() -> Minter:
    return Minter(
        now_ms=ManualClock().now_ms,
        random_bits=lambda bits: int.from_bytes(os.urandom(16)) % (1 << bits),
    )


@pytest.fixture
async def ada(postgres: PostgresStore) -> Player:
    """A live node."""
    player = Player(postgres, random_mint())
    await player.renew(ttl_ms=LONG_MS)
    return player


@pytest.fixture
async def ben(open_store: Open) -> Player:
    """A live node of another process."""
    player = Player(await open_store(), random_mint())
    await player.renew(ttl_ms=LONG_MS)
    return player
