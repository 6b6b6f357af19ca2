"""`/v1/responses` as a WebSocket: the same answers, one after the other, over one connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from openai import AsyncOpenAI

from holdfast import limits
from holdfast.config import Quota
from holdfast.ids import Tenant
from holdfast.server.access.quotas import Quotas
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.testing.scripted_model import fails
from tests.server.access.test_authentication import bearer, put_key
from tests.server.conformance import demand_one_item_at_a_time
from tests.server.openai.test_responses import WEATHER, heard, text, yes
from tests.server.stubs import HeldTool, Serving, agent, another, serving, until

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}


class Client:
    """Somebody at the other end of a socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, said: Any, **members: Any) -> None:
        body = {"type": "response.create", "model": "root", "input": said, **members}
        await self.socket.send_bytes(msgspec.json.encode(body))

    async def next(self) -> Any:
        message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return msgspec.json.decode(message.data)

    async def events(self) -> list[Any]:
        """Everything up to the end of an answer."""
        found = [await self.next()]
        while found[-1]["type"] not in ENDS:
            found.append(await self.next())
        demand_one_item_at_a_time(found)
        return found

    async def ask(self, said: Any, **members: Any) -> Any:
        """Ask, and give the last event of the answer."""
        await self.send(said, **members)
        return (await self.events())[-1]

    async def say(self, said: Any, **members: Any) -> Any:
        """Ask for something that nobody stores, and give the Response."""
        last = await self.ask(said, store=False, **members)
        assert last["type"] == "response.completed", last
        return last["response"]

    async def refusal(self, said: Any, **members: Any) -> Any:
        last = await self.ask(said, **members)
        assert last["type"] == "error", last
        return last

    async def wait_closed(self) -> int:
        message = await self.socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        code = self.socket.close_code
        assert code is not None
        return code


@asynccontextmanager
async def connected(server: Serving, **options: Any) -> AsyncIterator[Client]:
    async with server.http.ws_connect(f"{server.url}/v1/responses", **options) as socket:
        yield Client(socket)


def anonymous(event: Any) -> str:
    """An event without what is new each time: ids and times."""
    return re.sub(r'(?<=_)[0-9a-z]{26,52}|(?<=_at":)\d+', "…", msgspec.json.encode(event).decode())


# ── answers ──────────────────────────────────────────────────────────────────────────────────


async def test_a_socket_tells_the_events_of_the_stream_and_keeps_what_they_say() -> None:
    model = ScriptedModel(says("Hel", "lo."), says("Hel", "lo."))
    async with serving(agent(model)) as server, connected(server) as client:
        streamed = (await server.respond("Hi", stream=True)).named_events
        await client.send("Hi")
        told = await client.events()
        again = await server.get(f"/v1/responses/{told[-1]['response']['id']}")
    assert list(map(anonymous, told)) == list(map(anonymous, streamed))
    assert told[-1]["response"] == again.json


async def test_answers_come_one_after_the_other_and_in_their_lanes() -> None:
    gate = Gate()
    model = ScriptedModel(says("First.").waiting(gate, at=0), says("Second."))
    async with serving(agent(model)) as server, connected(server) as client:
        await client.send("one", stream_id="a")
        await client.send("two", stream_id="b", stream=True)
        await gate.reached.wait()
        assert len(model.prompts) == 1
        gate.release()
        first, second = await client.events(), await client.events()
    assert {each["stream_id"] for each in first} == {"a"}
    assert {each["stream_id"] for each in second} == {"b"}
    assert text(first[-1]["response"]) == "First." and text(second[-1]["response"]) == "Second."


async def test_a_stored_response_is_gone_on_from_over_http_and_back() -> None:
    model = yes()
    async with serving(agent(model)) as server, connected(server) as client:
        first = (await client.ask("one"))["response"]
        second = (await server.respond("two", previous_response_id=first["id"])).json
        await client.ask("three", previous_response_id=second["id"])
    assert heard(model) == ["one", "Yes.", "two", "Yes.", "three"]


