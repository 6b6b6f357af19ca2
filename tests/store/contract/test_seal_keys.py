"""The keys that seal what clients keep for us: all of them, in order, until they are forgotten."""

from __future__ import annotations

import msgspec

from holdfast.ids import KeyId, Minter
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import SealKeyRow
from holdfast.store.store import Store
from holdfast.store.transfer.copies import copy
from tests.store.builders import Player


def made(mint: Minter) -> SealKeyRow:
    return SealKeyRow(key_id=mint(KeyId), secret=bytes(range(64)))


async def test_keys_are_kept_in_order_until_they_are_forgotten(store: Store, mint: Minter) -> None:
    first, second = made(mint), made(mint)
    assert await store.seal_keys() == ()
    for row in (second, first, msgspec.structs.replace(first, secret=bytes(64))):
        await store.put_seal_key(row)
    assert await store.seal_keys() == (first, second)
    for _ in range(2):
        await store.remove_seal_key(first.key_id)
    assert await store.seal_keys() == (second,)
    assert "\\x" not in repr(second)


async def test_a_copy_of_a_store_opens_what_the_store_has_sealed(
    store: Store, mint: Minter, player: Player
) -> None:
    row = made(mint)
    await store.put_seal_key(row)
    await player.play("trip", "Hello")
    target = MemoryStore()
    async for _ in copy(store, target):
        pass
    assert await target.seal_keys() == (row,)
