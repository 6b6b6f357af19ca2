"""The memory home has no writer that rolls back: it does that itself."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreClosed
from holdfast.ids import Minter
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sql.tables import ITEMS
from holdfast.store.steps import Delete, Operation, write
from tests.store.builders import ACME, Player


class Broken(Exception):
    pass


async def test_an_operation_that_fails_leaves_nothing_behind(mint: Minter) -> None:
    store = MemoryStore()
    player = Player(store, mint)
    await player.renew()
    session_id = (await player.play("trip")).session_id
    before = await store.dump(ACME, session_id)

    def fail() -> Operation[None]:
        yield from write(Delete(ITEMS, (ACME, session_id)))
        raise Broken

    with pytest.raises(Broken):
        await store._write(fail)
    assert await store.dump(ACME, session_id) == before
    await player.play("trip", "And then?")


async def test_a_store_that_was_closed_says_so(mint: Minter) -> None:
    store = MemoryStore()
    player = Player(store, mint)
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await player.renew()
    with pytest.raises(StoreClosed):
        await store.stats()
