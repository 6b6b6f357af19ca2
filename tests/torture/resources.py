"""The server's torture by want: a provider that is away, clients that do not read, and too few files, memory and disk.

    make torture-resources
    python -m tests.torture.resources --only outage --scale 3
    python -m tests.torture.resources --only soak --caches 1

Everything runs on this machine, and each server is a process of its own with limits of its own. Progress is on stderr,
the figures are on stdout: what was bounded and what stayed flat. The exit status is 1 if something was not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from holdfast import limits
from holdfast.store.store_url import open_store
from holdfast.store.verification.verification import Finding, verify
from tests.torture import damaged
from tests.torture.campaign import Campaign, Figures, Progress, Run, play_all
from tests.torture.server_process import HOLDFAST, Served, say, serving

MB = 1 << 20
HISTORIES = 8
HISTORY_CHARS = 1_200_000
FLAT_MB = limits.page_cache_bytes / 1e6
"""A server may have so much more in memory at the end than after its first hundred failures: its file has grown with
each of them, and it remembers pages of it."""
DISCARDED = {
    "X-Turn-Policy": "cancel=discard, disconnect=discard, deadline=discard, error=discard, limit=discard"
}
SOAK_SHARE = 1 / 8
SOAK_REQUESTS = 24_000 / SOAK_SHARE
"""For whole caches. Half of them fill every cache, so that memory is flat from half time on."""
SOAK_LOOKS = 20
SOAK_FIRST = 100
"""After so many requests all code is loaded; what comes into memory then is the caches'."""
SOAK_CLIENTS = 4
SOAK_FLAT_MB = 8.0
"""So much more may be in memory at the end than at half time."""
BYSTANDER_S = 2.0
"""How long a bystander may wait for a list of sessions, 99 times of 100, on a busy machine."""
TOLD_S = 90.0
"""Within this a client is told that the disk is full: `store_retry_s`, and what a busy machine adds."""

AGENT = """
models:
  away:
    provider: away
    model: any
    base_url: {url}/v1
agents:
  root:
    model: away
    instruction: Be brief.
    fallback:
      retries: -1
    limits: {limits}
"""

Conduct: TypeAlias = Literal["answers", "calls", "refuses", "breaks off", "hangs"]
"""What a provider does when it is asked: it calls a tool that there is not; it hangs, or breaks off, after its first
words."""

Play: TypeAlias = Callable[[aiohttp.ClientSession, str, str], Coroutine[None, None, int]]
"""Says something in a conversation, such that its turn fails; the status of the answer."""

Want: TypeAlias = Callable[[Run, Progress], Coroutine[None, None, Figures]]


# ── a provider ───────────────────────────────────────────────────────────────────────────────


class Provider:
    """A model's server that answers briefly, at great length, or not at all. Keeps nothing of what it is asked."""

    def __init__(self) -> None:
        self.conduct: Conduct = "answers"
        self.pieces = 1
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if self.conduct == "refuses":
            return web.json_response({"error": {"message": "away"}}, status=500)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if self.conduct == "calls":
            call = {"index": 0, "id": "call_1", "function": {"name": "none", "arguments": "{}"}}
            await response.write(_chunk({"tool_calls": [call]}))
        for _ in range(0 if self.conduct == "calls" else self.pieces):
            await response.write(_chunk({"content": "word " * (2_000 if self.pieces > 1 else 1)}))
            if self.conduct == "hangs":
                await asyncio.sleep(3600)
            if self.conduct == "breaks off":
                assert request.transport is not None
                request.transport.abort()
                return response
        finish = "tool_calls" if self.conduct == "calls" else "stop"
        await response.write(_chunk({}, finish=finish) + b"data: [DONE]\n\n")
        return response


