"""A server's settings, and its keys, say how its agents' commands run."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.ids import Tenant
from holdfast.server.confinement import require_for_tenants, sandbox_for
from holdfast.store.memory import MemoryStore
from holdfast.tools.sandbox.sandbox import Mode
from tests.server.test_auth import put_key


def test_what_a_server_lives_from_is_hidden(tmp_path: Path) -> None:
    flags = {"tls_cert": "cert.pem", "tls_key": "/keys/key.pem"}
    config = load_config({"store": f"sqlite:///{tmp_path}/a.db", **flags}, {}, ())
    sandbox = sandbox_for(config, cache=Path("/cache"))
    hidden, _ = sandbox.protected
    assert {f"{tmp_path}/a.db", "/keys/key.pem", "/cache"} <= set(hidden)
    assert sandbox.mode == "auto"


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
    sandbox = sandbox_for(load_config({"sandbox": mode, "store": "memory:"}, {}, ()))
    await require_for_tenants(sandbox, store)
    assert sandbox.mode == after
