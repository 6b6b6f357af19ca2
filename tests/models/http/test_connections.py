"""The pool of connections: how an answer is read off them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler

from holdfast.models.http.connections import Connections, in_pieces

PIECE = b"x" * 1000
END = b"0\r\n\r\n"

Answering: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(pieces: int) -> AsyncIterator[str]:
    """A server that answers one request with so many chunks, as fast as they are taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(pieces):
            writer.write(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
            await writer.drain()
        writer.write(END)
        await writer.drain()
        writer.close()

    async with serving(answer) as url:
        yield url


@asynccontextmanager
async def serving(answer: Answering) -> AsyncIterator[str]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Each time that a connection goes on reading: whether it had stopped."""
    seen: list[bool] = []
    resume = ResponseHandler.resume_reading

    def noting(self: ResponseHandler, *args: bool, **named: bool) -> None:
        seen.append(self._reading_paused)
        resume(self, *args, **named)

    monkeypatch.setattr(ResponseHandler, "resume_reading", noting)
    return seen


async def read_slowly(url: str) -> int:
    """The size of the answer, read piece by piece by somebody who lets others go first."""
    connections = Connections()
    size = 0
    session = await connections.session()
    async with session.get(url) as response:
        content = in_pieces(response)
        while piece := await content.readany():
            size += len(piece)
            for _ in range(20):
                await asyncio.sleep(0)
    await connections.close()
    return size


async def test_an_answer_that_is_read_slowly_stops_its_server_and_comes_whole(
    resumed: list[bool],
) -> None:
    async with answering(3000) as url:
        assert await read_slowly(url) == 3000 * len(PIECE)
    *while_reading, _at_its_end = resumed
    assert while_reading and all(while_reading)


async def test_an_answer_that_is_small_is_read_without_telling_anybody_to_go_on(
    resumed: list[bool],
) -> None:
    async with answering(20) as url:
        assert await read_slowly(url) == 20 * len(PIECE)
    assert resumed == [False], "only aiohttp itself, at the end of the answer"


async def test_many_chunks_that_come_together_are_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiohttp's own reader, which takes them one by one, is not in use."""

    def refuse(*_: object) -> None:
        raise AssertionError("one by one")

    monkeypatch.setattr(StreamReader, "_read_nowait_chunk", refuse)
    chunks = b"".join(b"%x\r\n%05d\r\n" % (5, number) for number in range(100))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + END)
        await writer.drain()
        writer.close()

    async with serving(answer) as url:
        connections = Connections()
        session = await connections.session()
        async with session.get(url) as response:
            content = in_pieces(response)
            said = b""
            while piece := await content.readany():
                said += piece
        await connections.close()
    assert said == b"".join(b"%05d" % number for number in range(100))
