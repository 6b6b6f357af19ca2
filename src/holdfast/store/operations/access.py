"""API keys, seal keys and remembered approvals."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.ids import GrantId, KeyId, Tenant
from holdfast.store.outcomes import ANY_GRANT, GrantFilter
from holdfast.store.rows import ApiKeyRow, GrantRow, SealKeyRow
from holdfast.store.sql.tables import API_KEYS, GRANTS, SEAL_KEYS, Table
from holdfast.store.steps import (
    AsRead,
    Delete,
    Finder,
    Operation,
    change,
    find,
    get,
    insert,
    look_up,
    write,
)

A = TypeVar("A", ApiKeyRow, GrantRow)

EVERY_KEY = Finder(API_KEYS, order=("key_id",), over="key_id")
KEYS_OF = Finder(API_KEYS, tenant=":tenant", order=("key_id",), over="key_id")
EVERY_SEAL_KEY = Finder(SEAL_KEYS, order=("key_id",))


def put_api_key(row: ApiKeyRow) -> Operation[bool]:
    """Store a key; False, and nothing changes, if a key with this id exists already."""
    return _kept(API_KEYS, row)


def api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    """A key by its id, also a revoked or expired one. A plain read."""
    return get(API_KEYS, key_id)


def api_keys(
    tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
) -> Operation[tuple[ApiKeyRow, ...]]:
    """Some keys, of one tenant or of all, the oldest first. Revoked keys are kept as a record of the past."""
    if tenant is None:
        return find(EVERY_KEY, above=after, limit=limit)
    return find(KEYS_OF, tenant=tenant, above=after, limit=limit)


def revoke_api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    """Revoke a key for ever. Revoking it again returns the same row; None if there is no such key."""
    return _revoked(API_KEYS, key_id)


def put_seal_key(row: SealKeyRow) -> Operation[None]:
    """Store a key; nothing changes if a key with this id exists already."""
    yield from write(insert(SEAL_KEYS, row, if_absent=True))


def seal_keys() -> Operation[tuple[SealKeyRow, ...]]:
    """All seal keys, the oldest first. A plain read."""
    return find(EVERY_SEAL_KEY)


def remove_seal_key(key_id: KeyId) -> Operation[None]:
    """Remove a key; nothing happens if it is gone. Data that it has sealed cannot be opened any more."""
    yield from write(Delete(SEAL_KEYS, (key_id,)))


# ── remembered approvals ─────────────────────────────────────────────────────────────────────


_CHOICE = ("source_key", "agent")
GRANTS_OF = Finder(GRANTS, tenant=":tenant", choice=_CHOICE, order=("grant_id",), over="grant_id")
LIVE_GRANTS = Finder(
    GRANTS,
    tenant=":tenant",
    revoked_ms=None,
    choice=_CHOICE,
    order=("grant_id",),
    over="grant_id",
)


def put_grant(row: GrantRow) -> Operation[bool]:
    """Store an approval; False, and nothing changes, if an approval with this id exists already."""
    return _kept(GRANTS, row)


def grants(
    tenant: Tenant, where: GrantFilter = ANY_GRANT, *, after: GrantId | None = None, limit: int
) -> Operation[tuple[GrantRow, ...]]:
    """Some approvals, the oldest first. A plain read. Revoked approvals are kept as a record of the past."""
    return find(
        LIVE_GRANTS if where.live else GRANTS_OF,
        tenant=tenant,
        source_key=where.source_key,
        agent=where.agent,
        above=after,
        limit=limit,
    )


def revoke_grant(tenant: Tenant, grant_id: GrantId) -> Operation[GrantRow | None]:
    """Revoke an approval for ever. Revoking it again returns the same row; None if there is no such approval."""
    return _revoked(GRANTS, tenant, grant_id)


# ── both ─────────────────────────────────────────────────────────────────────────────────────


def _kept(table: Table[A], row: A) -> Operation[bool]:
    there = yield from get(table, *table.key_of(row))
    if there is None:
        yield from write(insert(table, row))
    return there is None


def _revoked(table: Table[A], *key: str) -> Operation[A | None]:
    found = yield from look_up(table, *key)
    row = found.row
    if row is None or row.revoked_ms is not None:
        return row
    yield from write(
        change(table, row, revoked_ms=found.now_ms),
        as_read=(AsRead(table, row, ("revoked_ms",)),),
    )
    return msgspec.structs.replace(row, revoked_ms=found.now_ms)
