"""Write the store of a version that is released, to be kept: `python -m tests.store.released.write VERSION`.

It has one of everything that a later version must still read: turns that were committed, broke off and were discarded,
a call that waits, a fork, notes, bytes, a key with its answer, and an API key.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
from pathlib import Path

import msgspec

from holdfast.core.items import Permissions
from holdfast.ids import Tenant
from holdfast.store.store_url import open_store
from holdfast.testing import ScriptedModel, fails, says
from tests.server.access.test_authentication import put_key
from tests.server.api.test_approvals import careful
from tests.server.api.test_session_outcomes import PICTURE
from tests.server.stubs import HeldTool, serving

HERE = Path(__file__).parent


async def write(path: Path) -> None:
    """Make a store in this file, by way of a server."""
    act, pay = HeldTool("act", held=False), HeldTool("pay", held=False)
    breaks = (says(calls=[("act", "{}")]), fails(status=500))
    asks = says("May I?", calls=[("pay", '{"kr": 5}')])
    model = ScriptedModel("Hello.", "A cat.", "Once.", fails(status=500), *breaks, asks)
    store = await open_store(f"sqlite:///{path}")
    await put_key(store, Tenant("local"), "admin", nth=1)
    agent = careful(model, act, pay)
    agent.permissions = Permissions(allow=("act",), ask=("pay",))
    async with serving(agent, store=store) as server:
        await server.chat("Hi", to="plain")
        url = f"data:image/png;base64,{PICTURE}"
        picture = {"type": "image_url", "image_url": {"url": url}}
        await server.chat({"role": "user", "content": [picture]}, to="picture")
        await server.chat("Once", to="keyed", headers={"idempotency-key": "once"})
        await server.chat("Fail", to="keyed")
        await server.chat("Act", to="broken")
        await server.chat("Pay", to="asks")
        await server.request("POST", "/api/sessions/plain/fork")
        note = msgspec.json.encode({"title": "A plain one", "attributes": {"colour": "red"}})
        await server.request("PATCH", "/api/sessions/plain", data=note)
    await store.close()


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "holdfast.db"
        asyncio.run(write(path))
        kept = HERE / f"{version}.db.gz"
        kept.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        sys.stderr.write(f"{kept}: {kept.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
