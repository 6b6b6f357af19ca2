"""The least that could do the work: a proxy of the same parts, with a durable turn, and no promises.

uvicorn with httptools on uvloop, aiohttp, msgspec and apsw, as Holdfast uses them. Chunks are read and written anew,
since somebody has to know what was said; one row per turn is synced before the end of the answer is sent. There is
no history, no retry, no lock, and nothing is checked.

Run by `bench/speed` in a process of its own: `python bare.py PORT UPSTREAM_PORT DATABASE`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import apsw
import msgspec
import uvicorn

BEFORE = (
    b'data: {"id":"chatcmpl-bare","object":"chat.completion.chunk","created":1750000000,"model":"bare",'
    b'"choices":[{"index":0,"delta":{"content":'
)
AFTER = b'},"logprobs":null,"finish_reason":null}]}\n\n'
FINISH = b'data: {"id":"chatcmpl-bare","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    message: Delta = msgspec.field(default_factory=Delta)


class Chunk(msgspec.Struct):
    choices: list[Choice] = msgspec.field(default_factory=list)


class Asked(msgspec.Struct):
    stream: bool = False


read_chunk = msgspec.json.Decoder(Chunk).decode
read_asked = msgspec.json.Decoder(Asked).decode
encode = msgspec.json.Encoder().encode


class Bare:
    """The ASGI application."""

    def __init__(self, upstream: str, path: str) -> None:
        self._upstream = upstream
        self._thread = ThreadPoolExecutor(1)
        self._db = apsw.Connection(path)
        for statement in ("pragma journal_mode=wal", "pragma synchronous=full"):
            # To their end: a statement that is left half-way keeps every later one from being synced.
            self._db.execute(statement).fetchall()
        self._db.execute("create table turn (asked, said)").fetchall()
        self._http: aiohttp.ClientSession | None = None

    async def __call__(
        self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["method"] == "GET":
            await self._answer(send, b"{}")
            return
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        headers = {"content-type": "application/json"}
        async with self._http.post(self._upstream, data=body, headers=headers) as response:
            if read_asked(body).stream:
                await self._stream(response, receive, send, body)
            else:
                answer = await response.read()
                await self._keep(body, read_chunk(answer).choices[0].message.content or "")
                await self._answer(send, answer)

    async def _stream(
        self, response: aiohttp.ClientResponse, receive: Any, send: Any, body: bytes
    ) -> None:
        gone = asyncio.ensure_future(receive())  # the client: nobody else would stop this
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        said: list[str] = []
        rest = b""
        async for piece in response.content.iter_any():
            if gone.done():
                return
            *frames, rest = (rest + piece).split(b"\n\n")
            out = []
            for frame in frames:
                if frame != b"data: [DONE]":
                    for choice in read_chunk(frame[6:]).choices:
                        if text := choice.delta.content:
                            said.append(text)
                            out += BEFORE, encode(text), AFTER
            await send({"type": "http.response.body", "body": b"".join(out), "more_body": True})
        gone.cancel()
        await self._keep(body, "".join(said))
        await send({"type": "http.response.body", "body": FINISH})

    async def _answer(self, send: Any, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _keep(self, asked: bytes, said: str) -> None:
        """One row, synced."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._insert, asked, said)

    def _insert(self, asked: bytes, said: str) -> None:
        self._db.execute("insert into turn values (?, ?)", (asked, said)).fetchall()


if __name__ == "__main__":
    port, upstream_port, path = sys.argv[1:]
    app = Bare(f"http://127.0.0.1:{upstream_port}/v1/chat/completions", path)
    uvicorn.run(app, port=int(port), log_level="error", access_log=False, lifespan="off")
