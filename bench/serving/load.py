"""A client that costs little, and measures a server from outside: what it answers, and what it spends on it.

Reads bytes and counts tokens in them; nothing is decoded. Run in a process of its own, with a `Job` as JSON; prints
what it found as JSON. A job that would take too long ends at its limit, with what it has found until then.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterator
from typing import Literal

import msgspec
import uvloop

from serving.answers import Answer
from serving.process import cpu_s, rss_mb, written_bytes
from serving.requests import Asking, named

WARM_UP = 5


class Job(msgspec.Struct, frozen=True):
    """What is to be measured, on which server. `pid` is 0 if nobody wants to know what it spends."""

    what: Literal["answers", "pace", "first", "whole", "open", "sessions", "fill"]
    model: str
    port: int = 0
    pid: int = 0
    request: str = "serving.requests:chat"
    streams: int = 1
    turns: int = 1
    """Of each stream."""
    stream: bool = True
    tokens: int = 0
    """What an answer has; more that look like it are the same ones again. 0 if nobody knows."""
    window_s: float = 2.0
    """Where answers have no end."""
    limit_s: float = 20.0
    """For all turns together; for streams without an end, until they have begun."""
    conversations: tuple[str, ...] = ()
    """To be continued, in turns; otherwise every request begins one of its own."""
    past: int = 0
    """Messages to send again, to a server that keeps none."""


class Found(msgspec.Struct):
    """What came of it. CPU and bytes are those of the server, all its processes together."""

    tokens: int = 0
    turns: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    each_ms: list[float] = []
    rss_grown_mb: float = 0.0
    written_bytes: int = 0
    cut: bool = False
    """The limit was reached."""


class Refused(RuntimeError):
    """The server has answered something else than was asked for."""


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, tokens_max: int) -> None:
        self.counted = 0
        """Tokens of answers that have ended."""
        self.first_s: float | None = None
        """When the first token of this answer came."""
        self.answer = Answer()
        self.is_open = False
        self._tokens_max = tokens_max
        self._done: asyncio.Future[None] | None = None
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def tokens(self) -> int:
        return self.counted + self._here()

    def _here(self) -> int:
        found = self.answer.tokens
        return min(found, self._tokens_max) if self._tokens_max else found

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._done is not None and not self._done.done():
            ended = self.answer.closed()
            self._end(None if ended else exc or ConnectionError("the server hung up"))

    async def connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", port)

    async def ask(self, port: int, request: bytes) -> None:
        """Ask, and wait for the end of the answer. A server that has hung up meanwhile is called again.

        An answer without a token is an error, whatever its status says: raises Refused.
        """
        if not self.is_open:
            await self.connect(port)
        self.counted += self._here()
        self.answer, self.first_s = Answer(), None
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self._done
        if not self.answer.tokens:
            raise Refused(f"an answer without a token: {self.answer.head[:1000]!r}")

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        answer.feed(data)
        if answer.status and not 200 <= answer.status < 300:
            self._end(Refused(f"not what was asked for: {answer.head[:1000]!r}"))
            return
        if self.first_s is None and answer.tokens:
            self.first_s = time.perf_counter()
            if not self.begun.done():
                self.begun.set_result(None)
        if answer.ended:
            self._end()

    def _end(self, failure: Exception | None = None) -> None:
        if self._done is None or self._done.done():
            return
        if failure is not None:
            self._done.set_exception(failure)
        else:
            self._done.set_result(None)


class Load:
    """A job at work."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._asking: Asking = named(job.request)
        self._until = time.perf_counter() + job.limit_s
        run = os.urandom(4).hex()
        fresh = (f"bench-{run}-{number}" for number in itertools.count())
        known = itertools.cycle(job.conversations)
        self._names: Iterator[str] = known if job.conversations else fresh
        self._ended = 0
        """Turns."""

    async def run(self) -> Found:
        match self._job.what:
            case "answers":
                return await self._answers()
            case "pace":
                return await self._pace()
            case "open":
                return await self._open_streams()
            case "sessions":
                return await self._sessions()
            case "first" | "whole" | "fill":
                return await self._turns()

    async def _connect(self, count: int) -> list[Client]:
        clients = [Client(self._job.tokens) for _ in range(count)]
        for client in clients:
            await client.connect(self._job.port)
        return clients

    async def _ask(self, client: Client, *, stream: bool) -> None:
        job = self._job
        request = self._asking(job.model, next(self._names), stream, past=job.past)
        await client.ask(job.port, request)

    async def _ask_often(self, client: Client, turns: int, *, stream: bool) -> None:
        """As often as asked for, or until the limit."""
        for _ in range(turns):
            if time.perf_counter() > self._until:
                return
            await self._ask(client, stream=stream)
            self._ended += 1

    async def _answers(self) -> Found:
        """Whole answers side by side: everything that they cost, from the first request to the last sync."""
        job = self._job
        clients = await self._connect(job.streams)
        cpu, wall = cpu_s(job.pid), time.perf_counter()
        often = [self._ask_often(each, job.turns, stream=job.stream) for each in clients]
        tasks = [asyncio.create_task(each) for each in often]
        done, _ = await asyncio.wait(tasks, timeout=job.limit_s)
        found = Found(
            tokens=sum(each.tokens for each in clients),
            turns=self._ended,
            cpu_s=cpu_s(job.pid) - cpu,
            wall_s=time.perf_counter() - wall,
            cut=self._ended < job.turns * job.streams,
        )
        for task in done:
            task.result()
        await _leave(clients, tasks)
        return found

    async def _begin(self, clients: list[Client]) -> list[asyncio.Task[None]]:
        """Streams that have begun and have no end."""
        tasks = [asyncio.create_task(self._ask(each, stream=True)) for each in clients]
        try:
            async with asyncio.timeout(self._job.limit_s):
                for client, task in zip(clients, tasks, strict=True):
                    await asyncio.wait({client.begun, task}, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        task.result()
        except TimeoutError:
            begun = sum(client.begun.done() for client in clients)
            said = f"{begun} of {len(clients)} streams had begun after {self._job.limit_s:.0f} s"
            raise Refused(said) from None
        return tasks

    async def _pace(self) -> Found:
        job = self._job
        clients = await self._connect(job.streams)
        tasks = await self._begin(clients)
        tokens = sum(each.tokens for each in clients)
        cpu, wall = cpu_s(job.pid), time.perf_counter()
        await asyncio.sleep(job.window_s)
        came = sum(each.tokens for each in clients) - tokens
        if not came:
            raise Refused(f"no token came in {job.window_s:.0f} s")
        found = Found(
            tokens=came,
            cpu_s=cpu_s(job.pid) - cpu,
            wall_s=time.perf_counter() - wall,
        )
        await _leave(clients, tasks)
        return found

    async def _open_streams(self) -> Found:
        """How memory grows from a quarter of the streams to all of them: what the first ones load is not counted."""
        job = self._job
        clients = await self._connect(job.streams)
        few = job.streams // 4
        tasks = await self._begin(clients[:few])
        await asyncio.sleep(0.3)
        before = rss_mb(job.pid)
        tasks += await self._begin(clients[few:])
        await asyncio.sleep(0.3)
        grown = rss_mb(job.pid) - before
        await _leave(clients, tasks)
        return Found(rss_grown_mb=grown, turns=job.streams - few)

    async def _sessions(self) -> Found:
        """How memory grows by sessions that have had a turn, and now have nothing to do.

        A quarter of them comes before, for what the first ones load, or as many as a quarter of the time allows.
        """
        job = self._job
        clients = await self._connect(job.streams)
        few = max(1, job.turns // 4)
        until, self._until = self._until, time.perf_counter() + job.limit_s / 4
        await asyncio.gather(*(self._ask_often(each, few, stream=False) for each in clients))
        await asyncio.sleep(0.3)
        before, self._ended, self._until = rss_mb(job.pid), 0, until
        rest = job.turns - few
        await asyncio.gather(*(self._ask_often(each, rest, stream=False) for each in clients))
        await asyncio.sleep(0.3)
        found = Found(
            rss_grown_mb=rss_mb(job.pid) - before,
            turns=self._ended,
            cut=self._ended < rest * job.streams,
        )
        await _leave(clients, [])
        return found

    async def _turns(self) -> Found:
        """One turn after the other, on one connection: until the first token, or until the end."""
        job = self._job
        [client] = await self._connect(1)
        streams = job.what == "first"
        if not job.conversations:
            # Connections, caches. Once will do where a single turn may take seconds.
            await self._ask_often(client, 1 if job.past else WARM_UP, stream=streams)
        each_ms: list[float] = []
        cpu, written, wall = cpu_s(job.pid), written_bytes(job.pid), time.perf_counter()
        while len(each_ms) < job.turns and time.perf_counter() < self._until:
            began = time.perf_counter()
            await self._ask(client, stream=streams)
            at = client.first_s if streams else time.perf_counter()
            assert at is not None, "an answer has a token"
            each_ms.append((at - began) * 1000)
        found = Found(
            each_ms=each_ms,
            turns=len(each_ms),
            cpu_s=cpu_s(job.pid) - cpu,
            wall_s=time.perf_counter() - wall,
            written_bytes=written_bytes(job.pid) - written,
            cut=len(each_ms) < job.turns,
        )
        await _leave([client], [])
        return found


async def _leave(clients: list[Client], tasks: list[asyncio.Task[None]]) -> None:
    for client in clients:
        if client.is_open:
            client.transport.abort()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    try:
        found = await Load(job).run()
    except (Refused, OSError) as failure:
        raise SystemExit(str(failure)) from failure
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    uvloop.run(main())