def _chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "any"}
    return b"data: " + msgspec.json.encode({**chunk, "choices": [choice]}) + b"\n\n"


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    app = web.Application(client_max_size=64 * MB)
    app.router.add_post("/v1/chat/completions", made.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    made.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        await runner.cleanup()


# ── somebody else ────────────────────────────────────────────────────────────────────────────


class Bystander:
    """A client that has nothing to do with it: it lists sessions, on connections of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.waited_s: list[float] = []
        self.failed = Counter[str]()

    async def look(self) -> None:
        async with aiohttp.ClientSession(self._url) as http:
            while True:
                began_s = time.monotonic()
                try:
                    async with http.get("/api/sessions?limit=1") as response:
                        await response.read()
                        if response.status != 200:
                            self.failed[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    self.failed[type(error).__name__] += 1
                self.waited_s.append(time.monotonic() - began_s)
                await asyncio.sleep(0.05)

    @property
    def p99_s(self) -> float:
        ordered = sorted(self.waited_s) or [0.0]
        return ordered[max(0, int(len(ordered) * 0.99) - 1)]

    def said(self) -> str:
        worst_s = max(self.waited_s, default=0.0)
        return (
            f"a bystander waited {self.p99_s * 1000:.0f} ms (p99), {worst_s * 1000:.0f} ms at worst"
        )

    def wrong(self) -> list[str]:
        found = [f"a bystander was refused: {dict(self.failed)}"] if self.failed else []
        if self.p99_s > BYSTANDER_S:
            found.append(f"a bystander waited {self.p99_s:.1f} s")
        return found


@asynccontextmanager
async def bystanding(server: Served) -> AsyncIterator[Bystander]:
    bystander = Bystander(server.url)
    looking = asyncio.create_task(bystander.look())
    try:
        yield bystander
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


# ── campaigns ────────────────────────────────────────────────────────────────────────────────


class Way(Struct, frozen=True):
    """A way in which a turn ends that is not kept, and what it takes."""

    provider: Conduct
    play: Play
    environment: Mapping[str, str] = {}
    limits: str = ""
    """Of the agent, as its file says them."""


async def _is_refused(http: aiohttp.ClientSession, name: str, text: str) -> int:
    return (await say(http, name, text, model="root", **DISCARDED))[0]


@asynccontextmanager
async def _begun(
    http: aiohttp.ClientSession, name: str, text: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream whose first words have come."""
    body = {"model": "root", "stream": True, "messages": [{"role": "user", "content": text}]}
    headers = {"X-Conversation-Id": name, **DISCARDED}
    async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
        while b"word" not in await response.content.readline():
            assert not response.content.at_eof()
        yield response


async def _cancel(http: aiohttp.ClientSession, name: str, text: str) -> int:
    async with _begun(http, name, text) as response:
        path = f"/api/turns/{response.headers['X-Turn-Id']}/cancel"
        async with http.post(path) as cancelled:
            await cancelled.read()
        await response.read()
        return cancelled.status


async def _leave(http: aiohttp.ClientSession, name: str, text: str) -> int:
    async with _begun(http, name, text) as response:
        response.close()
        return response.status


WAYS = {
    "model_error": Way("refuses", _is_refused),
    "model_error in the middle": Way("breaks off", _is_refused),
    "deadline": Way("hangs", _is_refused, environment={"HOLDFAST_TURN_DEADLINE_S": "0.3"}),
    "limit": Way("calls", _is_refused, limits="{steps_max: 1}"),
    "cancelled": Way("hangs", _cancel),
    "disconnected": Way("hangs", _leave),
}


async def outage(run: Run, progress: Progress) -> Figures:
    """Turns with a megabyte of history that fail, in every way that clients and a provider can bring about."""
    shown, wrong = [], []
    for name, way in WAYS.items():
        figures = await _fail_often(run, name, way, progress)
        shown.append(f"{name}: {figures.did}")
        wrong += [f"{name}: {each}" for each in figures.violations]
    return Figures(f"{HISTORIES} histories of 1.2 MB; " + "; ".join(shown), wrong)


async def _fail_often(run: Run, name: str, way: Way, progress: Progress) -> Figures:
    failures = max(200, run.count(2_000))
    marks = sorted(n for n in {100, 1_000, failures} if n <= failures)
    rss: dict[int, float] = {}
    statuses = Counter[int]()
    # Its histories are made by a server that lets turns end well.
    store = name.replace(" ", "-")
    async with provider() as upstream:
        async with (
            _served(run, store, upstream) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            for n in range(HISTORIES):
                words = "word " * (HISTORY_CHARS // 5)
                status, _, body = await say(http, f"c{n}", words, model="root")
                assert status == 200, body[:300]
        upstream.conduct = way.provider
        async with (
            _served(run, store, upstream, way=way) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            before, done = server.rss_mb(), 0

            async def fail_in(conversation: int) -> None:
                nonlocal done
                while done < failures:
                    done += 1
                    nth = done
                    statuses[await way.play(http, f"c{conversation}", f"again {nth}")] += 1
                    if nth in marks:
                        rss[nth] = server.rss_mb()
                    progress(nth, failures)

            async with bystanding(server) as bystander:
                await asyncio.gather(*map(fail_in, range(HISTORIES)))
            files = server.files()
            ended = Counter(each["fate"] for each in server.said("turn.ended"))
    wrong = bystander.wrong()
    if len(statuses) != 1 or set(ended) != {"discarded"}:
        wrong.append(f"failures were answered {dict(statuses)}, and turns {dict(ended)}")
    first, last = rss[marks[0]], rss[marks[-1]]
    if last > first + FLAT_MB:
        wrong.append(f"memory grew from {first:.0f} MB after {marks[0]} failures to {last:.0f} MB")
    held = ", ".join(f"{rss[n]:.0f} after {n:,}" for n in marks)
    did = f"{before:.0f} MB before, {held}; {files} files open; {bystander.said()}"
    return Figures(did, wrong)


async def soak(run: Run, progress: Progress, *, share: float = SOAK_SHARE) -> Figures:
    """A long life: turns of all kinds over ever new conversations, with a share of the caches so that they fill soon."""
    requests = max(2_000, run.count(round(SOAK_REQUESTS * share)))
    told = run.folder / "memory.jsonl"
    rng, conversations = random.Random(run.seed), ["conversation"]
    program = ("-m", "tests.torture.soaked", str(share), str(told))
    async with provider() as upstream, _served(run, "soak", upstream, program=program) as server:

        async def live(http: aiohttp.ClientSession, numbers: Iterator[int]) -> None:
            for n in numbers:
                await _live(http, n, rng, conversations)
                if n % (requests // SOAK_LOOKS) == 0:
                    server.process.send_signal(signal.SIGRTMIN)
                progress(n, requests)

        async with aiohttp.ClientSession(server.url) as http:
            numbers = iter(range(1, requests + 1))
            await live(http, itertools.islice(numbers, SOAK_FIRST))
            before = server.rss_mb()
            await asyncio.gather(*(live(http, numbers) for _ in range(SOAK_CLIENTS)))
        await _until(lambda: len(_lines(told)) >= SOAK_LOOKS)
    looks = _lines(told)
    half, last = looks[len(looks) // 2 - 1], looks[-1]
    wrong = []
    if last["rss"] > half["rss"] + SOAK_FLAT_MB:
        wrong.append(f"memory grew from {half['rss']:.0f} MB at half time to {last['rss']:.0f} MB")
    budget = share * limits.cache_bytes / 1e6
    if last["rss"] > before + budget + last["malloc_free"]:
        wrong.append(f"caches of {budget:.0f} MB do not explain {last['rss'] - before:.0f} MB")
    shown = "; ".join(map(_made_of, (looks[0], half, last)))
    did = f"{requests:,} requests over {len(conversations):,} conversations, caches of {budget:.0f} MB: {before:.0f} MB before; then first, at half time and last {shown}"
    return Figures(did, wrong)


def _made_of(look: Mapping[str, float]) -> str:
    caches = ", ".join(f"{name} {look[name]:.1f}" for name in ("snapshots", "histories", "ended"))
    return (
        f"{look['rss']:.0f} MB ({caches}, SQLite {look['sqlite']:.1f}, kept by the allocator "
        f"{look['malloc_free']:.1f}; {look['keys']:,.0f} keys, {look['objects']:,.0f} objects)"
    )


async def _live(
    http: aiohttp.ClientSession, n: int, rng: random.Random, conversations: list[str]
) -> None:
    """One of the things that clients do, in a conversation that is new or was talked in lately."""
    kind = rng.random()
    if rng.random() < 0.2:
        conversations.append(f"conversation-{n}")
    lately = min(int(rng.expovariate(1 / 40)), len(conversations) - 1)
    name = conversations[-1 - lately]
    if kind < 0.6:
        await say(http, name, "word " * 200, model="root")
    elif kind < 0.7:
        await say(http, name, "again", model="root", **{"Idempotency-Key": f"k{n}"})
    elif kind < 0.8:
        async with _begun(http, name, "stream") as response:
            await response.read()
    elif kind < 0.9:
        asked = {"model": "root", "input": "hello " * 50}
        async with http.post("/v1/responses", json=asked) as response:
            await response.read()
    else:
        async with http.get("/metrics" if kind < 0.95 else "/api/sessions?limit=20") as response:
            await response.read()


def _lines(told: Path) -> list[dict[str, float]]:
    return list(map(msgspec.json.decode, told.read_bytes().splitlines())) if told.exists() else []


async def slow_clients(run: Run, progress: Progress) -> Figures:
    """Clients that ask for long answers and do not read them."""
    clients = run.count(100)
    async with provider() as upstream, _served(run, "slow", upstream) as server:
        upstream.pieces = 200  # two megabytes
        before, files = server.rss_mb(), server.files()
        writers: list[asyncio.StreamWriter] = []
        async with bystanding(server) as bystander:
            for n in range(clients):
                writers.append(await _ask_and_do_not_read(server.url, n))
                progress(n + 1, clients)
            await _until_told(server, "turn.ended", clients)
            held, ended = server.rss_mb(), len(server.said("turn.ended"))
            for each in writers:
                each.close()
            for _ in range(100):
                if server.files() <= files + 5:
                    break
                await asyncio.sleep(0.5)
        after, left = server.rss_mb(), server.files()
    wrong = bystander.wrong()
    per_client = (held - before) / clients
    if per_client > 8:
        wrong.append(f"a client that does not read takes {per_client:.1f} MB")
    if left > files + 5:
        wrong.append(f"{left - files} files stay open")
    if ended < clients:
        wrong.append(f"of {clients} turns that are not read, {ended} came to an end")
    did = (
        f"{clients} clients that do not read 2 MB each: {before:.0f} MB before, {held:.0f} MB with them, "
        f"{after:.0f} MB after; {files} files open before, {left} after"
    )
    return Figures(f"{did}; {bystander.said()}", wrong)


async def files(run: Run, progress: Progress) -> Figures:
    """More connections than a server may have files: those that rest make room, and requests are answered."""
    ceiling, rounds = 256, max(2, run.count(3))
    wrong: list[str] = []
    async with _served(run, "files", None, ceilings={resource.RLIMIT_NOFILE: ceiling}) as server:
        before = server.files()
        for nth in range(rounds):
            crowd = [await _connect(server.url) for _ in range(ceiling + 50)]
            for when in ("with the crowd there", "after the crowd had gone"):
                async with aiohttp.ClientSession(server.url) as http:
                    status, _, body = await say(http, f"c{nth}", when)
                if status != 200:
                    wrong.append(f"{when}: {status} {body[:200]!r}")
                for each in crowd:
                    each.close()
            progress(nth + 1, rounds)
        bounded, exhausted = (
            len(server.said(each)) for each in ("connections.bounded", "files.exhausted")
        )
        after = server.files()
    if not bounded or exhausted:
        wrong.append(
            f"told {bounded} times of its bound, and {exhausted} times that no files are left"
        )
    did = f"{rounds} crowds of {ceiling + 50} connections on {ceiling} files: answered all along, {before} files open before, {after} after"
    return Figures(did, wrong)


async def memory(run: Run, progress: Progress) -> Figures:
    """Large bodies of as many messages as there may be, more at once than fit."""
    ceiling, rounds, at_once = 900, max(2, run.count(3)), 10
    pairs = limits.request_items_max // 2 - 1
    words = "ab" * (
        limits.body_bytes_max // pairs // 5
    )  # with what JSON adds, nearly all of a body
    pair = [{"role": "user", "content": words}, {"role": "assistant", "content": words}]
    body = msgspec.json.encode(
        {"model": "demo", "messages": [*pair * pairs, {"role": "user", "content": "x"}]}
    )
    assert 0.8 * limits.body_bytes_max < len(body) < limits.body_bytes_max
    statuses = Counter[str]()
    async with _served(run, "memory", None, ceilings={resource.RLIMIT_AS: ceiling * MB}) as server:
        peak = 0.0
        async with aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(300)) as http:
            for nth in range(rounds):
                names = [f"c{nth}-{n}" for n in range(at_once)]
                answers = await asyncio.gather(*(_post(http, each, body) for each in names))
                statuses.update(answers)
                peak = max(peak, server.rss_mb()) if server.is_running else peak
                progress(nth + 1, rounds)
            alive = server.is_running
            status = (await say(http, "after", "hello"))[0] if alive else 0
    wrong = (
        [] if alive else [f"the server ended with {server.process.returncode}: {server.log_end()}"]
    )
    if set(statuses) - {"200", "503"} or not statuses["200"]:
        wrong.append(f"large bodies were answered {dict(statuses)}")
    if alive and status != 200:
        wrong.append(f"a small request afterwards was answered {status}")
    did = f"{rounds} × {at_once} bodies of {len(body) / 1e6:.1f} MB under {ceiling} MB: {dict(statuses)}, {peak:.0f} MB in memory"
    return Figures(did, wrong)


async def disk(run: Run, progress: Progress) -> Figures:
    """A disk that is full while turns run, and has room again later."""
    with _small_disk(run.folder, size_mb=16) as folder:
        if folder is None:
            return Figures("left out: no small disk can be mounted here (it takes root)", [])
        return await _fill_disk(run, folder, progress)


async def _fill_disk(run: Run, folder: Path, progress: Progress) -> Figures:
    store = f"sqlite:///{folder / 'store.db'}"
    statuses, worst_s = Counter[str](), 0.0
    acknowledged: dict[str, int] = {}
    wrong: list[str] = []
    attempts = run.count(40)
    async with serving(run.folder, store, "demo", name="disk") as server:
        timeout = aiohttp.ClientTimeout(total=2 * TOLD_S)
        async with aiohttp.ClientSession(server.url, timeout=timeout) as http:
            for n in range(4):
                status, headers, _ = await say(http, f"c{n}", "hello")
                acknowledged[f"c{n}"] = int(headers["X-Conversation-Version"])
            ballast = folder / "ballast"
            await asyncio.to_thread(_fill, ballast)
            for n in range(attempts):
                began_s = time.monotonic()
                status, headers, body = await say(http, f"c{n % 4}", "word " * 20_000)
                worst_s = max(worst_s, time.monotonic() - began_s)
                code = "" if status == 200 else msgspec.json.decode(body)["error"]["code"]
                statuses[f"{status} {code}".strip()] += 1
                if status == 200:
                    acknowledged[f"c{n % 4}"] = int(headers["X-Conversation-Version"])
                async with http.get("/api/sessions") as reading:
                    if reading.status != 200:
                        wrong.append(
                            f"reading was answered {reading.status} while the disk was full"
                        )
                progress(n + 1, attempts)
            await asyncio.to_thread(ballast.unlink)
            for name, version in acknowledged.items():
                status, headers, body = await say(http, name, "and now?")
                if status != 200 or int(headers["X-Conversation-Base"]) != version:
                    wrong.append(f"{name}, at {version}, does not go on: {status} {body[:200]!r}")
    opened = await open_store(store)
    wrong += [str(each) async for each in verify(opened) if isinstance(each, Finding)]
    await opened.close()
    if worst_s > TOLD_S:
        wrong.append(f"a client waited {worst_s:.0f} s to be told")
    if set(statuses) - {"200", "503 storage_full"}:
        wrong.append(f"a full disk was told as {dict(statuses)}")
    did = f"{attempts} turns on a full disk: {dict(statuses)}, told within {worst_s:.1f} s; all went on afterwards"
    return Figures(did, wrong)


async def damage(run: Run, progress: Progress) -> Figures:
    """Stores that are damaged in several ways, and what the conversations notice of it that are not."""
    async with provider() as upstream:
        return await damaged.damage(
            run, progress, lambda url: _served(run, "damage", upstream, store=url)
        )


WANTS: dict[str, Want] = {
    "outage": outage,
    "soak": soak,
    "slow": slow_clients,
    "files": files,
    "memory": memory,
    "disk": disk,
    "damage": damage,
}


# ── means ────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _served(
    run: Run,
    name: str,
    upstream: Provider | None,
    *,
    ceilings: Mapping[int, int] | None = None,
    way: Way | None = None,
    program: Sequence[str] = HOLDFAST,
    store: str = "",
) -> AsyncIterator[Served]:
    """A server on this store, or on a file of this name: of the demo agent, or of one that asks this provider."""
    source, environment = "demo", dict(way.environment if way else {})
    if upstream is not None:
        agent = run.folder / f"{name}.yaml"
        text = AGENT.format(url=upstream.url, limits=(way and way.limits) or "{}")
        await asyncio.to_thread(agent.write_text, text)
        source, environment = str(agent), {"AWAY_API_KEY": "none", **environment}
    async with serving(
        run.folder,
        store or f"sqlite:///{run.folder / name}.db",
        source,
        name=name,
        ceilings=ceilings,
        environment=environment,
        program=program,
    ) as server:
        yield server


async def _until_told(server: Served, event: str, times: int) -> None:
    """Wait until the log has this so often. If it never does, what is looked at next will show it."""
    await _until(lambda: len(server.said(event)) >= times)


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(240):
        if condition():
            return
        await asyncio.sleep(0.25)


async def _connect(url: str) -> asyncio.StreamWriter:
    host, _, port = url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    return writer


async def _ask_and_do_not_read(url: str, n: int) -> asyncio.StreamWriter:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    asked = {
        "model": "root",
        "stream": True,
        "messages": [{"role": "user", "content": "Tell me all"}],
    }
    body = msgspec.json.encode(asked)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\nx-conversation-id: s{n}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


async def _post(http: aiohttp.ClientSession, name: str, body: bytes) -> str:
    headers = {"X-Conversation-Id": name, "content-type": "application/json"}
    await asyncio.sleep(random.random())
    try:
        async with http.post("/v1/chat/completions", data=body, headers=headers) as response:
            await response.read()
            return str(response.status)
    except aiohttp.ClientError as error:
        return type(error).__name__


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            pass


@contextmanager
def _small_disk(folder: Path, *, size_mb: int) -> Iterator[Path | None]:
    """A disk of so many megabytes; None where none can be had."""
    where = folder / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "none", str(where)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode
    except OSError:
        done = 1
    if done:
        yield None
        return
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=False)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=WANTS, help="may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="1 takes some minutes")
    parser.add_argument(
        "--caches", type=float, default=SOAK_SHARE, help="the share of its caches that a soak fills"
    )
    options = parser.parse_args(arguments)
    wants: dict[str, Want] = {**WANTS, "soak": partial(soak, share=options.caches)}
    with tempfile.TemporaryDirectory(prefix="holdfast-resources-") as folder:
        run = Run(options.seed, options.scale, Path(folder))
        return play_all({name: _alone(wants[name]) for name in options.only or WANTS}, run)


def _alone(want: Want) -> Campaign:
    """A campaign with a loop of its own."""
    return lambda run, progress: asyncio.run(want(run, progress))


if __name__ == "__main__":
    sys.exit(main())