async def test_what_opens_a_socket_names_the_conversation_of_all_that_it_carries() -> None:
    """But a key, a version or a retry's number is about one request, and a socket is many."""
    model = yes()
    headers = {"X-Conversation-Id": "trip", "Idempotency-Key": "k", "If-Match": '"0"'}
    async with serving(agent(model)) as server, connected(server, headers=headers) as client:
        await client.ask("one")
        last = await client.ask("two")
        turns = await server.turns("trip")
    assert last["response"]["conversation"]["id"].startswith("conv_")
    assert [each["state"] for each in turns] == ["committed", "committed"]
    assert heard(model) == ["one", "Yes.", "two"]


# ── what lives on the socket ─────────────────────────────────────────────────────────────────


async def test_what_is_not_stored_is_gone_on_from_on_its_own_socket_only() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        async with connected(server) as client, connected(server) as other:
            first = await client.say("one")
            second = await client.say("two", previous_response_id=first["id"])
            await client.say("again", previous_response_id=first["id"])
            assert heard(model) == ["one", "Yes.", "again"]
            await client.say("three", previous_response_id=second["id"])
            assert heard(model) == ["one", "Yes.", "two", "Yes.", "three"]
            elsewhere = await other.refusal("x", store=False, previous_response_id=first["id"])
            stored = await client.refusal("x", previous_response_id=second["id"])
        found = await server.get(f"/v1/responses/{first['id']}")
        listed = await server.get("/api/sessions?anonymous=true")
    assert elsewhere["error"]["code"] == stored["error"]["code"] == "previous_response_not_found"
    assert found.status == 404 and not listed.json["sessions"]


async def test_calls_of_the_client_are_answered_without_a_store() -> None:
    model = ScriptedModel(says(calls=[("weather", "{}", "call_1")]), says("Rain."))
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    async with serving(agent(model)) as server, connected(server) as client:
        asked = await client.say("Oslo?", tools=[WEATHER])
        said = await client.say(
            [{"type": "item_reference", "id": asked["output"][0]["id"]}, result],
            tools=[WEATHER],
            previous_response_id=asked["id"],
        )
    assert asked["output"][0]["type"] == "function_call" and text(said) == "Rain."


@pytest.mark.parametrize("failing", ["the model fails", "the request is refused"])
async def test_a_continuation_that_fails_takes_what_it_went_on_from_with_it(failing: str) -> None:
    async with serving(agent(ScriptedModel(says("Yes."), fails(), says("No.")))) as server:
        async with connected(server) as client:
            first = await client.say("one")
            if failing == "the model fails":
                wrong = await client.ask("two", store=False, previous_response_id=first["id"])
            else:
                orphan = {"type": "function_call_output", "call_id": "none", "output": "x"}
                wrong = await client.ask([orphan], store=False, previous_response_id=first["id"])
            gone = await client.refusal("three", store=False, previous_response_id=first["id"])
    assert wrong["type"] in ("error", "response.failed")
    assert gone["error"]["code"] == "previous_response_not_found"


async def test_a_stored_response_outlives_a_continuation_that_fails() -> None:
    model = ScriptedModel(says("Yes."), fails(), says("Well."))
    async with serving(agent(model)) as server, connected(server) as client:
        first = (await client.ask("one"))["response"]
        assert (await client.ask("two", previous_response_id=first["id"]))["type"] == "error"
        last = await client.ask("three", previous_response_id=first["id"], store=False)
    assert last["type"] == "response.completed"
    assert heard(model) == ["one", "Yes.", "three"]


