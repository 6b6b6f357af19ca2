"""The sandbox of a server: what its settings say of it, and which of its own files no command may reach."""

from __future__ import annotations

from pathlib import Path

from holdfast.config import Config
from holdfast.store.access import KeyStore
from holdfast.store.open import InFile, parse_url
from holdfast.tools.sandbox.sandbox import Sandbox

_PAGE = 100


def sandbox_for(config: Config, *, cache: Path | None = None) -> Sandbox:
    """The sandbox of a server with these settings, that keeps copies of agent files in `cache`."""
    sandbox = Sandbox(config.sandbox)
    match parse_url(config.store):
        case InFile(path=path):
            sandbox.hide(path)
        case _:
            pass
    sandbox.hide(*(each for each in (*(config.tls or ()), cache) if each))
    return sandbox


async def require_for_tenants(sandbox: Sandbox, store: KeyStore) -> None:
    """Run nothing unconfined if there are keys of several tenants, unless the operator has said `off`."""
    if sandbox.mode != "auto":
        return
    keys = await store.api_keys(limit=_PAGE)
    tenants = {key.tenant for key in keys}
    while len(tenants) < 2 and len(keys) == _PAGE:
        keys = await store.api_keys(after=keys[-1].key_id, limit=_PAGE)
        tenants |= {key.tenant for key in keys}
    if len(tenants) > 1:
        sandbox.require()
