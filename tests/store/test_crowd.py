"""Very many sessions that were made quickly are as sound as those that were played."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from tests.crash.audit import audit
from tests.postgres import shared_database
from tests.store.crowd import TENANT, crowd, fill_postgres, fill_sqlite, key_of, own_word


@pytest.fixture(scope="module")
def database() -> str:
    return shared_database()


async def is_sound(store: Store) -> None:
    assert await audit(store) == []
    stats = await store.stats()
    assert (stats.sessions, stats.turns_committed, stats.items) == (50, 300, 600)
    while (await store.index()).more:
        pass
    (match,) = (await store.search(TENANT, parse_query(own_word(7)))).matches
    assert match.info.keys == (key_of(7),)
    assert await audit(store) == []


async def test_a_crowd_in_postgresql_is_sound(database: str) -> None:
    await fill_postgres(database, crowd(sessions=50, turns=300))
    store = await PostgresStore.open(parse_address(database))
    await is_sound(store)
    await store.close()


async def test_a_crowd_in_sqlite_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "crowd.db"
    fill_sqlite(path, crowd(sessions=50, turns=300))
    store = await SqliteStore.open(path)
    await is_sound(store)
    await store.close()
