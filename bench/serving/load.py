"""A client that costs little, and measures a server from outside: what it answers, and what it spends on it.

Reads bytes and counts frames; nothing is decoded. Run by `bench/server.py` in a process of its own, with a `Job`
as JSON; prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from typing import Literal

import msgspec
import uvloop

BEGIN_S = 30.0
"""How long streams may take to begin, at most."""


class Job(msgspec.Struct):
    """What is to be measured, on which server. `pid` is 0 if nobody wants to know what it spends."""

    what: Literal["answers", "pace", "first", "whole", "idle"]
    port: int
    model: str
    pid: int = 0
    streams: int = 1
    turns: int = 1
    """Of each stream."""
    window_s: float = 2.0
    """Where answers have no end."""


class Found(msgspec.Struct):
    """What came of it. CPU is that of the server, all its threads together."""

    tokens: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    each_ms: list[float] = []
    rss_mb: float = 0.0
    rss_grown_mb: float = 0.0


def cpu_s(pid: int) -> float:
    """The CPU time of another process, to the nanosecond: Linux has a clock for each one, named after its id."""
    return time.clock_gettime((~pid << 3) | 2) if pid else 0.0


def rss_mb(pid: int) -> float:
    if not pid:
        return 0.0
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


_run = os.urandom(4).hex()
_numbers = itertools.count()


def _request(model: str, *, stream: bool) -> bytes:
    """A turn of a conversation of its own."""
    body = msgspec.json.encode(
        {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Tell me."}]}
    )
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer bench\r\nX-Conversation-Id: bench-{_run}-{next(_numbers)}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.frames = 0
        self.first_s: float | None = None
        """When the first token came."""
        self._tail = b""
        self._streams = self._fresh = True
        self._left: int | None = None
        self._done: asyncio.Future[None] | None = None
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None:
            self._end(exc or ConnectionError("the server hung up"))

    async def ask(self, model: str, *, stream: bool) -> None:
        """Ask, and wait for the end of the answer."""
        self._streams, self._left, self._tail = stream, None, b""
        self._fresh = True
        self.first_s = None
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(_request(model, stream=stream))
        await self._done

    async def ask_often(self, model: str, turns: int) -> None:
        for _ in range(turns):
            await self.ask(model, stream=True)

    def data_received(self, data: bytes) -> None:
        if self._fresh:
            self._fresh = False
            if not data.startswith(b"HTTP/1.1 200"):
                self._end(RuntimeError(f"not what was asked for: {data[:1000]!r}"))
        if not self._streams:
            self._whole(data)
            return
        self.frames += data.count(b"\n\n") + (self._tail[-1:] + data[:1] == b"\n\n")
        seen = self._tail + data[-8:] if len(data) < 8 else data
        if self.first_s is None and b'" token' in self._tail + data:
            self.first_s = time.perf_counter()
            if not self.begun.done():
                self.begun.set_result(None)
        self._tail = seen[-8:]
        if self._tail.endswith(b"\r\n0\r\n\r\n"):
            self._end()

    def _whole(self, data: bytes) -> None:
        if self._left is None:
            head, _, body = (self._tail + data).partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            self._left, data = int(length), body
        self._left -= len(data)
        if self._left <= 0:
            self._end()

    def _end(self, failure: Exception | None = None) -> None:
        assert self._done is not None
        if self._done.done():
            return
        if failure is not None:
            self._done.set_exception(failure)
        else:
            self._done.set_result(None)


async def _connect(port: int) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(Client, "127.0.0.1", port)
    return client


async def _answers(job: Job) -> Found:
    """Whole answers side by side: everything that they cost, from the first request to the last sync."""
    clients = [await _connect(job.port) for _ in range(job.streams)]
    cpu, wall = cpu_s(job.pid), time.perf_counter()
    await asyncio.gather(*(each.ask_often(job.model, job.turns) for each in clients))
    spent = time.perf_counter() - wall
    for client in clients:
        client.transport.close()
    tokens = sum(each.frames for each in clients)
    return Found(tokens=tokens, cpu_s=cpu_s(job.pid) - cpu, wall_s=spent)


async def _open(job: Job) -> tuple[list[Client], list[asyncio.Task[None]]]:
    """Streams that have begun and have no end."""
    clients = [await _connect(job.port) for _ in range(job.streams)]
    tasks = [asyncio.create_task(each.ask(job.model, stream=True)) for each in clients]
    async with asyncio.timeout(BEGIN_S):
        for client, task in zip(clients, tasks, strict=True):
            await asyncio.wait({client.begun, task}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
    return clients, tasks


async def _pace(job: Job) -> Found:
    clients, tasks = await _open(job)
    cpu, wall, tokens = cpu_s(job.pid), time.perf_counter(), sum(each.frames for each in clients)
    await asyncio.sleep(job.window_s)
    found = Found(
        tokens=sum(each.frames for each in clients) - tokens,
        cpu_s=cpu_s(job.pid) - cpu,
        wall_s=time.perf_counter() - wall,
    )
    await _leave(clients, tasks)
    return found


async def _idle(job: Job) -> Found:
    before = rss_mb(job.pid)
    clients, tasks = await _open(job)
    await asyncio.sleep(0.2)
    grown = rss_mb(job.pid) - before
    await _leave(clients, tasks)
    return Found(rss_mb=before, rss_grown_mb=grown)


async def _turns(job: Job) -> Found:
    """One turn after the other, on one connection: until the first token, or until the end."""
    client = await _connect(job.port)
    streams = job.what == "first"
    for _ in range(5):  # connections, caches
        await client.ask(job.model, stream=streams)
    each_ms: list[float] = []
    cpu = cpu_s(job.pid)
    for _ in range(job.turns):
        began = time.perf_counter()
        await client.ask(job.model, stream=streams)
        at = client.first_s if streams else time.perf_counter()
        assert at is not None
        each_ms.append((at - began) * 1000)
    spent = cpu_s(job.pid) - cpu
    client.transport.close()
    return Found(each_ms=each_ms, cpu_s=spent)


async def _leave(clients: list[Client], tasks: list[asyncio.Task[None]]) -> None:
    for client in clients:
        client.transport.abort()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    match job.what:
        case "answers":
            found = await _answers(job)
        case "pace":
            found = await _pace(job)
        case "idle":
            found = await _idle(job)
        case "first" | "whole":
            found = await _turns(job)
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    uvloop.run(main())
