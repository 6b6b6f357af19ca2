"""The store of every released version opens, verifies, is read and goes on, for ever."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from holdfast.store.store_url import open_store
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from holdfast.testing import ScriptedModel
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, serving

STORES = sorted(Path(__file__).parent.glob("*.db.gz"))


def test_the_first_version_is_there() -> None:
    assert "0.1.0.db.gz" in [each.name for each in STORES]


@pytest.fixture(params=STORES, ids=lambda path: path.name.removesuffix(".db.gz"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a kept store."""
    copy = tmp_path / "holdfast.db"
    copy.write_bytes(gzip.decompress(request.param.read_bytes()))
    return copy


async def test_a_released_store_opens_and_goes_on(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    try:
        assert [each async for each in verify(store) if isinstance(each, Finding)] == []
        act, pay = HeldTool("act", held=False), HeldTool("pay", held=False)
        async with serving(careful(ScriptedModel("Again."), act, pay), store=store) as server:
            listed = (await server.get("/api/sessions")).json["sessions"]
            assert {each["title"] for each in listed} >= {"A plain one", "Once", "Act", "Pay"}
            (picture,) = [each for each in await server.items("picture") if each["type"] == "user"]
            digest = picture["content"][0]["source"]["digest"]
            assert (await server.get(f"/api/sessions/picture/blobs/{digest}")).status == 200
            again = await server.chat("Once", to="keyed", headers={"idempotency-key": "once"})
            assert again.text == "Once.", "a key of before is answered as before"
            assert (await server.chat("And now?", to="plain")).text == "Again."
            chain = (await server.get("/api/sessions/plain/chain")).json
            assert (chain["version"], chain["problems"]) == (2, [])
        assert [each async for each in verify(store) if isinstance(each, Finding)] == []
    finally:
        await store.close()
