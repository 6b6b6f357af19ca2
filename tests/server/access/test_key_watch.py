"""What is open ends when its key is revoked, or has expired, wherever that was done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import aiohttp
import msgspec
import pytest

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import KeyId
from holdfast.observe.supervisor import Backoff, TaskSupervisor
from holdfast.server.access.key_watch import KeyWatch
from holdfast.server.http.exchange import Exchange
from holdfast.store.api_keys import ShownKey
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.wire.problems import Problem
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Serving, agent, chat_body, serving, until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "key_cache_s", 0.01)


Opened: TypeAlias = Callable[[Serving, ShownKey, str], Coroutine[Any, Any, str]]
"""Something that is open, given a turn that runs; what its client has read of it when it ends."""


async def read(server: Serving, key: ShownKey, method: str, path: str, body: bytes = b"") -> str:
    answer = await server.request(method, path, headers=bearer(key), data=body or None)
    return answer.body.decode()


async def chat_stream(server: Serving, key: ShownKey, turn: str) -> str:
    return await read(server, key, "POST", "/v1/chat/completions", chat_body("Hi", stream=True))


async def chat(server: Serving, key: ShownKey, turn: str) -> str:
    return await read(server, key, "POST", "/v1/chat/completions", chat_body("Hi"))


async def response_stream(server: Serving, key: ShownKey, turn: str) -> str:
    body = msgspec.json.encode({"model": "root", "input": "Hi", "stream": True})
    return await read(server, key, "POST", "/v1/responses", body)


async def response_again(server: Serving, key: ShownKey, turn: str) -> str:
    response = turn.replace("turn_", "resp_")
    return await read(server, key, "GET", f"/v1/responses/{response}?stream=true")


async def turn_events(server: Serving, key: ShownKey, turn: str) -> str:
    return await read(server, key, "GET", f"/api/turns/{turn}/events")


async def socket(server: Serving, key: ShownKey, turn: str) -> str:
    url = f"{server.url}/v1/responses"
    async with server.http.ws_connect(url, headers=bearer(key)) as talk:
        closed = await talk.receive()
        assert closed.type == aiohttp.WSMsgType.CLOSE
        return f"{talk.close_code}"


async def socket_answer(server: Serving, key: ShownKey, turn: str) -> str:
    url, told = f"{server.url}/v1/responses", ""
    async with server.http.ws_connect(url, headers=bearer(key)) as talk:
        await talk.send_str('{"type":"response.create","model":"root","input":"Hi"}')
        async for each in talk:
            told += each.data
        return told


OPEN: dict[Opened, str] = {
    chat_stream: "invalid_api_key",
    chat: "invalid_api_key",
    response_stream: "invalid_api_key",
    response_again: "invalid_api_key",
    turn_events: "invalid_api_key",
    socket: "1008",
    socket_answer: "invalid_api_key",
}


@pytest.mark.parametrize("opened", OPEN, ids=lambda each: each.__name__)
async def test_what_is_open_ends_when_its_key_is_revoked_on_another_server(opened: Opened) -> None:
    store, gate = MemoryStore(), Gate()
    key, other = await put_key(store), await put_key(store, nth=2)
    model = ScriptedModel(otherwise=lambda _: says("One. ", "Two.").waiting(gate, at=1))
    async with (
        serving(agent(model), store=store, auth="required") as server,
        serving(agent(ScriptedModel()), store=store, auth="required") as elsewhere,
    ):
        body = msgspec.json.encode({"model": "root", "input": "Hi", "background": True})
        begun = await server.request("POST", "/v1/responses", headers=bearer(other), data=body)
        await gate.reached.wait()
        turn = begun.json["id"].replace("resp_", "turn_")
        reading = asyncio.create_task(opened(server, key, turn))
        entered = server.app.keys._open
        await until(lambda: key.key_id in entered and len(entered[key.key_id]) >= _at_once(opened))
        await elsewhere.sessions.store.revoke_api_key(key.key_id)
        async with asyncio.timeout(10):
            assert OPEN[opened] in await reading
        gate.release()
        ended = await server.request("GET", f"/api/turns/{turn}/events", headers=bearer(other))
        assert ended.events[-1]["turn"]["state"] == "committed", "another key's goes on"


def _at_once(opened: Opened) -> int:
    """How many requests it is to the server."""
    return 2 if opened is socket_answer else 1


async def test_the_first_key_ends_what_is_open_without_one() -> None:
    """The door was open, and closes for those who came in before as well."""
    store, gate = MemoryStore(), Gate()
    model = ScriptedModel(otherwise=lambda _: says("One. ", "Two.").waiting(gate, at=1))
    async with serving(agent(model), store=store, auth="auto") as server:
        body = chat_body("Hi", stream=True)
        reading = asyncio.create_task(server.request("POST", "/v1/chat/completions", data=body))
        await gate.reached.wait()
        await put_key(store)
        async with asyncio.timeout(10):
            assert "invalid_api_key" in (await reading).body.decode()


async def test_a_key_that_expires_ends_what_it_has_open() -> None:
    store, gate = MemoryStore(), Gate()
    key = await put_key(store, expires_ms=2_000_000_000_000)
    model = ScriptedModel(says("One. ", "Two.").waiting(gate, at=1))
    async with serving(agent(model), store=store, auth="required") as server:
        reading = asyncio.create_task(chat_stream(server, key, ""))
        await gate.reached.wait()
        server.app._authenticator._now_ms = lambda: 2_000_000_000_001
        async with asyncio.timeout(10):
            assert "has expired" in await reading


async def test_nothing_ends_while_the_store_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who does not know that a key was revoked does not act as if it were; and goes on looking."""
    outcomes: list[Exception | Problem | None] = [
        StoreUnavailable("it is away"),
        RuntimeError("a bug"),
        RuntimeError("the same"),
        None,
        Problem(status=401, code="invalid_api_key", message="gone"),
    ]

    async def judge(key_id: KeyId | None) -> Problem | None:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    ended = asyncio.Event()
    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": []}
    exchange = Exchange(scope, None, None, request_id="req_1")  # type: ignore[arg-type]
    exchange.on_end = ended.set
    watch, supervisor = KeyWatch(judge), TaskSupervisor()
    with caplog.at_level(logging.ERROR):
        watch.enter(KeyId("key_" + "0" * 26), exchange)
        looking = supervisor.keep("keys", watch.look, Backoff(first_s=0.01, most_s=0.01))
        async with asyncio.timeout(10):
            await ended.wait()
    watch.leave(KeyId("key_" + "0" * 26), exchange)
    await supervisor.stop(looking)
    assert outcomes == []
    assert [each.exc_info is not None for each in caplog.records] == [True]
    assert supervisor.tally.task_failures["keys"] == 2
