"""The head of an answer is written by us where that is plain, and by uvicorn otherwise: with the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from holdfast.server.http.connection import Connection, connection_class
from holdfast.server.http.connection_register import ConnectionRegister
from holdfast.server.http.exchange import Exchange, Receive, Send


class Socket(asyncio.Transport):
    """A socket that takes everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.said = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def answered(request: bytes, headers: Mapping[str, str], *, by_uvicorn: bool) -> Socket:
    """The socket after all requests in these bytes were answered with these headers."""

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, request_id="req_1")
        body = await exchange.body(bytes_max=100, room=None)  # type: ignore[arg-type]
        await exchange.answer(200, b"said: " + body, headers=headers)

    kind = connection_class(ConnectionRegister())
    if by_uvicorn:
        kind = type("ByUvicorn", (kind,), {"start_now": lambda *_: False})
    config = uvicorn.Config(
        app, http=kind, lifespan="off", server_header=False, date_header=False, log_config=None
    )
    config.load()
    state = ServerState()
    socket = Socket()
    connection: Connection = kind(config=config, server_state=state, app_state={})
    connection.connection_made(socket)
    connection.data_received(request)
    while state.tasks:
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return socket


POST = b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /a HTTP/1.1\r\nhost: h\r\n\r\n",
        b"HEAD /a HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /a HTTP/1.0\r\nhost: h\r\n\r\n",
        b"GET /a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        POST,
        POST + POST,
        POST + POST + POST,
    ],
)
async def test_a_head_is_what_uvicorn_would_have_written(request_bytes: bytes) -> None:
    headers = {"x-turn-id": "turn_1", "x-said": "caf\xe9\tau lait"}
    ours = await answered(request_bytes, headers, by_uvicorn=False)
    theirs = await answered(request_bytes, headers, by_uvicorn=True)
    assert ours.said == theirs.said
    assert ours.closed == theirs.closed
    assert ours.said.count(b"200 OK") == max(1, request_bytes.count(b"POST"))


@pytest.mark.parametrize(
    "headers",
    [
        {"x-said": "hi\r\nset-cookie: a=b"},
        {"x-said": "hi\nset-cookie: a=b"},
        {"x-said": "hi\x00"},
        {"x-said": "hi\x7f"},
        {"x-said: hi\r\nset-cookie": "a=b"},
        {"set cookie": "a=b"},
    ],
)
async def test_no_value_breaks_out_of_its_header(headers: dict[str, str]) -> None:
    socket = await answered(POST, headers, by_uvicorn=False)
    assert socket.said == b"" and socket.closed
