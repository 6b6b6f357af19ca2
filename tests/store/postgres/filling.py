"""Bringing everything that a database holds into the search index."""

from __future__ import annotations

from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore


async def fill_index(url: str) -> None:
    store = await PostgresStore.open(parse_address(url))
    while (await store.index(bytes_max=4_000_000)).more:
        pass
    await store.close()