@pytest.mark.parametrize("store", [True, False])
async def test_what_was_prepared_goes_in_front_of_what_is_asked_next(store: bool) -> None:
    """Codex says what it knows before its user has said anything, to save time later."""
    model = yes()
    told = {"type": "message", "role": "developer", "content": "Be kind."}
    async with serving(agent(model)) as server, connected(server) as client:
        await client.send([told], generate=False, store=store)
        *_, ready = await client.events()
        await client.send([], generate=False, previous_response_id=ready["response"]["id"])
        *_, still = await client.events()
        assert ready["response"]["output"] == [] and not model.prompts
        last = await client.ask("Hi", previous_response_id=still["response"]["id"], store=store)
    assert last["type"] == "response.completed"
    assert heard(model) == ["Be kind.", "Hi"]


async def test_what_is_prepared_bit_by_bit_is_bounded_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "body_bytes_max", 4_000)
    told = {"type": "message", "role": "developer", "content": "x" * 1_500}
    async with serving(agent(yes())) as server, connected(server) as client:
        previous: dict[str, str] = {}
        for _ in range(2):
            await client.send([told], generate=False, **previous)
            *_, ready = await client.events()
            previous = {"previous_response_id": ready["response"]["id"]}
        await client.send([told], generate=False, **previous)
        *_, refused = await client.events()
        assert (refused["type"], refused["error"]["code"]) == ("error", "request_too_large")
        assert (await client.ask("Hi"))["type"] == "response.completed"


async def test_a_socket_forgets_the_oldest_of_what_it_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "socket_held_max", 2)
    async with serving(agent(yes())) as server, connected(server) as client:
        first, _, third = [await client.say(str(n)) for n in range(3)]
        gone = await client.refusal("x", store=False, previous_response_id=first["id"])
        await client.say("y", previous_response_id=third["id"])
    assert gone["error"]["code"] == "previous_response_not_found"


# ── errors ───────────────────────────────────────────────────────────────────────────────────


async def test_a_socket_survives_whatever_is_wrong_with_a_message() -> None:
    async with serving(agent(ScriptedModel(fails(), says("Fine.")))) as server:
        async with connected(server) as client:
            await client.socket.send_str("nonsense")
            assert (await client.next())["error"]["code"] == "invalid_json"
            await client.socket.send_json({"type": "response.sing", "stream_id": "a"})
            strange = await client.next()
            assert (strange["error"]["param"], strange["stream_id"]) == ("type", "a")
            await client.socket.send_json({"type": "response.create", "input": "Hi"})
            assert (await client.next())["error"]["param"] == "model"
            for wrong, param in (
                ({"background": True}, "background"),
                ({"model": "nobody"}, "model"),
                ({"stream_id": ""}, "stream_id"),
                ({"conversation": "conv_x"}, "conversation"),
            ):
                refused = await client.refusal("Hi", **wrong)
                assert refused["error"]["param"] == param and refused["status"] in (400, 404)
            failed = await client.ask("Hi")
            assert failed["status"] == 502 and failed["error"]["code"] == "upstream_error"
            assert text((await client.ask("Hi"))["response"]) == "Fine."


async def test_more_messages_than_may_wait_are_refused_one_by_one() -> None:
    gate = Gate()
    model = ScriptedModel(says("First.").waiting(gate, at=0), otherwise=lambda prompt: "Next.")
    async with serving(agent(model)) as server, connected(server) as client:
        await client.send("Hi")
        await gate.reached.wait()
        for n in range(limits.socket_waiting_max + 1):
            await client.send("more", stream_id=str(n))
        while (told := await client.next())["type"] != "error":
            pass
        assert told["status"] == 429 and told["stream_id"] == str(limits.socket_waiting_max)
        gate.release()
        for _ in range(limits.socket_waiting_max + 1):
            assert (await client.events())[-1]["type"] == "response.completed"


# ── coming and going ─────────────────────────────────────────────────────────────────────────


