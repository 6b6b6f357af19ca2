"""Confinement of commands: a server with keys of several tenants runs no command outside the sandbox."""

from __future__ import annotations

from holdfast.store.store import Store
from holdfast.tools.sandbox.sandbox import Sandbox

_PAGE = 100


async def require_for_tenants(sandbox: Sandbox, store: Store) -> None:
    """Make the sandbox mandatory if there are keys of several tenants, unless the operator has said `off`."""
    if sandbox.mode != "auto":
        return
    keys = await store.api_keys(limit=_PAGE)
    tenants = {key.tenant for key in keys}
    while len(tenants) < 2 and len(keys) == _PAGE:
        keys = await store.api_keys(after=keys[-1].key_id, limit=_PAGE)
        tenants |= {key.tenant for key in keys}
    if len(tenants) > 1:
        sandbox.require()
