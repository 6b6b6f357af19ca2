"""How many connections there may be, and which of them make room."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from holdfast import limits
from holdfast.server.http.connection_register import ConnectionRegister, raise_files_limit
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.stubs import Serving, agent, serving, until


class Peer:
    """The end of a connection that a server sees."""

    def __init__(self, address: str | None = "9.9.9.9") -> None:
        self.address = address
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        assert name == "peername"
        return (self.address, 5000) if self.address is not None else None

    def close(self) -> None:
        self.closed = True


def entered(register: ConnectionRegister, peer: Peer) -> bool:
    return register.enter(cast("asyncio.Transport", peer))


def working(register: ConnectionRegister, peer: Peer) -> None:
    register.work(cast("asyncio.Transport", peer))


def test_the_one_that_has_rested_longest_makes_room() -> None:
    register = ConnectionRegister(3)
    first, second, third, new, newer = (Peer(f"9.9.9.{n}") for n in range(5))
    assert all(entered(register, each) for each in (first, second, third))
    working(register, first)
    assert entered(register, new)
    assert [each.closed for each in (first, second, third)] == [False, True, False]
    register.rest(cast("asyncio.Transport", first))
    assert entered(register, newer)
    assert third.closed and not first.closed
    assert register.count == 3


def test_where_all_of_them_work_a_new_one_is_refused() -> None:
    register = ConnectionRegister(2)
    busy = [Peer(), Peer()]
    for each in busy:
        assert entered(register, each)
        working(register, each)
    assert not entered(register, Peer())
    register.leave(cast("asyncio.Transport", busy[0]))
    register.leave(cast("asyncio.Transport", busy[0]))
    assert entered(register, Peer()) and entered(register, Peer("8.8.8.8")) is not False
    assert not any(each.closed for each in busy)


@pytest.mark.parametrize(
    ("one", "other"),
    [("9.9.9.9", "9.9.9.9"), ("2001:db8::1", "2001:db8::2:3"), ("fe80::1%eth0", "fe80::2%eth0")],
)
def test_one_address_has_a_part_of_them_only(one: str, other: str) -> None:
    """An IPv6 network counts as one: whoever has one of its addresses has 2⁶⁴."""
    register = ConnectionRegister(8, most_of_address=2)
    mine, stranger = [Peer(one), Peer(one), Peer(other)], Peer("8.8.8.8")
    assert entered(register, stranger)
    assert all(entered(register, each) for each in mine)
    assert [each.closed for each in (stranger, *mine)] == [False, True, False, False]
    working(register, mine[1])
    working(register, mine[2])
    assert not entered(register, Peer(other))
    assert entered(register, Peer("2001:db9::1")) and entered(register, Peer(None))


def test_a_proxy_that_we_were_told_of_has_no_bound_of_its_own() -> None:
    register = ConnectionRegister(
        8, most_of_address=2, proxies=frozenset({"10.0.0.1", "2001:db8::1"})
    )
    for address in ("10.0.0.1", "2001:db8::1"):
        peers = [Peer(address) for _ in range(4)]
        assert all(entered(register, each) for each in peers)
        assert not any(each.closed for each in peers)


def test_it_is_told_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    register = ConnectionRegister(4, most_of_address=2, clock=lambda: now)
    with caplog.at_level(logging.WARNING, "holdfast.events"):
        for n in range(50):
            entered(register, Peer("9.9.9.9"))
            entered(register, Peer(f"9.9.8.{n}"))
        told = [each.__dict__["fields"]["cause"] for each in caplog.records]
        assert sorted(told) == ["address", "total"]
        now += limits.notice_s
        entered(register, Peer("9.9.9.9"))
    assert len(caplog.records) == 3


def test_the_limit_of_files_is_raised_as_far_as_the_operator_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    for soft, hard in ((1024, 4096), (1024, 1 << 20), (1 << 20, 1 << 20), (1024, -1), (-1, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, pair=(soft, hard): pair)
        raise_files_limit()
    wanted = limits.files_wanted
    assert asked == [(4096, 4096), (wanted, 1 << 20), (wanted, -1)]


# ── a server ─────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def half_sent(server: Serving) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which a request has begun."""
    host, port = server.listener.getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
    try:
        yield reader
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_half_sent_heads_keep_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    """1,300 of them at a limit of 1,024 files reset every other request for 19 seconds, without a word."""
    register = ConnectionRegister(8, most_of_address=4)
    async with (
        serving(agent(ScriptedModel("Hello.")), register=register) as server,
        AsyncExitStack() as kept,
    ):
        with caplog.at_level(logging.WARNING, "holdfast.events"):
            heads = [await kept.enter_async_context(half_sent(server)) for _ in range(20)]
            assert (await server.chat("Hi")).text == "Hello."
        assert register.count == 4
        assert await heads[0].read() == b"", "the first ones have made room"
    assert [each.getMessage() for each in caplog.records] == ["connections.bounded"]


async def test_a_connection_that_is_answered_something_is_not_given_up() -> None:
    gate, register = Gate(), ConnectionRegister(1)
    model = ScriptedModel(says("One.").waiting(gate, at=0))
    async with serving(agent(model), register=register) as server:
        asking = asyncio.create_task(server.chat("Hi"))
        await gate.reached.wait()
        async with half_sent(server) as another:
            head, _, body = (await another.read()).partition(b"\r\n\r\n")
        gate.release()
        assert (await asking).text == "One."
    assert head.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in body


async def test_a_socket_is_in_the_register_until_it_ends() -> None:
    register = ConnectionRegister(8)
    async with serving(agent(ScriptedModel("Hello.")), register=register) as server:
        async with server.http.ws_connect(f"{server.url}/v1/responses") as socket:
            assert register.count == 1
            await socket.send_bytes(b'{"type":"response.create","model":"root","input":"Hi"}')
            await socket.receive()
        async with asyncio.timeout(10):
            await until(lambda: register.count == 0)
