"""The server's torture by want: a provider that is away, clients that do not read, and too few files, memory and disk.

    make torture-resources
    python -m tests.torture.resources --only outage --scale 3

Everything runs on this machine, and each server is a process of its own with limits of its own. Progress is on stderr,
the figures are on stdout: what was bounded and what stayed flat. The exit status is 1 if something was not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias

import aiohttp
import msgspec
from aiohttp import web

from holdfast.store.open import open_store
from holdfast.store.verify import Finding, verify
from tests.torture.campaign import Figures, Progress, Run
from tests.torture.serving import Served, say, serving

MB = 1 << 20
HISTORIES = 8
HISTORY_CHARS = 1_200_000
FLAT_MB = 60.0
FLAT_SHARE = 1.3
"""What a server has in memory may be larger at the end than after its first hundred failures by so much, or so many."""
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
"""

Want: TypeAlias = Callable[[Run, Progress], Coroutine[None, None, Figures]]


# ── a provider ───────────────────────────────────────────────────────────────────────────────


class Provider:
    """A model's server that answers briefly, at great length, or not at all. Keeps nothing of what it is asked."""

    def __init__(self) -> None:
        self.away = False
        self.pieces = 1
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if self.away:
            return web.json_response({"error": {"message": "away"}}, status=500)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(self.pieces):
            await response.write(_chunk({"content": "word " * (2_000 if self.pieces > 1 else 1)}))
        await response.write(_chunk({}, finish="stop") + b"data: [DONE]\n\n")
        return response


def _chunk(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "any"}
    return b"data: " + msgspec.json.encode({**chunk, "choices": [choice]}) + b"\n\n"


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    app = web.Application(client_max_size=64 * MB)
    app.router.add_post("/v1/chat/completions", made.answer)
    runner = web.AppRunner(app)
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


async def outage(run: Run, progress: Progress) -> Figures:
    """A provider that fails every request of conversations with a megabyte of history."""
    failures = max(200, run.count(2_000))
    marks = sorted(n for n in {100, 1_000, failures} if n <= failures)
    rss: dict[int, float] = {}
    statuses = Counter[int]()
    async with provider() as upstream, _served(run, "outage", upstream) as server:
        async with aiohttp.ClientSession(server.url) as http:
            for n in range(HISTORIES):
                status, _, body = await say(
                    http, f"c{n}", "word " * (HISTORY_CHARS // 5), model="root"
                )
                assert status == 200, body[:300]
            upstream.away = True
            before = server.rss_mb()
            async with bystanding(server) as bystander:
                for n in range(1, failures + 1):
                    status, _, _ = await say(http, f"c{n % HISTORIES}", f"again {n}", model="root")
                    statuses[status] += 1
                    if n in marks:
                        rss[n] = server.rss_mb()
                    progress(n, failures)
        files = server.files()
    wrong = bystander.wrong()
    if set(statuses) != {502}:
        wrong.append(f"failures were answered {dict(statuses)}")
    first, last = rss[marks[0]], rss[marks[-1]]
    if last > first * FLAT_SHARE + FLAT_MB:
        wrong.append(f"memory grew from {first:.0f} MB after {marks[0]} failures to {last:.0f} MB")
    shown = ", ".join(f"{rss[n]:.0f} after {n:,}" for n in marks)
    did = f"{failures:,} failures on {HISTORIES} histories of 1.2 MB: {before:.0f} MB before, {shown}; {files} files open"
    return Figures(f"{did}; {bystander.said()}", wrong)


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
    """Large bodies of small messages, more at once than fit."""
    ceiling, rounds, at_once = 900, max(2, run.count(3)), 10
    pair = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cd"}]
    body = msgspec.json.encode(
        {"model": "demo", "messages": [*pair * 51_000, {"role": "user", "content": "x"}]}
    )
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


WANTS: dict[str, Want] = {
    "outage": outage,
    "slow": slow_clients,
    "files": files,
    "memory": memory,
    "disk": disk,
}


# ── means ────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _served(
    run: Run, name: str, upstream: Provider | None, *, ceilings: Mapping[int, int] | None = None
) -> AsyncIterator[Served]:
    """A server on an empty store: of the demo agent, or of one that asks this provider."""
    source, environment = "demo", {}
    if upstream is not None:
        agent = run.folder / f"{name}.yaml"
        await asyncio.to_thread(agent.write_text, AGENT.format(url=upstream.url))
        source, environment = str(agent), {"AWAY_API_KEY": "none"}
    store = f"sqlite:///{run.folder / name}.db"
    async with serving(
        run.folder, store, source, name=name, ceilings=ceilings, environment=environment
    ) as server:
        yield server


async def _until_told(server: Served, event: str, times: int) -> None:
    """Wait until the log has this so often. If it never does, what is looked at next will show it."""
    for _ in range(240):
        if len(server.said(event)) >= times:
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
    options = parser.parse_args(arguments)
    violations = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-resources-") as made:
        for name in options.only or WANTS:
            began_s = time.monotonic()
            folder = Path(made) / name
            folder.mkdir()
            figures = asyncio.run(
                WANTS[name](Run(options.seed, options.scale, folder), Progress(name))
            )
            violations += len(figures.violations)
            verdict = "ok" if not figures.violations else f"{len(figures.violations)} WRONG"
            print(
                f"{name:8}{time.monotonic() - began_s:6.0f} s  {verdict:10}{figures.did}",
                flush=True,
            )
            for each in figures.violations[:10]:
                print(f"    {each}", flush=True)
    print(f"\n{violations} violations, {os.cpu_count()} cores")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
