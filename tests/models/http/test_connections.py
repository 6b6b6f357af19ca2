"""The pool of connections: how an answer is read off them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler

from holdfast.models.http.connections import PIECES_MAX, Connections, _handler

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
        while piece := await response.content.readany():
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
    assert resumed and all(resumed)


async def test_an_answer_that_is_small_is_read_without_telling_anybody_to_go_on(
    resumed: list[bool],
) -> None:
    async with answering(20) as url:
        assert await read_slowly(url) == 20 * len(PIECE)
    assert resumed == []


async def test_pieces_that_come_while_a_reader_takes_others_stay_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiohttp counts the pieces before it takes them, and lets more come between two."""
    protocol = _handler()(asyncio.get_running_loop())
    reader = StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())

    def more(self: ResponseHandler, data: bytes) -> None:
        for _ in range(PIECES_MAX):
            reader.feed_data(b"2")

    monkeypatch.setattr(ResponseHandler, "data_received", more)
    protocol._payload = reader
    protocol._reading_paused = True
    for _ in range(3):
        reader.feed_data(b"1")
    assert reader.read_nowait() == b"111"
    assert reader.read_nowait() == PIECES_MAX * b"2"


async def test_many_chunks_that_come_together_are_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    take = StreamReader._read_nowait_chunk

    def noting(self: StreamReader, n: int) -> bytes:
        piece = take(self, n)
        taken.append(len(piece))
        return piece

    monkeypatch.setattr(StreamReader, "_read_nowait_chunk", noting)
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
            said = b""
            while piece := await response.content.readany():
                said += piece
        await connections.close()
    assert said == b"".join(b"%05d" % number for number in range(100))
    assert sum(taken) == len(said)
    assert len(taken) < 10
