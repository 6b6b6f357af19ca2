"""Copies of a whole store into another one, of any home: `holdfast db copy`.

Each session and each memory is copied whole or not at all, and one that the target has already stays. So the operator
repeats a copy that broke off, and it goes on where it stopped. Not copied: leases, signals, and the search index, which
is made anew. Damage inside an item is copied, and `verify` finds it in both stores; a row that cannot be read at all is
left out and named.
The source should be at rest: if a session goes on after it was copied, a second copy meets a different session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

from holdfast.core.codec import Value
from holdfast.errors import ImportConflict, StoreDamaged
from holdfast.ids import Tenant
from holdfast.store.outcomes import RestoreRefused
from holdfast.store.store import Store
from holdfast.store.transfer import exports

R = TypeVar("R")

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
    # API keys come first: a server that finds conversations but no keys would serve them to every client.
    async for api_keys in _pages(source.api_keys, lambda row: row.key_id):
        for api_key in api_keys:
            await target.put_api_key(api_key)
    for seal_key in await source.seal_keys():
        await target.put_seal_key(seal_key)
    done = fresh = memories = 0
    for tenant, ids in everyone.items():
        try:
            async for rows in _pages(partial(source.all_memories, tenant), lambda row: row):
                memories += await target.restore_memories(tenant, rows)
        except StoreDamaged as damage:
            yield NotCopied(tenant=tenant, what="memories, from one on", why=damage.why)
        try:
            async for grants in _pages(partial(source.grants, tenant), lambda row: row.grant_id):
                for grant in grants:
                    await target.put_grant(grant)
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


async def _pages(
    read: Callable[..., Awaitable[tuple[R, ...]]], place_of: Callable[[R], object]
) -> AsyncIterator[tuple[R, ...]]:
    """All rows of a list, page by page; `place_of` the last row of a page is where the next page begins."""
    after: object = None
    while rows := await read(after=after, limit=PAGE):
        yield rows
        after = place_of(rows[-1])
