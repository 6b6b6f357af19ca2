"""The server's torture: thousands of slow, silent and half-sent connections, while normal clients are served.

    make torture-http
    python -m tests.torture.http --connections 3000

The server is a process of its own with its real limits. Progress is on stderr, the figures on stdout; the exit status
is 1 if a connection was held for longer than it may, or a normal request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import aiohttp

from holdfast import limits
from tests.server.slow import Held, besiege

MARGIN_S = 15.0
"""What a busy machine may add to a limit."""
BOUND_S = limits.request_body_s + limits.request_head_s + limits.keep_alive_s + MARGIN_S
"""Nothing may be held for longer: a body that drips is timed out, answered, and then cut off."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--connections", type=int, default=3000)
    connections: int = parser.parse_args().connections
    _raise_file_limit(connections * 2 + 500)
    with _server() as port:
        held, latencies = asyncio.run(_torture(port, connections))
    return _report(held, latencies)


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


@contextmanager
def _server() -> Iterator[int]:
    """A server process over an empty store, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'store.db'}"
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "holdfast",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--store",
                store,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            line = next(each for each in process.stdout if "listening" in each)
            yield int(line.rsplit(":", 1)[1])
        finally:
            process.terminate()
            process.wait()


async def _torture(port: int, connections: int) -> tuple[list[Held], list[float]]:
    began = time.monotonic()
    all_there = asyncio.Event()
    siege = asyncio.create_task(
        besiege("127.0.0.1", port, connections=connections, opened=all_there.set, most_s=BOUND_S)
    )
    await asyncio.wait(
        {siege, asyncio.create_task(all_there.wait())}, return_when="FIRST_COMPLETED"
    )
    print(f"{connections} connections after {time.monotonic() - began:.1f} s", file=sys.stderr)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        talking = asyncio.create_task(_talk(http, siege))
        latencies = await _look(http, siege)
        await talking
    return await siege, latencies


async def _look(http: aiohttp.ClientSession, siege: asyncio.Task[list[Held]]) -> list[float]:
    """List sessions until the siege is over; how long each answer took."""
    latencies: list[float] = []
    while not siege.done():
        began = time.monotonic()
        async with http.get("/api/sessions") as response:
            await response.read()
            _demand_ok(response)
        latencies.append(time.monotonic() - began)
        if len(latencies) % 5000 == 0:
            print(f"{len(latencies)} normal requests", file=sys.stderr)
        await asyncio.sleep(0.001)
    return latencies


async def _talk(http: aiohttp.ClientSession, siege: asyncio.Task[list[Held]]) -> None:
    """Have turns, one after the other, until the siege is over."""
    async with http.get("/v1/models") as response:
        model = (await response.json())["data"][0]["id"]
    asked = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    for nth in count():
        if siege.done():
            return
        name = {"X-Conversation-Id": f"c{nth}"}
        async with http.post("/v1/chat/completions", json=asked, headers=name) as response:
            body = await response.read()
            _demand_ok(response)
            if not body.endswith(b"data: [DONE]\n\n"):
                raise SystemExit("a normal turn broke off")


def _demand_ok(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        raise SystemExit(f"a normal request was answered {response.status}")


def _report(held: list[Held], latencies: list[float]) -> int:
    by_manner: dict[str, list[float]] = defaultdict(list)
    for each in held:
        by_manner[each.manner.name].append(each.seconds)
    for name, seconds in by_manner.items():
        print(f"{name:36} {len(seconds):5}  {min(seconds):6.1f} to {max(seconds):6.1f} s")
    latencies.sort()
    middle, late = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(
        f"{len(latencies)} normal requests meanwhile: half within {middle * 1000:.1f} ms, 99 % within {late * 1000:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
