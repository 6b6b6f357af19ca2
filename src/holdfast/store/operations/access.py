"""Keys of clients and of seals, and remembered approvals."""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import GrantId, KeyId, Tenant
from holdfast.store.base import ANY_GRANT, GrantFilter
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
    """Keep a key. One with this id that is there already stays as it is; whether it was not."""
    facts = yield from look(API_KEY, key_id=row.key_id)
    if facts.row is None:
        yield from write(insert(API_KEYS, row))
    return facts.row is None


def api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    """A key by its id, also one that is revoked or has expired. A plain read."""
    return (yield from look(API_KEY, key_id=key_id)).row


def api_keys(
    tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
) -> Operation[tuple[ApiKeyRow, ...]]:
    """Some keys, of one tenant or of all, the oldest first. Revoked ones stay: they answer for the past."""
    if tenant is None:
        return (yield from find(EVERY_KEY, above=after, limit=limit))
    return (yield from find(KEYS_OF, tenant=tenant, above=after, limit=limit))


def revoke_api_key(key_id: KeyId) -> Operation[ApiKeyRow | None]:
    """Take a key back, from now on and for ever. Again: the same row. None if there is none."""
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
    """Keep a key. One with this id that is there already stays as it is."""
    yield from write(insert(SEAL_KEYS, row, if_absent=True))


def seal_keys() -> Operation[tuple[SealKeyRow, ...]]:
    """All of them, the oldest first. A plain read."""
    return (yield from find(EVERY_SEAL_KEY))


def remove_seal_key(key_id: KeyId) -> Operation[None]:
    """Forget a key; again: nothing happens. What it has sealed cannot be opened any more."""
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
    """Remember an approval. One with this id that is there already stays as it is; whether it was not."""
    facts = yield from look(GRANT, tenant=row.tenant, grant_id=row.grant_id)
    if facts.row is None:
        yield from write(insert(GRANTS, row))
    return facts.row is None


def grants(
    tenant: Tenant, where: GrantFilter = ANY_GRANT, *, after: GrantId | None = None, limit: int
) -> Operation[tuple[GrantRow, ...]]:
    """Some approvals, the oldest first. A plain read. Those that were revoked stay, and answer for the past."""
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
    """Take an approval back, from now on and for ever. Again: the same row. None if there is none."""
    facts = yield from look(GRANT, tenant=tenant, grant_id=grant_id)
    row = facts.row
    if row is None or row.revoked_ms is not None:
        return row
    yield from write(
        change(GRANTS, row, revoked_ms=facts.now_ms),
        as_read=(AsRead(GRANTS, row, ("revoked_ms",)),),
    )
    return msgspec.structs.replace(row, revoked_ms=facts.now_ms)
