"""Copies of a whole store into another one, of any home: `holdfast db copy`.

Each session and each memory is copied whole or not at all, and one that the target has already stays. So the operator
repeats a copy that broke off, and it goes on where it stopped. Not copied: leases, signals, and the search index, which
is made anew. Damage inside an item is copied, and `verify` finds it in both stores; a row that cannot be read at all is
left out and named.
The source should be at rest: if a session goes on after it was copied, a second copy meets a different session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.core.codec import Value
from holdfast.errors import ImportConflict, StoreDamaged
from holdfast.ids import GrantId, KeyId, Tenant
from holdfast.store.outcomes import RestoreRefused
from holdfast.store.rows import MemoryRow
from holdfast.store.store import Store
from holdfast.store.transfer import exports

PAGE = 500
"""How many memories, keys or approvals are read at once."""


class CopyProgress(Value):
    """How far a copy has come, and how much was new to the target."""

    tenant: Tenant
    done: int
    of: int
    fresh: int
    memories: int


class NotCopied(Value):
    """A session, or a kind of rows of a tenant, that is not in the copy because it cannot be read."""

    tenant: str
    what: str
    why: str


async def copy(source: Store, target: Store) -> AsyncIterator[CopyProgress | NotCopied]:
    """Copy everything that lasts. Raises ImportConflict if the target has a different session under the same id."""
    everyone = {
        tenant: await exports.session_ids(source, tenant) for tenant in await source.tenants()
    }
    of = sum(map(len, everyone.values()))
    await _copy_api_keys(source, target)
    for row in await source.seal_keys():
        await target.put_seal_key(row)
    done = fresh = memories = 0
    for tenant, ids in everyone.items():
        try:
            memories += await _copy_memories(source, target, tenant)
        except StoreDamaged as damage:
            yield NotCopied(tenant=tenant, what="memories, from one on", why=damage.why)
        try:
            await _copy_grants(source, target, tenant)
        except StoreDamaged as damage:
            yield NotCopied(tenant=tenant, what="approvals, from one on", why=damage.why)
        async for dump in exports.dumps(source, tenant, ids, tombstones=True):
            if isinstance(dump, exports.LeftOut):
                yield NotCopied(tenant=tenant, what=dump.session_id, why=dump.why)
                continue
            outcome = await target.restore(tenant, dump)
            if isinstance(outcome, RestoreRefused):
                raise ImportConflict(dump.session.id, outcome.why)
            done, fresh = done + 1, fresh + outcome.fresh
            yield CopyProgress(
                tenant=tenant, done=done, of=max(done, of), fresh=fresh, memories=memories
            )


async def _copy_api_keys(source: Store, target: Store) -> None:
    """Copied first: a server that finds conversations but no keys would serve them to every client."""
    after: KeyId | None = None
    while rows := await source.api_keys(after=after, limit=PAGE):
        for row in rows:
            await target.put_api_key(row)
        after = rows[-1].key_id


async def _copy_memories(source: Store, target: Store, tenant: Tenant) -> int:
    fresh = 0
    after: MemoryRow | None = None
    while rows := await source.all_memories(tenant, after=after, limit=PAGE):
        fresh += await target.restore_memories(tenant, rows)
        after = rows[-1]
    return fresh


async def _copy_grants(source: Store, target: Store, tenant: Tenant) -> None:
    after: GrantId | None = None
    while rows := await source.grants(tenant, after=after, limit=PAGE):
        for row in rows:
            await target.put_grant(row)
        after = rows[-1].grant_id