async def test_nobody_is_let_in_without_a_key_or_from_a_strange_page() -> None:
    store = MemoryStore()
    reader = await put_key(store, Tenant("ours"), "read", nth=2)
    key = await put_key(store, Tenant("ours"), "chat")
    allowed = bearer(key)
    guard = OriginGuard(frozenset({"127.0.0.1"}))
    async with serving(agent(yes()), store=store, auth="required", guard=guard) as server:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer hf_wrong"}, 401),
            (bearer(reader), 403),
            ({**allowed, "Origin": "https://evil.example"}, 403),
            ({**allowed, "Host": "evil.example"}, 403),
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(server, headers=headers):
                    pass
            assert refused.value.status == status
            assert refused.value.headers is not None
            assert refused.value.headers["content-type"] == "application/json"
        async with connected(server, headers=allowed) as client:
            assert (await client.ask("Hi"))["type"] == "response.completed"
    await store.close()


async def test_a_key_that_is_revoked_is_refused_on_a_socket_that_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message that comes before the socket is closed for it is refused like any request."""
    monkeypatch.setattr(limits, "key_cache_s", 3600.0)
    store = MemoryStore()
    key = await put_key(store, Tenant("ours"), "chat")
    async with serving(agent(yes()), store=store, auth="required") as server:
        async with connected(server, headers=bearer(key)) as client:
            assert (await client.ask("one"))["type"] == "response.completed"
            await store.revoke_api_key(key.key_id)
            server.app._authenticator._rows.clear()
            refused = await client.refusal("two")
    assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")
    await store.close()


async def test_nobody_goes_on_from_what_another_tenant_has_said() -> None:
    store, model = MemoryStore(), yes()
    ours = await put_key(store, Tenant("ours"), "chat")
    theirs = await put_key(store, Tenant("theirs"), "chat", nth=2)
    async with serving(agent(model), store=store, auth="required") as server:
        async with (
            connected(server, headers=bearer(ours)) as client,
            connected(server, headers=bearer(theirs)) as other,
        ):
            for store_it in (True, False):
                said = (await client.ask("secret", store=store_it))["response"]["id"]
                refused = await other.refusal("And?", previous_response_id=said, store=store_it)
                unknown = another(said)
                same = await other.refusal("And?", previous_response_id=unknown, store=store_it)
                told = refused["error"]["message"].replace(said, unknown)
                assert told == same["error"]["message"]
    await store.close()


async def test_there_is_one_socket_and_its_address_is_told() -> None:
    async with serving(agent(yes())) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with server.http.ws_connect(f"{server.url}/v1/elsewhere"):
                pass
        plain = await server.get("/v1/responses")
    assert refused.value.status == 404
    assert plain.status == 405


async def test_each_message_is_a_request_to_those_who_count() -> None:
    quotas = Quotas(tenant=Quota(requests_per_minute=2, watchers=1), clock=lambda: 0.0)
    async with serving(agent(yes()), quotas=quotas) as server:
        async with connected(server) as client:
            assert (await client.ask("one"))["type"] == "response.completed"
            refused = await client.refusal("two")
    assert refused["status"] == 429 and refused["error"]["code"] == "rate_limit_exceeded"
    assert refused["error"]["headers"]["retry-after"] == "30"


async def test_a_tenant_has_no_more_sockets_than_watchers() -> None:
    async with serving(agent(yes()), quotas=Quotas(tenant=Quota(watchers=1))) as server:
        async with connected(server):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(server):
                    pass
        assert refused.value.status == 429
        while True:  # the first one's place is free once the server has noticed
            try:
                async with connected(server) as client:
                    await client.ask("Hi")
                    return
            except aiohttp.WSServerHandshakeError:
                await asyncio.sleep(0)


async def test_a_client_that_goes_away_in_the_middle_ends_its_turn_by_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As over HTTP: what had acted is kept, and says that it was interrupted."""
    monkeypatch.setattr(limits, "stream_patience_s", 0.05)  # the turn's id comes before any word
    tool = HeldTool()
    model = ScriptedModel(says(calls=[("act", "{}", "call_1")]))
    headers = {"X-Conversation-Id": "trip"}
    async with serving(agent(model, tool)) as server:
        async with connected(server, headers=headers) as client:
            await client.send("Hi")
            await tool.begun.wait()
            turn_id = (await client.next())["response"]["id"].replace("resp_", "turn_")
        ended = await server.ended_turn(turn_id)
    assert (ended["state"], ended["ended_by"]) == ("committed", "disconnected")


