"""Retries are exact: by an idempotency key, or recognised as an SDK's own."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast.ids import SessionId, Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import TurnRow
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.server.stubs import Serving, agent, chat_body, serving, until
from tests.server.test_busy import held

KEY = {"Idempotency-Key": "k-1"}


async def test_the_same_request_gets_the_same_answer_json_and_stream() -> None:
    for stream in (False, True):
        model = ScriptedModel(says("Hello, ", "you."))
        async with serving(agent(model)) as server:
            first = await server.chat("one", to="trip", headers=KEY, stream=stream)
            again = await server.chat("one", to="trip", headers=KEY, stream=stream)
        assert first.body == again.body
        assert len(model.prompts) == 1
        assert first.headers["x-turn-id"] == again.headers["x-turn-id"]


async def test_a_quoted_key_is_the_bare_one() -> None:
    model = ScriptedModel("Hello.")
    async with serving(agent(model)) as server:
        first = await server.chat("one", to="trip", headers={"Idempotency-Key": "abc"})
        again = await server.chat("one", to="trip", headers={"Idempotency-Key": '"abc"'})
    assert first.body == again.body


async def test_another_request_under_the_same_key_is_refused() -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        await server.chat("one", to="trip", headers=KEY)
        others = [
            await server.chat("two", to="trip", headers=KEY),
            await server.chat("one", to="other", headers=KEY),
            await server.chat("one", headers=KEY),
            await server.chat("one", to="trip", headers=KEY, stream=True),
            await server.chat("one", to="trip", headers={**KEY, "X-Turn-Policy": "cancel=discard"}),
        ]
    assert {each.status for each in others} == {422}
    assert {each.error["code"] for each in others} == {"idempotency_key_reused"}


async def test_what_does_not_shape_the_answer_does_not_make_another_request() -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        first = await server.chat("one", to="trip", headers=KEY)
        again = await server.chat(
            "one",
            to="trip",
            headers={
                **KEY,
                "X-On-Busy": "reject",
                "x-stainless-retry-count": "2",
                "If-Match": '"0"',
                "traceparent": "00-1-2-3",
                "X-Client-Request-Id": "another",
            },
        )
    assert again.body == first.body


async def test_a_retry_while_it_runs_joins_it() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip", headers=KEY, stream=True))
        await gate.reached.wait()
        second = asyncio.create_task(server.chat("one", to="trip", headers=KEY, stream=True))
        await until(lambda: server.sessions._owner.playing[0]._clients >= 2)
        gate.release()
        one, two = await first, await second
    assert one.body == two.body
    assert one.streamed == "Let me think."
    assert len(model.prompts) == 1


async def test_a_failed_attempt_may_be_tried_again_under_its_key() -> None:
    async with serving(agent(ScriptedModel(fails(status=503), "Hello."))) as server:
        first = await server.chat("one", to="trip", headers=KEY)
        again = await server.chat("one", to="trip", headers=KEY)
    assert (first.status, again.status) == (502, 200)
    assert again.headers["x-conversation-version"] == "1"


async def test_a_refused_request_is_not_stored_under_its_key() -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        refused = await server.chat("  ", to="trip", headers=KEY)
        other = await server.chat("one", to="trip", headers=KEY)
    assert (refused.status, other.status) == (400, 200)


async def test_a_key_without_a_conversation_is_remembered_too() -> None:
    model = ScriptedModel("Hello.")
    async with serving(agent(model)) as server:
        first = await server.chat("one", headers=KEY)
        again = await server.chat("one", headers=KEY)
    assert first.body == again.body
    assert "x-session-id" not in first.headers


async def test_the_answer_survives_a_restart() -> None:
    for stream in (False, True):
        store = MemoryStore()
        script = says("Hello, ", "you.", finish="content_filter")
        async with serving(agent(ScriptedModel(script)), store=store) as server:
            first = await server.chat("one", to="trip", headers=KEY, stream=stream)
        async with serving(agent(ScriptedModel()), store=store) as server:
            again = await server.chat("one", to="trip", headers=KEY, stream=stream)
        assert first.body == again.body


# ── SDKs that repeat a request without a key ─────────────────────────────────────────────────


def retry(n: int) -> dict[str, str]:
    return {"x-stainless-retry-count": str(n), "x-turn-policy": "disconnect=finish"}


async def send(
    server: Serving, body: bytes, *, rcvbuf_bytes: int | None = None
) -> asyncio.StreamWriter:
    """Send a request as an SDK does, on a connection that nobody reads from."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-stainless-retry-count: 0\r\n"
        "x-conversation-id: trip\r\nx-turn-policy: disconnect=finish\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    host, port = server.url.removeprefix("http://").split(":")
    plug = socket.socket()
    if rcvbuf_bytes is not None:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf_bytes)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
    _, writer = await asyncio.open_connection(sock=plug, limit=1024)
    writer.write(head.encode() + body)
    return writer


