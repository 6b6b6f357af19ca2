"""Keys of clients and of seals, and remembered approvals."""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import GrantId, KeyId, Tenant
from holdfast.store.base import GrantFilter
from holdfast.store.rows import ApiKeyRow, GrantRow, SealKeyRow
from holdfast.store.steps import (
    AsRead,
    Delete,
    Finder,
    Look,
    One,
    Operation,
    change,
    find,
    insert,
    look,
    write,
)
from holdfast.store.tables import API_KEYS, GRANTS, SEAL_KEYS


class ApiKeyFacts(Value):
    """An API key."""

    now_ms: int
    row: ApiKeyRow | None


API_KEY = Look(ApiKeyFacts, row=One(API_KEYS, key_id=":key_id"))
EVERY_KEY = Finder(API_KEYS, order=("key_id",), over="key_id")
KEYS_OF = Finder(API_KEYS, tenant=":tenant", order=("key_id",), over="key_id")
EVERY_SEAL_KEY = Finder(SEAL_KEYS, order=("key_id",))


def put_api_key(row: ApiKeyRow) -> Operation[bool]:
    """Keep a key; whether it was not there."""
    facts = yield from look(API_KEY, key_id=row.key_id)
    if facts.row is None:
        yield from write(insert(API_KEYS, row))
    return facts.row is None


def api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    return (yield from look(API_KEY, key_id=key_id)).row


def api_keys(
    tenant: Tenant | None, *, after: KeyId | None, limit: int
) -> Operation[tuple[ApiKeyRow, ...]]:
    if tenant is None:
        return (yield from find(EVERY_KEY, above=after, limit=limit))
    return (yield from find(KEYS_OF, tenant=tenant, above=after, limit=limit))


def revoke_api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    facts = yield from look(API_KEY, key_id=key_id)
    row = facts.row
    if row is None or row.revoked_ms is not None:
        return row
    yield from write(
        change(API_KEYS, row, revoked_ms=facts.now_ms),
        as_read=(AsRead(API_KEYS, row, ("revoked_ms",)),),
    )
    return msgspec.structs.replace(row, revoked_ms=facts.now_ms)


def put_seal_key(row: SealKeyRow) -> Operation[None]:
    yield from write(insert(SEAL_KEYS, row, if_absent=True))


def seal_keys() -> Operation[tuple[SealKeyRow, ...]]:
    return (yield from find(EVERY_SEAL_KEY))


def remove_seal_key(key_id: KeyId) -> Operation[None]:
    yield from write(Delete(SEAL_KEYS, (key_id,)))


# ── remembered approvals ─────────────────────────────────────────────────────────────────────


class GrantFacts(Value):
    """A remembered approval."""

    now_ms: int
    row: GrantRow | None


GRANT = Look(GrantFacts, row=One(GRANTS, tenant=":tenant", grant_id=":grant_id"))
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
    """Remember an approval; whether it was not there."""
    facts = yield from look(GRANT, tenant=row.tenant, grant_id=row.grant_id)
    if facts.row is None:
        yield from write(insert(GRANTS, row))
    return facts.row is None


def grants(
    tenant: Tenant, where: GrantFilter, *, after: GrantId | None, limit: int
) -> Operation[tuple[GrantRow, ...]]:
    """Some approvals, the oldest first."""
    return (
        yield from find(
            LIVE_GRANTS if where.live else GRANTS_OF,
            tenant=tenant,
            source_key=where.source_key,
            agent=where.agent,
            above=after,
            limit=limit,
        )
    )


def revoke_grant(tenant: Tenant, grant_id: GrantId) -> Operation[GrantRow | None]:
    facts = yield from look(GRANT, tenant=tenant, grant_id=grant_id)
    row = facts.row
    if row is None or row.revoked_ms is not None:
        return row
    yield from write(
        change(GRANTS, row, revoked_ms=facts.now_ms),
        as_read=(AsRead(GRANTS, row, ("revoked_ms",)),),
    )
    return msgspec.structs.replace(row, revoked_ms=facts.now_ms)
