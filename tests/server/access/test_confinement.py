"""A server's keys say how its agents' commands run."""

from __future__ import annotations

import pytest

from holdfast.ids import Tenant
from holdfast.server.access.confinement import require_for_tenants
from holdfast.store.memory_store import MemoryStore
from holdfast.tools.sandbox.sandbox import Mode, Sandbox
from tests.server.access.test_authentication import put_key


@pytest.mark.parametrize(
    ("tenants", "mode", "after"),
    [
        ((), "auto", "auto"),
        (("acme", "acme"), "auto", "auto"),
        (("acme", "rival"), "auto", "required"),
        (("acme",) * 100 + ("rival",), "auto", "required"),
        (("acme", "rival"), "off", "off"),
    ],
)
async def test_keys_of_a_second_tenant_require_a_sandbox(
    tenants: tuple[str, ...], mode: Mode, after: Mode
) -> None:
    store = MemoryStore()
    for nth, tenant in enumerate(tenants, 1):
        await put_key(store, nth=nth, tenant=Tenant(tenant))
    sandbox = Sandbox(mode)
    await require_for_tenants(sandbox, store)
    assert sandbox.mode == after