async def ask_and_lose_the_answer(server: Serving, model: ScriptedModel, *, stream: bool) -> None:
    """Ask as an SDK does, and lose the connection while the answer is being made; it is made all the same."""
    gate = Gate()
    model.will(says("Hello.").waiting(gate, at=0))
    writer = await send(server, chat_body("one", stream=stream))
    await gate.reached.wait()
    (live,) = server.sessions._owner.playing
    writer.close()
    await until(lambda: not live._clients)
    gate.release()
    await live.done


async def test_an_answer_that_was_handed_over_is_acknowledged() -> None:
    for stream in (False, True):
        async with serving(agent(ScriptedModel("Hello."))) as server:
            await server.chat("one", to="trip", headers=retry(0), stream=stream)
            (row,) = await rows(server)
        assert row.acked


async def test_an_answer_that_nobody_was_there_for_is_not() -> None:
    for stream in (False, True):
        model = ScriptedModel()
        async with serving(agent(model)) as server:
            await ask_and_lose_the_answer(server, model, stream=stream)
            (row,) = await rows(server)
        assert row.state == "committed" and not row.acked


async def test_an_answer_that_only_a_client_that_was_heard_later_has_is_not_either() -> None:
    model, gate = ScriptedModel(), Gate()
    model.will(says("Well.").waiting(gate, at=0), says("Hello."))
    async with serving(agent(model)) as server:
        writer = await send(server, chat_body("one", stream=False))
        await gate.reached.wait()
        (live,) = server.sessions._owner.playing
        headers = {**retry(0), "X-On-Busy": "steer"}
        steered = asyncio.create_task(server.chat("two", to="trip", headers=headers))
        await until(lambda: bool(live._steers))
        writer.close()
        await until(lambda: not live._clients)
        gate.release()
        assert (await steered).status == 200
        (row,) = await rows(server)
    assert row.state == "committed" and not row.acked


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_socket_has_not_taken_is_not_either(stream: bool) -> None:
    """The turn is committed and its answer written; its client never reads it, and goes."""
    async with serving(agent(ScriptedModel("x" * 1_900_000))) as server:
        # Connections have their listener's buffer: with the least there is, most of the answer stays with us.
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writer = await send(server, chat_body("one", stream=stream), rcvbuf_bytes=4096)
        await until(lambda: bool(server.sessions._owner.live))
        (live,) = server.sessions._owner.live.values()
        await live.done
        await until(lambda: live._clients == 1)
        writer.transport.abort()
        await until(lambda: live._clients == 0)
        (row,) = await rows(server)
    assert row.state == "committed" and not row.acked


async def rows(server: Serving) -> tuple[TurnRow, ...]:
    info = (await server.get("/api/sessions/trip")).json
    return await server.sessions.store.turns(Tenant("local"), SessionId(info["id"]))


async def test_a_retry_of_a_lost_answer_gets_it_again() -> None:
    for stream in (False, True):
        model = ScriptedModel()
        async with serving(agent(model)) as server:
            await ask_and_lose_the_answer(server, model, stream=stream)
            again = await server.chat("one", to="trip", headers=retry(1), stream=stream)
            items = await server.items("trip")
        assert (again.streamed if stream else again.text) == "Hello."
        assert len(model.prompts) == 1 and len(items) == 2


async def test_a_retry_of_an_answer_that_arrived_is_a_new_request() -> None:
    model = ScriptedModel("Hello.", "Again?")
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip", headers=retry(0))
        again = await server.chat("one", to="trip", headers=retry(1))
    assert again.text == "Again?"


async def test_a_retry_while_the_first_attempt_runs_joins_it() -> None:
    gate = Gate()
    model = held(gate)
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip", headers=retry(0)))
        await gate.reached.wait()
        second = asyncio.create_task(server.chat("one", to="trip", headers=retry(1)))
        await until(lambda: server.sessions._owner.playing[0]._clients >= 2)
        gate.release()
        one, two = await first, await second
    assert one.text == two.text == "Let me think."
    assert len(model.prompts) == 1


async def test_the_same_words_again_are_a_new_request() -> None:
    """Only the counter tells a retry from a repetition: the body never does."""
    model = ScriptedModel()
    async with serving(agent(model)) as server:
        await ask_and_lose_the_answer(server, model, stream=False)
        model.will("Again?")
        again = await server.chat("one", to="trip", headers=retry(0))
    assert again.text == "Again?"