async def test_a_shutdown_lets_an_answer_end_and_then_closes_the_socket() -> None:
    gate = Gate()
    async with serving(agent(ScriptedModel(says("Fine.").waiting(gate, at=0)))) as server:
        async with connected(server) as client, connected(server) as idle:
            await client.send("Hi")
            await gate.reached.wait()
            await idle.socket.ping()
            server.server.stop()
            assert await idle.wait_closed() == 1012
            gate.release()
            assert text((await client.events())[-1]["response"]) == "Fine."
            assert await client.wait_closed() == 1012


async def test_a_socket_ends_when_nothing_is_said_for_long_or_when_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(agent(yes())) as server:
        monkeypatch.setattr(limits, "socket_idle_s", 0.0)
        async with connected(server) as client:
            assert await client.wait_closed() == 1001
        monkeypatch.setattr(limits, "socket_lifetime_s", 0.0)
        async with connected(server) as client:
            told = await client.next()
            assert told["error"]["code"] == "websocket_connection_limit_reached"
            assert await client.wait_closed() == 1001


async def test_a_message_that_is_too_large_closes_the_socket() -> None:
    async with serving(agent(yes())) as server, connected(server) as client:
        await client.socket.send_bytes(b"x" * (limits.body_bytes_max + 1))
        assert await client.wait_closed() == 1009


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /v1/r\xff HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        + b"".join(b"X-%d: y\r\n" % n for n in range(500))
        + b"\r\n",
    ],
)
async def test_what_asks_for_a_socket_in_the_wrong_way_is_refused(head: bytes) -> None:
    async with serving(agent(yes())) as server:
        host, port = server.listener.getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head)
        answer = await reader.read()
        writer.close()
        assert (await server.get("/healthz")).status == 200
    assert re.match(rb"HTTP/1.1 4\d\d ", answer), answer


# ── the SDK's own ────────────────────────────────────────────────────────────────────────────


async def test_the_sdk_connects_and_goes_on() -> None:
    model = yes()
    async with serving(agent(model)) as server:
        sdk = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        async with sdk, sdk.responses.connect() as connection:
            previous: str | None = None
            for said in ("one", "two"):
                await connection.response.create(
                    model="root", input=said, store=False, previous_response_id=previous
                )
                async for event in connection:
                    if event.type == "response.completed":
                        previous = event.response.id
                        break
            await connection.response.create(model="nobody", input="x")
            told = await connection.recv()
            assert told.type == "error" and told.error.code == "model_not_found"
    assert heard(model) == ["one", "Yes.", "two"]


async def test_sockets_leave_nothing_behind() -> None:
    async with serving(agent(yes())) as server:
        for _ in range(20):
            async with connected(server) as client:
                await client.say("Hi")
        await until(lambda: not server.server.server_state.tasks)
        assert not server.server.server_state.connections


async def test_a_request_that_failed_after_a_tool_had_acted_goes_on_over_a_socket() -> None:
    """The same message again: nothing is said twice and the tool has run once."""
    failed = fails(status=500, reason="server_error")
    model, tool = ScriptedModel(says(calls=[("act", "{}")]), failed, "Done."), HeldTool(held=False)
    async with serving(agent(model, tool)) as server, connected(server) as client:
        made = (await server.request("POST", "/v1/conversations", data=b"{}")).json
        first = await client.ask("Do it", conversation=made["id"])
        again = await client.ask("Do it", conversation=made["id"])
        items = await server.items(made["id"])
    assert first["type"] in ("error", "response.failed")
    assert again["type"] == "response.completed"
    assert [each["type"] for each in items].count("user") == 1
    assert tool.runs == 1
