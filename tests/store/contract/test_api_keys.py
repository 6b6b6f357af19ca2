"""API keys: kept as hashes, never forgotten, and gone for good once they are taken back."""

from __future__ import annotations

import msgspec

from holdfast.ids import KeyId, Minter, Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import ApiKeyRow
from holdfast.store.store import Store
from holdfast.store.transfer.copies import copy
from holdfast.testing import ManualClock
from tests.store.builders import ACME

RIVAL = Tenant("rival")


def made(mint: Minter, tenant: Tenant = ACME, *, expires_ms: int | None = None) -> ApiKeyRow:
    return ApiKeyRow(
        key_id=mint(KeyId),
        tenant=tenant,
        name="the kitchen\u0000's",
        scopes=("chat", "read"),
        digest=bytes(range(32)),
        expires_ms=expires_ms,
    )


async def test_a_key_is_found_as_it_was_put(store: Store, mint: Minter) -> None:
    row = made(mint, expires_ms=5_000_000_000_000)
    assert await store.api_key(row.key_id) is None
    assert await store.put_api_key(row)
    assert await store.api_key(row.key_id) == row


async def test_a_key_that_is_there_stays_as_it_is(store: Store, mint: Minter) -> None:
    row = made(mint)
    await store.put_api_key(row)
    assert not await store.put_api_key(row)
    assert not await store.put_api_key(msgspec.structs.replace(row, tenant=RIVAL))
    assert await store.api_key(row.key_id) == row


async def test_keys_are_listed_in_the_order_in_which_they_were_made(
    store: Store, mint: Minter
) -> None:
    rows = [made(mint), made(mint, RIVAL), made(mint)]
    for row in reversed(rows):
        await store.put_api_key(row)
    assert await store.api_keys(limit=10) == tuple(rows)
    assert await store.api_keys(limit=2) == tuple(rows[:2])
    assert await store.api_keys(after=rows[0].key_id, limit=10) == tuple(rows[1:])
    assert await store.api_keys(ACME, limit=10) == (rows[0], rows[2])
    assert await store.api_keys(RIVAL, after=rows[1].key_id, limit=10) == ()


async def test_a_key_that_is_taken_back_says_since_when_and_stays(
    store: Store, mint: Minter, clock: ManualClock
) -> None:
    row, other = made(mint), made(mint)
    await store.put_api_key(row)
    await store.put_api_key(other)
    now = clock.advance(1_000)
    revoked = await store.revoke_api_key(row.key_id)
    clock.advance(1_000)
    assert revoked == msgspec.structs.replace(row, revoked_ms=now)
    assert await store.revoke_api_key(row.key_id) == revoked
    assert await store.api_keys(limit=10) == (revoked, other)


async def test_a_key_that_is_not_there_cannot_be_taken_back(store: Store, mint: Minter) -> None:
    assert await store.revoke_api_key(mint(KeyId)) is None
    assert await store.api_keys(limit=1) == ()


async def test_a_copy_of_a_store_has_its_keys_also_those_that_were_taken_back(
    store: Store, mint: Minter
) -> None:
    """A server over a copy without keys would let everybody in."""
    rows = [made(mint), made(mint, RIVAL)]
    for row in rows:
        await store.put_api_key(row)
    await store.revoke_api_key(rows[0].key_id)
    target = MemoryStore()
    for _ in range(2):
        assert [each async for each in copy(store, target)] == []
    assert await target.api_keys(limit=10) == await store.api_keys(limit=10)
