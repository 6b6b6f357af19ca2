"""The tenant and the session that the arguments of a command name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.errors import InvalidValue, SessionGone, SessionMissing
from holdfast.ids import LOCAL, SessionId, SessionKey, Tenant
from holdfast.store.store import Store
from holdfast.store.store_url import open_existing


async def find_tenant(store: Store, named: str | None) -> Tenant:
    """The named tenant, or else the store's only one. Raises InvalidValue if there are several."""
    if named is not None:
        return Tenant(named)
    found = await store.tenants()
    if len(found) > 1:
        raise InvalidValue(
            f"this store has several tenants ({', '.join(found)}); --tenant says which one"
        )
    return found[0] if found else LOCAL


async def find_session(store: Store, tenant: Tenant, name: str) -> SessionId:
    """A live session by its id or its key. Raises SessionMissing and SessionGone."""
    if name.startswith(SessionId.prefix):
        wanted = SessionId(name)
    else:
        found = await store.resolve(tenant, SessionKey(name))
        if found is None:
            raise SessionMissing("session key", name)
        wanted = found.session_id
    row = await store.session(tenant, wanted)
    if row is None:
        raise SessionMissing("session", name)
    if row.state == "deleted":
        raise SessionGone(name, why="deleted")
    return wanted


@asynccontextmanager
async def existing_store(url: str) -> AsyncIterator[Store]:
    """The store at this URL, open within the `with` block. Raises StoreError if there is none."""
    store = await open_existing(url)
    try:
        yield store
    finally:
        await store.close()
