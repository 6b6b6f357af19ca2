"""Clients that cannot send a header name their conversation by the base URL, or in the body."""

from __future__ import annotations

import logging
import secrets

import msgspec
import pytest

from holdfast.ids import KeyId, Minter, Tenant
from holdfast.store.api_keys import SECRET_BYTES, new_key
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import ApiKeyRow
from holdfast.testing import ScriptedModel
from tests.server.stubs import Answer, Serving, agent, chat_body, serving

CHAT = "/v1/chat/completions"


async def post(
    server: Serving, path: str, *, headers: dict[str, str] | None = None, **more: object
) -> Answer:
    return await server.request("POST", path, headers=headers, data=chat_body("Hi", **more))


async def test_a_base_url_names_the_conversation_on_every_endpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.events")
    async with serving(agent(ScriptedModel(otherwise=lambda _: "Yes."))) as server:
        first = await post(server, f"/c/kitchen%2Fsink{CHAT}")
        assert first.headers["x-conversation-id"] == "kitchen/sink"
        body = msgspec.json.encode({"model": "root", "input": "Hi"})
        again = await server.request("POST", "/c/kitchen%2Fsink/v1/responses", data=body)
        assert again.headers["x-conversation-id"] == "kitchen/sink"
        assert (await server.get("/c/kitchen%2Fsink/v1/models")).status == 200
        slash = await post(server, "/c/kitchen%2Fsink/v1//chat/completions")
        assert slash.headers["x-conversation-id"] == "kitchen/sink"
        assert b"kitchen" not in (await server.get("/metrics")).body
        assert (await post(server, f"/c/kitchen%2Fsink{CHAT}", n=2)).status == 400
    assert any("/v1/chat/completions" in str(each.__dict__) for each in caplog.records)
    assert not any("kitchen" in str(each.__dict__) for each in caplog.records)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/c/a/v1/chat/completions", {"X-Conversation-Id": "b"}, 400),
        ("/c/a/v1/chat/completions", {"X-Conversation-Id": "a"}, 200),
        ("/c/hf_secret/v1/chat/completions", {}, 400),
        ("/c/%20/v1/chat/completions", {}, 400),
        ("/c/conv_01m7fex2vh0000000000000004/v1/chat/completions", {}, 404),
        ("/c/a/api/sessions", {}, 404),
    ],
)
async def test_a_name_in_the_base_url_has_the_rules_of_one_in_a_header(
    path: str, headers: dict[str, str], status: int
) -> None:
    async with serving(agent(ScriptedModel(otherwise=lambda _: "Yes."))) as server:
        answer = await post(server, path, headers=headers)
        assert answer.status == status, answer.body


async def test_an_api_key_says_which_part_of_a_body_names_the_conversation() -> None:
    store, mint = MemoryStore(), Minter(now_ms=lambda: 0, random_bits=secrets.randbits)
    shown = new_key(mint(KeyId), secrets.token_bytes(SECRET_BYTES))
    row = ApiKeyRow(
        key_id=shown.key_id,
        tenant=Tenant("acme"),
        name="",
        scopes=("chat", "read"),
        digest=shown.digest,
        conversation_from="user",
    )
    await store.put_api_key(row)
    keyed = {"Authorization": f"Bearer {shown}"}
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model), store=store, auth="required") as server:
        named = await post(server, CHAT, headers=keyed, user="ada")
        unnamed = await post(server, CHAT, headers=keyed)
        other = await post(server, CHAT, headers={**keyed, "X-Conversation-Id": "mine"}, user="ada")
    assert named.headers["x-conversation-id"] == "user:ada"
    assert "x-conversation-id" not in unnamed.headers
    assert other.headers["x-conversation-id"] == "mine"
