"""Remembered approvals: found by the agent that they are for, and gone for good once they are taken back."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.ids import CallId, GrantId, KeyId, Minter, Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import GrantFilter
from holdfast.store.rows import GrantRow
from holdfast.store.store import Store
from holdfast.store.transfer.copies import copy
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player

RIVAL = Tenant("rival")


def granted(
    mint: Minter,
    tenant: Tenant = ACME,
    *,
    source_key: str = "file:///shop.yaml",
    agent: str = "clerk",
    arguments: str | None = '{"kr":5}',
    made_by: KeyId | None = None,
) -> GrantRow:
    return GrantRow(
        tenant=tenant,
        grant_id=mint(GrantId),
        source_key=source_key,
        agent=agent,
        tool="pay\u0000",
        fingerprint="f" * 64,
        arguments=arguments,
        call=mint(CallId),
        made_by=made_by,
    )


async def test_an_approval_is_found_as_it_was_put(store: Store, mint: Minter) -> None:
    rows = [granted(mint), granted(mint, arguments=None, made_by=mint(KeyId))]
    for row in rows:
        assert await store.put_grant(row)
    assert await store.grants(ACME, limit=10) == tuple(rows)


async def test_one_that_is_there_stays_as_it_is(store: Store, mint: Minter) -> None:
    row = granted(mint)
    await store.put_grant(row)
    assert not await store.put_grant(row)
    assert not await store.put_grant(msgspec.structs.replace(row, arguments=None))
    assert await store.grants(ACME, limit=10) == (row,)


@pytest.mark.parametrize("name", ["clerk", "größe\u0000"])
async def test_they_are_found_by_source_and_agent_and_in_pages(
    store: Store, mint: Minter, name: str
) -> None:
    a, b, c = granted(mint, agent=name), granted(mint, agent="cook"), granted(mint, source_key=name)
    for row in (c, b, a):
        await store.put_grant(row)
    assert await store.grants(ACME, limit=2) == (a, b)
    assert await store.grants(ACME, after=b.grant_id, limit=2) == (c,)
    assert await store.grants(ACME, GrantFilter(agent=name, source_key=a.source_key), limit=9) == (
        a,
    )
    assert await store.grants(ACME, GrantFilter(source_key=name), limit=9) == (c,)
    assert await store.grants(ACME, GrantFilter(agent="nobody"), limit=9) == ()


async def test_one_that_is_taken_back_says_since_when_and_is_no_longer_live(
    store: Store, mint: Minter, clock: ManualClock
) -> None:
    row, other = granted(mint), granted(mint)
    await store.put_grant(row)
    await store.put_grant(other)
    now = clock.advance(1_000)
    revoked = await store.revoke_grant(ACME, row.grant_id)
    clock.advance(1_000)
    assert revoked == msgspec.structs.replace(row, revoked_ms=now)
    assert await store.revoke_grant(ACME, row.grant_id) == revoked
    assert await store.grants(ACME, limit=10) == (revoked, other)
    assert await store.grants(ACME, GrantFilter(live=True), limit=10) == (other,)


async def test_nobody_takes_back_what_is_not_theirs(store: Store, mint: Minter) -> None:
    row = granted(mint)
    await store.put_grant(row)
    assert await store.revoke_grant(RIVAL, row.grant_id) is None
    assert await store.revoke_grant(ACME, mint(GrantId)) is None
    assert await store.grants(RIVAL, limit=10) == ()
    assert await store.grants(ACME, GrantFilter(live=True), limit=10) == (row,)


async def test_ids_are_each_tenants_own(store: Store, mint: Minter) -> None:
    row = granted(mint)
    theirs = msgspec.structs.replace(row, tenant=RIVAL, tool="rm")
    await store.put_grant(row)
    assert await store.put_grant(theirs)
    await store.revoke_grant(RIVAL, row.grant_id)
    assert await store.grants(ACME, limit=10) == (row,)


async def test_a_copy_of_a_store_has_them_also_those_that_were_taken_back(
    store: Store, player: Player, mint: Minter
) -> None:
    """A copy that forgot what was taken back would allow it again."""
    await player.play("trip")
    rows = [granted(mint), granted(mint)]
    for row in rows:
        await store.put_grant(row)
    await store.revoke_grant(ACME, rows[0].grant_id)
    target = MemoryStore()
    async for _ in copy(store, target):
        pass
    assert await target.grants(ACME, limit=10) == await store.grants(ACME, limit=10)
    await target.close()
